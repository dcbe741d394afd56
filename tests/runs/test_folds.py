"""Series of runs: folds, label issues, seeds and learning curves."""

import codecs
import csv
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from shlex import split

import numpy as np
import pytest
import torch
from filelock import FileLock
from pyarrow import parquet
from scipy.special import expit, softmax
from sklearn.metrics import f1_score

from app.config.command_line import load_config
from app.data.dataset import open_dataset
from app.errors import InputError, TrainingError
from app.report.logits_file import SplitLogits
from app.runs.label_issues import find_issues, issues_text, judge, list_issues
from app.runs.learning_curve import curve_sentence, curve_text
from app.runs.out_of_fold import OutOfFold
from app.runs.series import Series, plan_mode
from app.runtime.disk import read_json
from app.tasks import open_task
from app.tasks.task import Task
from tests.multi_label_runs import NAMES, read_predictions, write_posts
from tests.ranks import run_forked
from tests.report.rows_case import random_rows
from tests.tiny import write_tiny
from tests.verbs import cross_validate, learning_curve, spoken_in

TINY = split(
    "--model.name=random "
    "--model.config.hidden_size=64 --model.config.num_hidden_layers=1 --model.config.intermediate_size=64 "
    "--model.config.num_attention_heads=4 --train.learning_rate 0.003 --train.device cpu "
    "--train.batch_size 16 --model.dropout 0 --output.trackers [] --train.threads 1 --train.precision fp32"
)
SEVERAL = split("--data.task=multi_label --data.format=jsonl --data.dev_size=0.2 --train.epochs=60")
SEVERAL += ["--train.learning_rate=0.001"]
FIGURES = {cross_validate: "cross_validation", learning_curve: "learning_curve"}
CLASSES, LISTS = (open_task(name, list("甲乙丙丁")) for name in ("single_label", "multi_label"))


def run(folder: Path, verb: Callable[[list[str]], int], *words: str) -> tuple[str, str, dict]:
    """Run a verb on the file rows in `folder`, with forked runs; return its two outputs and its figures."""
    data = [f"--data.train={folder / 'rows'}", f"--data.cache_dir={folder / 'cache'}", "--train.epochs=10"]
    data.append(f"--output.dir={folder / 'out'}")
    out = StringIO()
    err = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        if "--mode" not in words:
            patch.setattr("app.runs.series.run_to_end", run_forked)
        assert verb([*TINY, *data, *words]) == 0, err.getvalue()
    output = out.getvalue()
    path = folder / "out" / f"{FIGURES[verb]}.txt"
    assert path.read_text(encoding="utf-8").strip() in output
    return output, err.getvalue(), read_json(path.with_suffix(".json"))


@pytest.fixture(scope="module")
def folds(tmp_path_factory) -> tuple[Path, str, dict, dict[str, np.ndarray]]:
    """Return a folder with posts with several labels, those of each 15th wrong, and what `cross-validate`
    makes of them: what it prints, its figures, and by name the columns of its rows."""
    pytest.importorskip("cleanlab", reason="needs requirements/labels.txt")
    folder = tmp_path_factory.mktemp("folds")
    posts = list(map(json.loads, write_posts(folder / "rows").read_text(encoding="utf-8").splitlines()))
    for post in posts[5::15]:
        post["labels"] = [name for name in NAMES if name not in post["labels"]]
    (folder / "rows").write_text("\n".join(map(json.dumps, posts)), encoding="utf-8")
    output, _, figures = run(folder, cross_validate, *SEVERAL, "--folds", "3")
    table = parquet.read_table(folder / "out" / "oof.parquet")
    assert json.loads(table.schema.metadata[b"label_names"]) == NAMES
    names = ("row_id", "line", "fold", "logits", "text_hash")
    rows = {name: np.array(table[name].to_pylist()) for name in names}
    for name in ("labels", "predicted"):
        matrix = []
        for labels in table[name].to_pylist():
            matrix.append([label in labels for label in NAMES])
        rows[name] = np.array(matrix)
    assert rows["row_id"].tolist() == list(range(150))
    assert rows["line"].tolist() == list(range(1, 151))
    assert rows["labels"].tolist() == [[name in post["labels"] for name in NAMES] for post in posts]
    return folder, output, figures, rows


