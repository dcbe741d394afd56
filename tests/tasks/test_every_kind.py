"""What holds for every kind of answer, from its file to its predictions."""

import json
import random
import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import precision_recall_curve

from app.api import load
from app.batching.loader import Batch
from app.checkpoints.run_files import HISTORY, LOCK, REPORT, STATES
from app.config.command_line import load_config
from app.data.dataset import open_dataset
from app.errors import InputError
from app.explanation.explained_model import ExplainedModel
from app.explanation.explanation import explain
from app.report.logits_file import read_run
from app.report.measure import measure
from app.report.metrics import BY_KEY
from app.run import work
from app.runtime.disk import read_json
from app.tasks import TASK_CLASSES
from app.tasks.decision_file import DECISION
from app.tasks.probabilities import sigmoid
from tests.multi_label_runs import arguments, predict_again, read_predictions, task_of, train, write_posts
from tests.ranks import SMALL
from tests.saved_classifier import save_checkpoint
from tests.tiny import LABELS, WORDS, write_tiny
from tests.verbs import compare, export, predict

# What a checkpoint of transformers does not have
ONLY_A_RUN = shutil.ignore_patterns(DECISION, HISTORY, LOCK, REPORT, STATES)

MASKED = "masked_language_modelling"
# A path may end where others go on
PATHS = {"体育": "体", "体育-球类-篮球": "篮", "体育-球类-足球": "足", "财经-基金": "金", "财经-股票": "股"}


def write_lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    return path


def write_counted(path: Path, column: str, answers: list, rows: int = 160) -> Path:
    """Write rows whose answer is the later one the more often a character is in the text."""
    generator = random.Random(0)
    lines = []
    size = len(answers)
    for number in range(rows):
        often = generator.randrange(size)
        characters = list("好" * often + "天" * (size - often))
        generator.shuffle(characters)
        lines.append({"text": f"{''.join(characters)}{number % 10}", column: answers[often]})
    return write_lines(path, lines)


def write_complaints(path: Path) -> Path:
    """Write rows of which one in eight is 投诉, by one character that others have too."""
    generator = random.Random(0)
    lines = []
    for number in range(400):
        is_rare = number % 8 == 0
        label = "其他"
        share = 0.15
        if is_rare:
            label = "投诉"
            share = 0.8
        sign = "好"
        if generator.random() < share:
            sign = "差"
        text = "".join(generator.choices("天地玄黄宇宙", k=6)) + sign + str(number)
        lines.append({"text": text, "label": label})
    return write_lines(path, lines)


def write_texts(path: Path) -> Path:
    """Write texts of words of two characters, so that a hidden character can be guessed."""
    generator = np.random.default_rng(0)
    characters = "".join(WORDS.values())
    words = [first + second for first, second in zip(characters, reversed(characters), strict=True)]
    texts = {"".join(generator.choice(words, 6)) for _ in range(150)}
    path.write_text("\n".join(sorted(texts)) + "\n", encoding="utf-8")
    return path


class Kind(NamedTuple):
    """What a run of one kind needs: who writes its file, and the settings; the column that has the answers in
    files; the settings of another run on the same rows, to compare it with; what its report must reach, with
    the lower end of the interval."""

    write: Callable[[Path], Path]
    settings: dict
    column: str = "label"
    other_settings: dict | None = None
    reaches: tuple[str, float] | None = None
    file: str = "rows.jsonl"


