"""predict --report on rows with labels, and files that are read as in the run's training: python -m pytest
tests/commands/test_predict_report.py"""

import csv
import json
import resource
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, log_loss

from app.prediction.open_model import ComputeOptions, open_model
from app.run import main as train
from tests.saved_classifier import LABELS, of_pipeline, random_texts, save_checkpoint
from tests.tiny import SIZES, tiny_lines
from tests.verbs import export
from tests.verbs import predict as main

FILES = ["predictions.csv", "report.html", "report.json", "report.txt"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = save_checkpoint(tmp_path_factory.mktemp("run"))
    (folder / "decision.json").write_text(json.dumps({"temperature": 2.5, "rows": 60}))
    return folder


@pytest.fixture
def report(model, tmp_path, monkeypatch):
    """Return a function that writes rows and calls predict --report for them, in an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def call(texts: list[str], labels: list[str], *options: str, out: str = "out", name="new.csv") -> int:
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["内容", "标签"], *zip(texts, labels, strict=True)])
        words = ["--checkpoint", str(model), "--device", "cpu", "--input", name, "--report", out]
        return main([*words, *options])

    return call


def test_report_is_about_the_rows_of_the_file(report, model, capsys, monkeypatch):
    texts = random_texts(60)
    labels = [LABELS[number] for number in np.random.default_rng(0).integers(0, 3, 60)]
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert report(texts, labels, "--label_column", "标签", "--text_column", "内容") == 0
    out = Path("out")
    assert sorted(file.name for file in out.iterdir()) == FILES
    said = capsys.readouterr()
    assert said.out == (out / "report.txt").read_text(encoding="utf-8")
    assert "new.csv: 60 rows" in said.err
    probabilities = of_pipeline(model, texts)
    true, found = np.array([LABELS.index(label) for label in labels]), probabilities.argmax(1)
    written = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert written["accuracy"] == pytest.approx(accuracy_score(true, found))
    assert written["macro_f1"] == pytest.approx(f1_score(true, found, average="macro"))
    loss = log_loss(true, probabilities / probabilities.sum(1, keepdims=True), labels=range(3))
    assert written["loss"] == pytest.approx(loss, rel=1e-3)
    assert written["calibration"]["before"]["loss"] == pytest.approx(written["loss"])
    assert written["calibration"]["rows"] == 60
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "评测报告" in page
    assert "new.csv, line " in page
    with (out / "predictions.csv").open(encoding="utf-8", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [LABELS[label] for label in found]


@pytest.mark.parametrize(
    ("name", "label", "options", "message"),
    [
        ("new.csv", "未知", [], "new.csv, line 2: the model has no label '未知'"),
        ("new.csv", LABELS[0], ["--label_column", "别的"], "别的"),
        ("new.csv", LABELS[0], ["--output", "x.csv"], "remove TEXTs, --output"),
        ("new.csv", LABELS[0], ["--on_bad_row", "keep"], "set --on_bad_row to error or skip"),
        ("new.csv", LABELS[0], ["--report", "used"], "an empty or a new folder is needed"),
        ("new.csv", LABELS[0], ["--data.label_separator", "|"], "are for several labels a row"),
        ("new.txt", LABELS[0], ["--format", "text"], "found plain text"),
    ],
)
def test_what_cannot_be_reported_is_an_error(report, capsys, name, label, options, message):
    Path("used").mkdir()
    Path("used/notes").write_text("mine")
    assert report(["今天真开心"], [label], *options, name=name) == 2
    assert message in capsys.readouterr().err
    assert Path("used/notes").read_text() == "mine"


def test_a_report_that_failed_leaves_nothing_behind(report, capsys):
    assert report(random_texts(2), [LABELS[0], "未知"]) == 2
    assert list(Path("out").iterdir()) == []
    # What `kill -9` leaves
    Path("out/.unfinished").mkdir()
    Path("out/.unfinished/predictions.csv").touch()
    assert report(random_texts(2), LABELS[:2]) == 0
    assert sorted(file.name for file in Path("out").iterdir()) == FILES
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert report(random_texts(2), LABELS[:2], out="other") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "--report other: cannot be written: File too large" in capsys.readouterr().err
    assert list(Path("other").iterdir()) == []


def write_table(path: Path, encoding: str) -> list[list[str]]:
    """Write rows with the columns content, title, label, and return them; only titles tell the label."""
    rows = [line.split("\t") for line in tiny_lines(20)[1:]]
    table = [["content", "title", "label"], *(["的一", title, label] for title, label in rows)]
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file).writerows(table)
    return table


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run on titles, in a CSV file named .txt, in GB18030, with a column of a more usual name too."""
    folder = tmp_path_factory.mktemp("titles")
    write_table(folder / "rows.txt", "gb18030")
    config = {
        "data": {"train": str(folder / "rows.txt"), "test": str(folder / "rows.txt"), "max_length": 16}
        | {"format": "csv", "text_column": "title", "encoding": "gb18030", "cache_dir": str(folder / "c")},
        "model": {"config": SIZES | {"initializer_range": 0.2}},
        "train": {"epochs": 20, "learning_rate": 0.003, "batch_size": 16}
        | {"precision": "fp32", "device": "cpu", "threads": 1},
        "output": {"trackers": [], "dir": str(folder / "checkpoints" / "run")},
    }
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    assert train("single", "", ["--config", str(folder / "config.yaml")]) == 0
    return folder / "checkpoints" / "run"


def accuracy_of(report: Path) -> float:
    return json.loads((report / "report.json").read_text(encoding="utf-8"))["accuracy"]


def test_predict_and_its_report_read_the_file_as_the_newest_run_did(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(run.parents[1])
    options = ["--device", "cpu", "--input", "rows.txt"]
    assert main([*options, "--report", str(tmp_path / "out")]) == 0
    assert accuracy_of(tmp_path / "out") == accuracy_of(run)
    assert "model checkpoints/run\n" in capsys.readouterr().err
    assert main([*options, "--output", str(tmp_path / "labels.csv")]) == 0
    with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["title"].strip() for row in csv.DictReader(file)]
    assert texts == [row[1].strip() for row in write_table(tmp_path / "same.csv", "utf-8")[1:]]


def test_an_exported_folder_reads_files_as_its_run_did(run, tmp_path):
    pytest.importorskip("onnxruntime")
    source, output = run.parents[1] / "rows.txt", tmp_path / "onnx"
    assert export([str(run), "--output", str(output), "--rows", str(source)]) == 0
    options = ["--checkpoint", str(output), "--input", str(source), "--report", str(tmp_path / "out")]
    assert main(options) == 0
    assert accuracy_of(tmp_path / "out") == accuracy_of(run)
    recorded = open_model(output, ComputeOptions()).recorded
    assert recorded.items() >= {"text_column": "title", "encoding": "gb18030", "train": "rows.txt"}.items()


def test_a_column_of_the_run_that_a_file_lacks_is_an_error_that_names_it(run, tmp_path, capsys):
    path = tmp_path / "other.csv"
    path.write_text("content,label\n今天,正面\n", encoding="utf-8")
    options = ["--checkpoint", str(run), "--device", "cpu", "--input", str(path), "--data.encoding", "utf-8"]
    assert main(options) == 2
    assert "there is no text column 'title'" in capsys.readouterr().err
    assert main([*options, "--text_column", "content"]) == 0


def test_single_texts_for_a_model_of_pairs_are_an_error(run, tmp_path, capsys):
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (pairs / path.name).write_bytes(path.read_bytes())
    config = (run / "config.yaml").read_text(encoding="utf-8")
    (pairs / "config.yaml").write_text(
        config.replace("text_pair_column: null", "text_pair_column: content"), encoding="utf-8"
    )
    (tmp_path / "lines.txt").write_text("今天\n", encoding="gb18030")
    for texts in (["今天"], ["--input", str(tmp_path / "lines.txt"), "--format", "text"]):
        assert main(["--checkpoint", str(pairs), "--device", "cpu", *texts]) == 2
        assert "the model was trained on pairs of texts, found single texts" in capsys.readouterr().err
    options = ["--device", "cpu", "--input", str(run.parents[1] / "rows.txt")]
    assert main(["--checkpoint", str(pairs), *options]) == 0
    assert "text 'title', second text 'content'" in capsys.readouterr().err
    assert main(["--checkpoint", str(run), *options, "--text_pair_column", "content"]) == 2
    assert "the model was trained on single texts, found pairs" in capsys.readouterr().err