@pytest.mark.slow
def test_each_row_is_decided_by_the_run_that_did_not_see_it_and_figures_are_those_of_sklearn(folds):
    folder, text, figures, rows = folds
    posts = list(map(json.loads, (folder / "rows").read_text(encoding="utf-8").splitlines()))
    for fold in figures["folds"]:
        part = rows["fold"] == fold["fold"]
        decided = folder / "out" / f"fold-{fold['fold']}"
        tested = [row["text"] for row in read_predictions(decided / "predictions.csv")]
        assert tested == [posts[row]["text"] for row in np.flatnonzero(part)]
        thresholds = read_json(decided / "decision.json")["thresholds"]
        labels = rows["labels"][part]
        predicted = rows["predicted"][part]
        chances = expit(rows["logits"][part])
        assert np.array_equal(predicted, chances >= [thresholds[name] for name in NAMES])
        assert fold["rows"] == part.sum() == 50
        assert fold["micro_f1"] == pytest.approx(f1_score(labels, predicted, average="micro"))
        assert fold["subset_accuracy"] == pytest.approx((labels == predicted).all(axis=1).mean())
    of_folds = [fold["macro_f1"] for fold in figures["folds"]]
    assert figures["mean"]["macro_f1"] == pytest.approx(np.mean(of_folds))
    assert figures["standard_deviation"]["macro_f1"] == pytest.approx(np.std(of_folds, ddof=1))
    pooled = figures["all_rows"]
    samples_f1 = f1_score(rows["labels"], rows["predicted"], average="samples", zero_division=1)
    assert pooled["samples_f1"] == pytest.approx(samples_f1)
    low, high = pooled["intervals"]["micro_f1"]
    assert low < pooled["micro_f1"] < high
    assert f"{pooled['micro_f1']:.4f}   {low:.4f} to {high:.4f}" in text


@pytest.mark.slow
def test_the_list_of_issues_finds_wrong_labels_and_becomes_fixes_where_it_is_filled_in(folds):
    folder, text, figures, rows = folds
    path = folder / "out" / "label_issues.csv"
    assert path.read_bytes().startswith(codecs.BOM_UTF8)
    issues = read_predictions(path)
    at = [int(issue["row_id"]) for issue in issues]
    assert set(at) == set(np.flatnonzero((rows["predicted"] != rows["labels"]).any(axis=1)))
    assert len(set(at[:10]) & set(range(5, 150, 15))) >= 5
    assert figures["labels"]["ranked"] == len(issues)
    for name, column in (("given", "labels"), ("suggested", "predicted")):
        sets = [[label in json.loads(issue[name]) for label in NAMES] for issue in issues]
        assert sets == rows[column][at].tolist()
    assert [issue["text_hash"] for issue in issues] == rows["text_hash"][at].tolist()
    assert [int(issue["line"]) for issue in issues] == rows["line"][at].tolist()
    scores = [float(issue["score"]) for issue in issues]
    assert scores == sorted(scores)
    assert "are flagged by confident learning" in text

    for issue in issues[:3]:
        issue["label"] = issue["suggested"]
    with path.open("w", encoding="gb18030", newline="") as file:
        writer = csv.DictWriter(file, list(issues[0]))
        writer.writeheader()
        writer.writerows(issues)
    # What is filled in stays when the command writes the list again, with the same figures in Chinese
    filled = path.read_bytes()
    output, errors, again = run(folder, cross_validate, *SEVERAL, "--folds", "3", "--output.language", "zh")
    assert again == figures
    low, high = figures["all_rows"]["intervals"]["micro_f1"]
    assert f"{figures['all_rows']['micro_f1']:.4f}   {low:.4f} 到 {high:.4f}" in output
    assert "standard" not in output
    assert errors.count("finished before") == 3
    assert path.read_bytes() == filled
    words = [f"--data.train={folder / 'rows'}", f"--data.relabel={path}", "--data.dev_size=0"]
    config = load_config([*SEVERAL, *words, "--data.test_size=0", f"--data.cache_dir={folder / 'cache'}"])
    fixed = open_dataset(config.data).splits["train"].labels
    assert np.array_equal(fixed[at[:3]], rows["predicted"][at[:3]])
    assert (fixed != rows["labels"]).any(axis=1).sum() == 3