write_stars = partial(write_counted, column="label", answers=["1", "1", "2", "2", "10", "10"])
write_news = partial(write_posts, words=PATHS, counts=[1])
write_several = partial(write_posts, words=PATHS, counts=[0, 1, 1, 2])
write_scores = partial(write_counted, column="score", answers=[1000 + 2.5 * often for often in range(8)])
HIERARCHY = {"data__label_hierarchy": "-", "train__epochs": 12}
FLAT = {"data__task": "single_label"}
LARGE = {"data__test_size": 0.2, "data__dev_size": 0.2}
RARE = {"train__best_metric": "rare_f1", "train__epochs": 4, "data__dev_size": 0.3, "data__test_size": 0.3}
HUBER = {"data__task": "regression", "train__loss": "huber"}
KINDS = {
    "multi_label": Kind(write_posts, LARGE | {"train__epochs": 12}, "labels", LARGE, ("micro_f1", 0.5)),
    "ordinal": Kind(write_stars, {"train__epochs": 8}, other_settings=FLAT, reaches=("kappa", 0.3)),
    "regression": Kind(write_scores, {"train__epochs": 8}, "score", HUBER, reaches=("spearman", 0.5)),
    "single_path": Kind(write_news, HIERARCHY, other_settings=FLAT, reaches=("hierarchical_f1", 0.5)),
    "multi_path": Kind(write_several, HIERARCHY, "labels", reaches=("micro_f1", 0.5)),
    "rare_class": Kind(write_complaints, FLAT | RARE, reaches=("rare_f1", 0.1)),
    MASKED: Kind(write_texts, {"train__epochs": 15}, file="texts.txt"),
}
LABELLED = [name for name in KINDS if name != MASKED]


def test_every_kind_of_answer_has_a_run_here():
    tasks = {kind_of_answer.settings.get("data__task", name) for name, kind_of_answer in KINDS.items()}
    assert tasks == set(TASK_CLASSES), "add it to KINDS"


@pytest.fixture(scope="module")
def run_of(tmp_path_factory) -> Callable[[str], Path]:
    """Return the function that trains the run of a kind; its data file is beside it."""

    @cache
    def trained(name: str) -> Path:
        kind_of_answer = KINDS[name]
        folder = tmp_path_factory.mktemp(name)
        train(
            kind_of_answer.write(folder / kind_of_answer.file),
            folder / "run",
            **{"data__task": name} | kind_of_answer.settings,
        )
        return folder / "run"

    return trained


def rounded(state: dict) -> dict:
    return json.loads(json.dumps(state), parse_float=lambda number: round(float(number), 9))


@pytest.mark.parametrize("name", LABELLED)
def test_a_run_learns_and_its_figures_and_predictions_follow_from_its_logits(name, run_of):
    """The decision is fitted on dev, and the report is on test."""
    run = run_of(name)
    kind_of_answer = KINDS[name]
    report = read_json(run / "report.json")
    task, splits = read_run(run)
    again, _splits = read_run(run)
    again.best_metric = kind_of_answer.settings.get("train__best_metric", "auto")
    again.fit(splits["dev"].labels, splits["dev"].logits, splits["dev"].hashes)
    assert rounded(again.state()) == rounded(task.state())
    test = splits["test"]
    metrics = measure(task, task.score(test.labels, test.logits))
    for key in report["intervals"]:
        assert report[key] == pytest.approx(metrics[key], rel=1e-5)
    key, lower_end = kind_of_answer.reaches
    assert report["intervals"][key][0] > lower_end
    rows = read_predictions(run / "predictions.csv")
    for column, answers in ((kind_of_answer.column, test.labels), ("predicted", task.decide(test.logits))):
        assert [row[column] for row in rows] == list(map(task.cell_text, answers))


def as_columns(row: dict) -> dict:
    return {"text": row["text"]} | {name: int(name in row["labels"]) for name in LABELS}


def as_joined(row: dict) -> dict:
    return {"text": row["text"], "tags": "|".join(row["labels"])}


COLUMNS = ["--data.label_columns", f"[{', '.join(LABELS)}]"]
JOINED = ["--label_column", "tags", "--data.label_separator", "|"]
FORMS = [*((name, dict, []) for name in LABELLED)]
FORMS += [("multi_label", as_columns, COLUMNS), ("multi_label", as_joined, JOINED)]


