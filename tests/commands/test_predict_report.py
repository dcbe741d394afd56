"""predict --report on rows with labels: python -m pytest tests/commands/test_predict_report.py"""

import csv
import json
import resource
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, log_loss

from tests.saved_classifier import LABELS, of_pipeline, random_texts, save_checkpoint
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
