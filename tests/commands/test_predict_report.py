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


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = save_checkpoint(tmp_path_factory.mktemp("run"))
    (folder / "decision.json").write_text(json.dumps({"temperature": 2.5, "rows": 60}))
    return folder


def write_rows(path: Path, texts: list[str], labels: list[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["内容", "标签"])
        writer.writerows(zip(texts, labels, strict=True))
    return path


def test_report_is_about_the_rows_of_the_file(model, tmp_path, capsys, monkeypatch):
    texts = random_texts(60)
    labels = [LABELS[number] for number in np.random.default_rng(0).integers(0, 3, 60)]
    path = write_rows(tmp_path / "new.csv", texts, labels)
    out = tmp_path / "out"
    options = ["--label_column", "标签", "--text_column", "内容", "--report", str(out)]
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert main(["--checkpoint", str(model), "--device", "cpu", "--input", str(path), *options]) == 0
    assert {file.name for file in out.iterdir()} == {
        "predictions.csv",
        "report.html",
        "report.json",
        "report.txt",
    }
    said = capsys.readouterr()
    assert said.out == (out / "report.txt").read_text(encoding="utf-8")
    assert "new.csv: 60 rows" in said.err
    probabilities = of_pipeline(model, texts)
    true = np.array([LABELS.index(label) for label in labels])
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["accuracy"] == pytest.approx(accuracy_score(true, probabilities.argmax(1)))
    assert report["macro_f1"] == pytest.approx(f1_score(true, probabilities.argmax(1), average="macro"))
    assert report["loss"] == pytest.approx(
        log_loss(true, probabilities / probabilities.sum(1, keepdims=True), labels=range(3)), rel=1e-3
    )
    assert report["calibration"]["before"]["loss"] == pytest.approx(report["loss"])
    assert report["calibration"]["rows"] == 60
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "评测报告" in page
    assert f"{path}, line " in page
    with (out / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [LABELS[label] for label in probabilities.argmax(1)]


@pytest.mark.parametrize(
    ("name", "label", "options", "message"),
    [
        ("new.csv", "未知", [], "new.csv, line 2: the model has no label '未知'"),
        ("new.csv", LABELS[0], ["--label_column", "别的"], "别的"),
        ("new.csv", LABELS[0], ["--output", "x.csv"], "remove --output"),
        ("new.csv", LABELS[0], ["--report", "used"], "an empty or a new folder is needed"),
        ("new.txt", LABELS[0], ["--format", "text"], "found plain text"),
    ],
)
def test_what_cannot_be_reported_is_an_error(
    model, tmp_path, monkeypatch, capsys, name, label, options, message
):
    monkeypatch.chdir(tmp_path)
    path = write_rows(tmp_path / name, ["今天真开心"], [label])
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").write_text("mine")
    options = options if "--report" in options else [*options, "--report", "out"]
    assert main(["--checkpoint", str(model), "--device", "cpu", "--input", str(path), *options]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "used" / "notes").read_text() == "mine"


def test_a_report_that_failed_leaves_nothing_behind(model, tmp_path, capsys):
    path, out = tmp_path / "new.csv", tmp_path / "out"
    words = ["--checkpoint", str(model), "--device", "cpu", "--input", str(path), "--report", str(out)]
    write_rows(path, random_texts(2), [LABELS[0], "未知"])
    assert main(words) == 2
    assert list(out.iterdir()) == []
    # What `kill -9` leaves
    (out / ".unfinished").mkdir()
    (out / ".unfinished" / "predictions.csv").touch()
    write_rows(path, random_texts(2), LABELS[:2])
    assert main(words) == 0
    assert sorted(file.name for file in out.iterdir()) == [
        *("predictions.csv", "report.html", "report.json", "report.txt")
    ]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert main([*words[:-1], str(tmp_path / "other")]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"--report {tmp_path}/other: cannot be written: File too large" in capsys.readouterr().err
    assert list((tmp_path / "other").iterdir()) == []


def test_labels_without_a_report_and_a_report_without_a_file_are_errors(model, capsys):
    assert main(["--checkpoint", str(model), "--label_column", "标签", "好"]) == 2
    assert "--label_column is for --report" in capsys.readouterr().err
    assert main(["--checkpoint", str(model), "--report", "out", "好"]) == 2
    assert "--report needs a file" in capsys.readouterr().err