@pytest.mark.parametrize(("name", "write", "options"), FORMS)
def test_a_saved_model_predicts_and_reports_what_its_run_did(name, write, options, run_of, tmp_path, capsys):
    """Also where files have several labels in another form."""
    run = run_of(name)
    column = KINDS[name].column
    out = tmp_path / "out"
    wanted = read_json(run / "report.json")
    rows = read_predictions(run / "predictions.csv")
    value = {"label": str, "labels": json.loads, "score": float}[column]
    lines = [write({"text": row["text"], column: value(row[column])}) for row in rows]
    words = ["--input", str(write_lines(tmp_path / "rows.jsonl", lines)), "--report", str(out), *options]
    assert predict(["--checkpoint", str(run), *words]) == 0
    report = read_json(out / "report.json")
    for key in ("classes", "accuracy", "macro_f1"):
        assert report.get(key) == wanted.get(key)
    for key, interval in wanted["intervals"].items():
        assert report[key] == pytest.approx(wanted[key], rel=1e-4)
        assert report["intervals"][key] == pytest.approx(interval, rel=1e-4)
    assert "95 % intervals" in capsys.readouterr().out
    reported_rows = read_predictions(out / "predictions.csv")
    predicted_rows = predict_again(run, rows, tmp_path / "f.jsonl")
    expected_answers = [value(row["predicted"]) for row in rows]
    if column == "score":
        expected_answers = pytest.approx(expected_answers, rel=1e-5)
    assert load(run).predict([row["text"] for row in rows]).tolist() == expected_answers
    assert [row[column] for row in predicted_rows] == expected_answers
    assert [value(row["predicted"]) for row in reported_rows] == expected_answers
    # The truth stands in its own column, and the columns of the input come last
    assert [value(row[column]) for row in reported_rows] == [value(row[column]) for row in rows]
    assert list(reported_rows[0])[:2] == ["line", "text"]
    if "calibration" in wanted:
        return
    for key in rows[0]:
        if key.startswith("p_"):
            expected = [float(row[key]) for row in rows]
            assert [float(row[key]) for row in reported_rows] == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(("name", "missing"), [("multi_label", "负面"), ("ordinal", "10")])
def test_a_report_on_other_rows_names_the_labels_that_no_row_has(name, missing, run_of, tmp_path, capsys):
    run = run_of(name)
    column = KINDS[name].column
    out = tmp_path / "out"
    rows = [row for row in read_predictions(run / "predictions.csv") if missing not in row[column]]
    value = {"label": str, "labels": json.loads}[column]
    file = write_lines(
        tmp_path / "rows.jsonl", [{"text": row["text"], column: value(row[column])} for row in rows]
    )
    capsys.readouterr()
    assert predict(["--checkpoint", str(run), "--input", str(file), "--report", str(out)]) == 0
    sentence = f"No row has this label, 1 of 3: {missing}. Its precision, recall and F1 are 0"
    assert sentence in capsys.readouterr().out
    assert sentence in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["ordinal", "single_path", "rare_class", "regression"])
def test_an_exported_model_and_an_explanation_decide_alike(name, run_of, tmp_path):
    run = run_of(name)
    folder = tmp_path / "onnx"
    texts = [row["text"] for row in read_predictions(run / "predictions.csv")[:2]]
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    if name == "regression":
        # Without what only a run has: config.json has the unit
        run = Path(shutil.copytree(run, tmp_path / "copy", ignore=ONLY_A_RUN))
    assert export([str(run), "--output", str(folder)]) == 0
    if name != "regression":
        answers = load(run).predict(texts).tolist()
        assert load(folder).predict(texts).tolist() == answers
        [explanation] = explain(ExplainedModel(run, "cpu"), (texts[0],), draws=20)
        assert explanation.label_names[explanation.label] == answers[0]
        assert explanation.probabilities == pytest.approx(load(run).predict_proba(texts)[0], abs=1e-4)
        return
    proof = read_json(folder / "export.json")["proof"]
    assert (proof["flipped"], proof["rows_of"]) == (0, "dev")
    assert proof["spearman_change"] == pytest.approx([0, 0], abs=1e-4)
    again = load(load(folder).save(tmp_path / "saved"))
    assert again.predict(texts) == pytest.approx(load(run).predict(texts), rel=1e-5)