def noisy_rows(task: Task, num_rows: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, logits of a model that has not seen them, and which labels, one in twenty, are wrong."""
    true, logits = random_rows(task.name, num_rows, 4)
    if task is LISTS:
        # So that it is wrong by itself in few of its many labels
        logits += true * 4.0 - 2
    generator = np.random.default_rng(2)
    labels = true.copy()
    for row in generator.permutation(num_rows)[: num_rows // 20]:
        others = np.flatnonzero((true != true[row]).reshape(num_rows, -1).any(axis=1))
        labels[row] = true[generator.choice(others)]
    return labels, logits, (labels != true).reshape(num_rows, -1).any(axis=1)


@pytest.mark.parametrize("task", [CLASSES, LISTS])
def test_rows_that_are_predicted_otherwise_are_ranked_by_the_probability_of_their_labels(task):
    """If the model is better than the most frequent answer."""
    labels, logits, is_wrong = noisy_rows(task)
    scores = task.score(labels, logits)
    assert judge(scores)["can_judge"]
    collapsed = np.full_like(logits, -1)
    collapsed[:, 0] = 1
    judged = judge(task.score(labels, collapsed))
    assert not judged["can_judge"]
    assert judged["accuracy"] <= judged["majority"]

    pytest.importorskip("cleanlab", reason="needs requirements/labels.txt")
    if task is LISTS:
        chances = expit(logits.astype(float))
        expected = np.where(labels, chances, 1 - chances).min(axis=1)
    else:
        expected = softmax(logits.astype(float), axis=1)[np.arange(len(labels)), labels]
    issues = find_issues(task, scores, logits)
    order = issues.order
    quality = issues.plausibility
    flagged = issues.is_flagged
    assert quality == pytest.approx(expected)
    assert (np.diff(quality[order]) >= 0).all()
    assert set(order.tolist()) == set(np.flatnonzero(~scores.correct).tolist())
    assert is_wrong[order[: is_wrong.sum()]].mean() > 0.6
    assert is_wrong[flagged].mean() > 0.5
    assert is_wrong[flagged].sum() > 0.7 * is_wrong.sum()


def test_numbers_that_are_far_off_are_found():
    pytest.importorskip("cleanlab", reason="needs requirements/labels.txt")
    task = open_task("regression", ["score"])
    generator = np.random.default_rng(0)
    labels = generator.normal(5, 1, 300)
    predicted = labels + generator.normal(0, 0.2, 300)
    at = generator.permutation(300)[:15]
    labels[at] += 2 * np.where(labels[at] < 5, 1, -1)
    scores = task.score(labels, predicted[:, None], predicted)
    issues = find_issues(task, scores, predicted[:, None])
    order = issues.order
    flagged = issues.is_flagged
    assert flagged[at].all()
    assert set(order[: len(at)]) == set(at)
    figures = {"can_judge": True, "ranked": len(order), "flagged": int(flagged.sum())}
    text = issues_text(figures, "score")
    assert "rows are more than half a standard deviation off" in text
    figures = judge(scores) | {"can_judge": False}
    text = issues_text(figures, "score")
    assert f"at most half a standard deviation off in {figures['accuracy']:.1%} of the rows" in text


def test_a_label_of_all_rows_and_rows_without_labels_are_no_error():
    pytest.importorskip("cleanlab", reason="needs requirements/labels.txt")
    labels, logits, _ = noisy_rows(LISTS, 60)
    labels[:, 3] = 1
    assert len(find_issues(LISTS, LISTS.score(labels, logits), logits).plausibility) == 60
    labels[:] = 0
    issues = find_issues(LISTS, LISTS.score(labels, logits), logits)
    assert not issues.is_flagged.any()
    assert set(issues.order.tolist()) == set(np.flatnonzero((logits > 0).any(axis=1)).tolist())


@pytest.mark.slow
def test_seeds_in_two_processes_are_judged_by_their_own_thresholds(tmp_path):
    """On dev, because there are no test rows."""
    write_posts(tmp_path / "rows")
    words = split("--data.test_size 0 --seeds 2 --mode mp --processes 2 --train.epochs 3")
    output, _, figures = run(tmp_path, cross_validate, *SEVERAL, *words)
    assert figures["seeds"] == [42, 43]
    thresholds = []
    for at, seed in enumerate((42, 43)):
        folder = tmp_path / "out" / f"seed-{seed}"
        report = read_json(folder / "report.json")
        assert report["split"] == figures["split"] == "dev"
        for metric in ("micro_f1", "macro_f1"):
            assert figures[metric]["values"][at] == pytest.approx(report[metric])
        (start,) = read_json(folder / "run_history.json")["starts"]
        assert (start["mode"], start["processes"]) == ("mp", 2)
        thresholds.append(read_json(folder / "decision.json")["thresholds"])
    assert thresholds[0] != thresholds[1]
    assert "samples F1: another seed moves it by" in output


@pytest.mark.slow
def test_a_curve_from_the_first_command_and_again(tmp_path):
    write_tiny(tmp_path / "rows", rows_per_label=80)
    output, _, written = run(tmp_path, learning_curve, "--data.format=tsv")
    assert [point["train_rows"] for point in written["points"]] == [24, 48, 96, 192]
    assert written["rows"] == 24
    assert [type(point["same_answer"]) for point in written["points"]] == [bool] * 4
    output_again, errors, _ = run(tmp_path, learning_curve, "--data.format=tsv")
    assert output_again == output
    assert errors.count("finished before") == 4


@pytest.mark.parametrize(
    ("change", "low", "high", "sentence"),
    [
        (0.05, 0.01, 0.09, "more rows help. Twice as many would give about 0.80"),
        (0.0, -0.01, 0.009, "more rows of this kind hardly help"),
        (0.02, -0.03, 0.07, "tested on 302 rows, too few to say"),
    ],
)
def test_what_a_learning_curve_says(change, low, high, sentence):
    point = {"share": 1.0, "train_rows": 1906, "macro_f1": 0.7 + change, "interval": [0.6, 0.8]}
    figures = {"metric": "macro_f1", "split": "test", "rows": 302, "points": [point]}
    figures |= {"last_change": change, "last_change_interval": [low, high]}
    assert sentence in curve_sentence(figures)
    assert sentence in curve_text(figures)
    assert "302" in spoken_in("zh", curve_text, figures)


@pytest.mark.parametrize(
    ("same_answers", "sentence"),
    [
        ((True, True, True, False), "does not say what twice as many rows would give"),
        ((True, True, True, True), "it has learned nothing"),
        ((True, True, False, False), "Twice as many would give about 1.00"),
    ],
)
def test_a_curve_of_one_answer_is_not_continued(same_answers, sentence):
    points = [{"macro_f1": 0.17, "same_answer": answer} for answer in same_answers]
    points[-1]["macro_f1"] = 0.98
    figures = {"metric": "macro_f1", "split": "test", "rows": 302, "points": points}
    figures |= {"last_change": 0.81, "last_change_interval": [0.7, 0.9]}
    assert sentence in curve_sentence(figures)
    assert ("Twice" in sentence) == ("0.98" in curve_sentence(figures) or "1.00" in curve_sentence(figures))
    assert spoken_in("zh", curve_sentence, figures) != curve_sentence(figures)


@pytest.mark.parametrize(
    ("devices", "wanted", "planned"),
    [
        (0, ("ddp", None, "auto"), (2, "")),
        (4, ("ddp", None, "auto"), (4, "")),
        (4, ("ddp", 3, "auto"), (3, "")),
        (4, ("dp", 3, "auto"), (1, "")),
        (1, ("ddp", 2, "cuda"), (2, "2 processes need as many accelerators, this machine has 1")),
        (1, ("ddp", 2, "cpu"), (2, "")),
    ],
)
def test_processes_are_those_asked_for_or_the_devices_or_two(monkeypatch, devices, wanted, planned):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: devices)
    assert plan_mode(*wanted) == planned


def series_of(folder: Path, path: Path) -> Series:
    words = ["--data.train", str(path), "--data.cache_dir", str(folder / "cache")]
    return Series(folder / "series", "2 seeds", "single", 1, words, load_config(words))


def test_a_run_that_fails_names_its_error_and_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr("app.runs.series.run_to_end", run_forked)
    message = r"seed-1 failed with status 2: error: .*nothing\.tsv.*seed-1\.log"
    (tmp_path / "series").mkdir()
    with pytest.raises(TrainingError, match=message):
        series_of(tmp_path, tmp_path / "nothing.tsv").run("seed-1", {})


def test_a_series_keeps_its_settings_and_data(tmp_path):
    """Also where these are a folder of files."""
    path = tmp_path / "rows"
    moved = tmp_path / "moved"
    path.mkdir()
    for seed, name in enumerate(("a.tsv", "b.tsv")):
        write_tiny(path / name, rows_per_label=10, seed=seed)
    series = series_of(tmp_path, path)

    def open_with(*options: str, description: str = "2 seeds") -> None:
        config = load_config([*series.settings, *options])
        replace(series, description=description, config=config).open(open_dataset(config.data))

    open_with()
    open_with()
    path.rename(moved)
    series = series_of(tmp_path, moved)
    open_with("--train.log_every", "7")
    with pytest.raises(InputError, match=r"train\.epochs was auto and is 9.* start again with --overwrite"):
        open_with("--train.epochs", "9")
    with pytest.raises(InputError, match="kind was 2 seeds and is 3 folds"):
        open_with(description="3 folds")
    write_tiny(moved / "b.tsv", rows_per_label=6)
    with pytest.raises(InputError, match=r"data\.train"):
        open_with()
    assert read_json(tmp_path / "series" / "job.json")["kind"] == "2 seeds"


def test_overwrite_starts_again_and_keeps_the_runs_of_another_job_in_another_folder(tmp_path, capsys):
    path = write_tiny(tmp_path / "rows.tsv", rows_per_label=10)
    series = series_of(tmp_path, path)
    dataset = open_dataset(series.config.data)
    series.open(dataset)
    (series.folder / "seed-1").mkdir()
    (series.folder / "seed-1" / "notes").write_text("mine")
    second = replace(series, description="3 seeds", overwrite=True)
    with FileLock(series.folder / "seed-1" / ".lock"), pytest.raises(InputError, match="is being trained"):
        second.open(dataset)
    second.open(dataset)
    assert (
        f"the runs that were in {series.folder} are in {series.folder}.old-1 now" in capsys.readouterr().err
    )
    assert (tmp_path / "series.old-1" / "seed-1" / "notes").read_text() == "mine"
    assert [entry.name for entry in series.folder.iterdir()] == ["job.json"]
    # The same job continues
    second.open(dataset)
    replace(series, overwrite=True).open(dataset)
    assert (tmp_path / "series.old-2" / "job.json").exists()
    # A folder that holds something else is nobody's to move
    (tmp_path / "series" / "job.json").unlink()
    (tmp_path / "series" / "notes").write_text("mine")
    with pytest.raises(InputError, match="holds no series of runs"):
        second.open(dataset)


def test_a_list_of_issues_is_written_again_only_with_overwrite(tmp_path, capsys):
    pytest.importorskip("cleanlab", reason="needs requirements/labels.txt")
    path = write_tiny(tmp_path / "rows.tsv", rows_per_label=100)
    table = open_dataset(series_of(tmp_path, path).config.data).files["train"]
    labels, logits, _is_wrong = noisy_rows(CLASSES, table.num_rows)
    rows = OutOfFold(
        table=table,
        task=CLASSES,
        folds=np.zeros(table.num_rows, int),
        split=SplitLogits(np.arange(table.num_rows), labels, table.hashes, logits),
        scores=CLASSES.score(labels, logits),
    )
    path = tmp_path / "label_issues.csv"
    list_issues(path, rows)
    written = path.read_bytes()
    path.write_text("filled in")
    list_issues(path, rows)
    assert path.read_text() == "filled in"
    assert "stays as it was: it may have labels that you filled in" in capsys.readouterr().err
    list_issues(path, rows, overwrite=True)
    assert path.read_bytes() == written