def compared(runs: list[Path], capsys) -> tuple[dict[str, tuple], str]:
    """Return what `compare` prints: by key of the metric the difference, and its interval; and all of it."""
    assert compare(list(map(str, runs))) == 0
    printed = capsys.readouterr().out
    line = re.compile(r"^  (.+?) +B - A (\S+)   95 % interval (\S+) to (\S+)$", re.MULTILINE)
    keys = {metric.english: key for key, metric in BY_KEY.items()}
    differences = {}
    for name, difference, low, high in line.findall(printed):
        differences[keys[name]] = (float(difference), float(low), float(high))
    return differences, printed


def right_rows(run: Path, column: str) -> np.ndarray:
    """Return which predictions of a run are right, (num_rows,) bool."""
    rows = read_predictions(run / "predictions.csv")
    return np.array([row["predicted"] == row[column] for row in rows])


@pytest.mark.parametrize("name", [name for name in LABELLED if KINDS[name].other_settings])
def test_runs_are_compared_row_by_row(name, run_of, tmp_path, capsys):
    """Also with a run that takes the labels otherwise."""
    run = run_of(name)
    other_run = tmp_path / "other"
    column = KINDS[name].column
    train(run.parent / "rows.jsonl", other_run, **{"train__epochs": 1} | KINDS[name].other_settings)
    now = read_json(run / "report.json")
    before = read_json(other_run / "report.json")
    capsys.readouterr()
    differences, printed = compared([other_run, run], capsys)
    back, _printed = compared([run, other_run], capsys)
    assert set(differences) == now["intervals"].keys() - {"brier"}
    for key, (difference, low, high) in differences.items():
        assert key not in before or difference == pytest.approx(now[key] - before[key], abs=1e-4)
        assert low <= difference <= high
        assert back[key][0] == pytest.approx(-difference)
    if column == "score":
        assert differences["rmse"][2] < 0
        return
    is_right_before = right_rows(other_run, column)
    is_right_now = right_rows(run, column)
    won = np.count_nonzero(is_right_now & ~is_right_before)
    lost = np.count_nonzero(is_right_before & ~is_right_now)
    rows = {"label": "rows", "labels": "rows with all labels right"}[column]
    assert f"{rows} won by B {won}, lost {lost};" in printed
    assert "McNemar's exact test: p = " in printed


def test_what_cannot_be_compared_is_an_error_and_several_are_with_the_first(run_of, tmp_path, capsys):
    run = run_of("ordinal")
    other_run = run_of("multi_label")
    for words, message in (
        ([run, tmp_path], "the logits of a finished run are needed"),
        ([run], "two or more runs are needed"),
        ([other_run, run], "must have the same data.task and labels, found multi_label"),
    ):
        assert compare(list(map(str, words))) == 2
        assert message in capsys.readouterr().err
    assert compared([run, run, run], capsys)[1].count("McNemar") == 2


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("ordinal", "single_path")]


@pytest.mark.parametrize("name", ["multi_label", "regression", MASKED, *SLOW])
def test_a_stopped_run_resumes_to_the_same_bits(name, tmp_path, at_step):
    kind_of_answer = KINDS[name]
    data = kind_of_answer.write(tmp_path / kind_of_answer.file)
    settings = {"data__task": name} | kind_of_answer.settings
    settings |= {"train__epochs": 2, "train__accumulation_steps": 2, "train__save_every": 3}
    settings |= {"model__dropout": 0.1, "output__resume": "auto"}
    for folder, status, step in (("whole", 0, None), ("cut", 143, 4), ("cut", 0, None)):
        at_step(step)
        assert work(load_config(arguments(data, tmp_path / folder, SMALL, **settings)), "single") == status
    for file in ("model.safetensors", "report.json"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize("name", ["regression", "single_path", "multi_path"])
def test_a_model_alone_knows_its_unit_and_what_is_between_levels(name, run_of, tmp_path, capsys):
    """Without what only a run has; thresholds are not in config.json."""
    run = run_of(name)
    folder = tmp_path / name
    shutil.copytree(run, folder, ignore=ONLY_A_RUN)
    texts = [row["text"] for row in read_predictions(run / "predictions.csv")]
    if name != "multi_path":
        assert load(folder).predict(texts).tolist() == load(run).predict(texts).tolist()
    if name == "regression":
        with pytest.raises(InputError, match="the model gives numbers, not probabilities"):
            load(run).predict_proba(["好"])
        assert predict(["--checkpoint", str(run), "--threshold", "0.9", "好"]) == 2
        assert "gives no probability" in capsys.readouterr().err
        return
    config = read_json(folder / "config.json") | {"label_hierarchy": None}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(InputError, match=r"or in config.json, .*label_hierarchy"):
        load(folder)


@pytest.mark.parametrize("name", ["single_path", "multi_path"])
def test_predictions_say_how_far_a_path_is_sure(name, run_of, tmp_path):
    run = run_of(name)
    wanted = read_predictions(run / "predictions.csv")
    rows = predict_again(run, wanted, tmp_path / "found.csv", "--threshold", "0.9")
    assert {row["decision"] for row in rows} <= {"accept", "partial", "abstain"}
    if name == "single_path":
        sums = [float(row["p_体育-*"]) + float(row["p_财经-*"]) for row in rows]
        assert sums == pytest.approx(np.ones(len(rows)), abs=1e-5)


def test_the_rarer_class_is_decided_from_its_threshold_on(run_of, tmp_path):
    run = run_of("rare_class")
    out = tmp_path / "out"
    report = read_json(run / "report.json")
    decision = read_json(run / "decision.json")
    assert report["rare_class"] == decision["rare_class"] == "投诉"
    assert report["rare_threshold"] == decision["rare_threshold"] != 0.5
    for name in ("report.txt", "README.md"):
        text = (run / name).read_text(encoding="utf-8")
        assert f"{report['rare_threshold']:.4f}" in text
        assert "投诉" in text
    assert 0 < read_predictions(run / "metrics.jsonl")[-1]["rare_f1"] <= 1
    # A report on other rows has the recall at the precision that is asked for
    file = tmp_path / "rows.parquet"
    pd.read_json(run.parent / "rows.jsonl", lines=True).to_parquet(file)
    words = ["--checkpoint", str(run), "--input", str(file), "--report", str(out)]
    assert predict([*words, "--threshold", "precision=0.05"]) == 0
    rows = read_predictions(out / "predictions.csv")
    report = read_json(out / "report.json")
    assert [row["text"] for row in rows] == pd.read_parquet(file)["text"].tolist()
    is_rare = [row["label"] == "投诉" for row in rows]
    chances = [float(row["p_投诉"]) for row in rows]
    precision, recall, _ = precision_recall_curve(is_rare, chances)
    assert report["recall_at_precision"] == pytest.approx(recall[precision >= 0.05].max())
    assert "recall at precision 0.05" in (out / "report.txt").read_text(encoding="utf-8")
    assert "Recall at precision 0.05" in (out / "report.html").read_text(encoding="utf-8")


def test_the_pipeline_of_transformers_gives_the_probabilities_of_several_labels(run_of):
    from transformers import pipeline

    run = run_of("multi_label")
    rows = read_predictions(run / "predictions.csv")[:5]
    classify = pipeline(
        "text-classification", str(run), function_to_apply="sigmoid", top_k=None, device="cpu"
    )
    assert classify.model.config.problem_type == "multi_label_classification"
    for row, scores in zip(rows, classify([row["text"] for row in rows]), strict=True):
        probabilities = {score["label"]: score["score"] for score in scores}
        expected = {name: float(row[f"p_{name}"]) for name in LABELS}
        assert probabilities == pytest.approx(expected, abs=2e-6)


def test_a_run_without_dev_rows_uses_a_half(tmp_path):
    posts = write_posts(tmp_path / "posts.jsonl")
    report = train(posts, tmp_path / "run", train__max_steps=1, data__dev_size=0)
    assert {scores["threshold"] for scores in report["classes"].values()} == {0.5}
    assert "none was chosen on dev rows" in (tmp_path / "run" / "report.txt").read_text(encoding="utf-8")


def test_a_head_starts_at_the_shares_of_the_labels(tmp_path):
    """Balanced weights of several labels are rows without one to rows with it."""
    posts = write_posts(tmp_path / "posts.jsonl")
    task = task_of(posts)
    balanced = task_of(posts, class_weights="balanced")
    shares = np.asarray(task.dataset.splits["train"].labels).mean(axis=0)
    assert sigmoid(task.head_bias) == pytest.approx(shares, abs=0.01)
    assert balanced.head_bias == pytest.approx(np.zeros(3), abs=0.05)
    assert balanced.loss.weights.tolist() == pytest.approx(((1 - shares) / shares).tolist(), rel=1e-6)
    task = task_of(write_stars(tmp_path / "stars.jsonl"), "ordinal")
    shares = np.bincount(task.dataset.splits["train"].labels) / len(task.dataset.splits["train"])
    assert task.probabilities(task.head_bias[None])[0] == pytest.approx(shares, abs=0.01)


def test_what_chooses_the_best_checkpoint_must_fit_the_task(tmp_path):
    rows = [{"text": f"天{number}", "label": "abc"[number % 3]} for number in range(90)]
    path = write_lines(tmp_path / "three.jsonl", rows)
    with pytest.raises(InputError, match="train.best_metric rare_f1 needs two labels, found 3"):
        task_of(path, "single_label", best_metric="rare_f1")
    for key, value in (("best_metric", "rare_f1"), ("loss", "logit_adjusted")):
        rule = f"train.{key} must be one of .* with data.task multi_label, found {value}$"
        with pytest.raises(InputError, match=rule):
            load_config(arguments(path, tmp_path / "run", **{f"train__{key}": value}))


def opened(path: Path, task: str, **settings):
    return open_dataset(load_config(arguments(path, path.parent / "run", data__task=task, **settings)).data)


@pytest.mark.parametrize("value", ["很好", "nan", "-inf", "1e200", "1_000", ""])
def test_what_is_no_number_is_refused_with_its_line(write, value):
    path = write("a.tsv", f"天气\t1\n今天\t2.5\n明天\t{value}\n" + "昨天\t3\n" * 20)
    rule = "is empty"
    if value:
        rule = rf"must be a number up to 1e\+100, found '{value}'"
    with pytest.raises(InputError, match=rf"a\.tsv, line 3: the label {rule}"):
        opened(path, "regression")


def test_numbers_must_differ_and_those_of_pairs_are_found_and_split_alike(write):
    same = write("a.tsv", "".join(f"第{number}天\t3\n" for number in range(40)))
    with pytest.raises(InputError, match=r"a\.tsv: the numbers of train must differ, found 3 in all"):
        opened(same, "regression")
    generator = random.Random(1)
    rows = [f"今天天气很好{n}\t今天天气不错{n}\t{generator.random():.9f}\n" for n in range(400)]
    dataset = opened(write("b.tsv", "".join(rows)), "regression")
    columns = {"text_column": 0, "text_pair_column": 1, "label_column": 2}
    assert dataset.files["train"].assumed == {**columns, "header": False}
    for statistics in dataset.statistics.values():
        assert statistics["mean"] == pytest.approx(0.5, abs=0.06)
        assert statistics["deviation"] == pytest.approx(0.29, abs=0.05)


def test_the_order_is_that_of_numbers_or_of_the_setting(tmp_path):
    def names(labels: list[str], **settings) -> list[str]:
        path = write_counted(tmp_path / "a.jsonl", "label", labels * 2)
        return opened(path, "ordinal", **settings).label_names

    assert names(["10", "2", "-1.5"]) == ["-1.5", "2", "10"]
    assert names(["重", "中", "轻"], data__labels="[轻, 中, 重]") == ["轻", "中", "重"]
    for labels in (["轻", "中", "重"], ["1", "1.00", "2"]):
        with pytest.raises(InputError, match="the order of labels .* must be known, .* from the lowest"):
            names(labels)


MANY = [f"类{number}" for number in range(60)]


@pytest.mark.parametrize("output", ["o.csv", "o.jsonl"])
def test_predictions_have_the_ten_most_probable_of_many_labels(tmp_path, output):
    """And so have the predictions of a run, see tests/report/test_report_files.py."""
    labels = {"id2label": dict(enumerate(MANY)), "label2id": {name: at for at, name in enumerate(MANY)}}
    checkpoint = save_checkpoint(tmp_path / "model", num_labels=60, **labels)
    (tmp_path / "rows.csv").write_text("text\n今天真开心\n差\n", encoding="utf-8")
    files = ["--input", str(tmp_path / "rows.csv"), "--output", str(tmp_path / output)]
    assert predict(["--checkpoint", str(checkpoint), "--device", "cpu", *files]) == 0
    rows = read_predictions(tmp_path / output)
    probabilities = load(checkpoint, device="cpu").predict_proba(["今天真开心", "差"])
    for row, expected in zip(rows, probabilities, strict=True):
        assert [*row][-3:] == ["label", "probability", "most_probable"]
        most_probable = row["most_probable"]
        if output == "o.csv":
            most_probable = json.loads(most_probable)
        best_ids = np.argsort(-expected)[:10]
        assert [label["label"] for label in most_probable] == [MANY[label_id] for label_id in best_ids]
        written = [label["probability"] for label in most_probable]
        assert written == pytest.approx(expected[best_ids].tolist(), abs=1e-6)
        assert most_probable[0]["label"] == row["label"]


def test_perplexity_falls_and_is_reported_before_and_after(run_of):
    run = run_of(MASKED)
    report = read_json(run / "report.json")
    assert report["perplexity"] < report["before_training"]["perplexity"] / 50
    assert report["loss"] == pytest.approx(np.log(report["perplexity"]))
    text = (run / "report.txt").read_text(encoding="utf-8")
    assert "before" in text
    first = read_predictions(run / "metrics.jsonl")[0]
    assert first["step"] == 0
    assert first["perplexity"] == report["before_training"]["perplexity"]
    assert not (run / "predictions.csv").exists()


def test_training_goes_on_from_the_checkpoint_at_the_same_perplexity(run_of, tmp_path):
    run = run_of(MASKED)
    settings = {"data__dev_size": 0.1, "data__test_size": 0.1, "model__name": run, "data__task": MASKED}
    settings |= {"train__max_steps": 1, "train__seed": 9}
    words = arguments(run.parent / "texts.txt", tmp_path / "again", sizes={}, **settings)
    assert work(load_config(["--config", "configs/pretrain.yaml", *words]), "single") == 0
    before = read_json(run / "report.json")
    after = read_json(tmp_path / "again" / "report.json")
    assert after["before_training"]["perplexity"] == pytest.approx(before["perplexity"], rel=1e-5)


def test_a_labelled_file_is_read_without_its_labels(tmp_path):
    dataset = opened(write_tiny(tmp_path / "rows.tsv"), MASKED)
    assert dataset.label_names == []
    assert dataset.splits["train"].table.row(0).text


def test_results_of_masked_rows_add_up_to_the_metrics(tmp_path):
    task = task_of(write_texts(tmp_path / "texts.txt"), MASKED)
    outputs = torch.tensor([[5.0, 0.0], [0.0, 5.0], [0.0, 5.0]])
    batch = Batch({}, torch.tensor([0, 1, 0]), torch.tensor([4, 9, 2]), torch.tensor([0, 0, 2]))
    results = task.row_results(outputs, batch)
    assert results[:, 1:].tolist() == [[2, 2], [0, 0], [1, 0]]
    assert float(results[:, 0].sum()) == pytest.approx(float(task.loss(outputs, batch.labels)), rel=1e-6)
    metrics = task.measure(results.numpy())
    assert metrics["targets"] == 3
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["loss"]))
