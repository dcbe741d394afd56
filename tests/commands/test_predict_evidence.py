"""predict --evidence: the nearest training rows beside each label: python -m pytest
tests/commands/test_predict_evidence.py"""

import csv
import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from app.prediction.labelled_rows import mark_of
from tests.saved_classifier import save_checkpoint
from tests.tiny import tiny_lines, train_tiny
from tests.verbs import predict as main


def written_rows(path: Path) -> list[dict]:
    if path.suffix == ".xlsx":
        return pd.read_excel(path, engine="calamine").to_dict("records")
    with path.open(encoding="utf-8", newline="") as file:
        return [*map(json.loads, file)] if path.suffix == ".jsonl" else [*csv.DictReader(file)]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of two epochs on most of 60 rows."""
    return train_tiny(tmp_path_factory.mktemp("evidence"), epochs=2)


def predict(run: Path, *arguments: str | Path) -> int:
    return main(["--checkpoint", str(run), "--device", "cpu", *map(str, arguments)])


@pytest.mark.parametrize("format", ["csv", "jsonl", "xlsx"])
def test_a_training_text_has_itself_as_evidence(run, tmp_path, format):
    for name in ("xlsxwriter", "python_calamine") if format == "xlsx" else ():
        pytest.importorskip(name, reason="needs the packages of Excel files: requirements/excel.txt")
    rows = [line.split("\t") for line in tiny_lines(20)[1:]]
    (tmp_path / "texts.txt").write_text("\n".join(text for text, _ in rows) + "\n", encoding="utf-8")
    target = tmp_path / f"out.{format}"
    assert predict(run, "--input", tmp_path / "texts.txt", "--output", target, "--evidence", "3") == 0
    written = written_rows(target)
    assert [*written[0]][-2:] == ["support", "evidence"]
    same = 0
    for (text, label), row in zip(rows, written, strict=True):
        evidence = row["evidence"] if format == "jsonl" else json.loads(row["evidence"])
        similarities = [one["similarity"] for one in evidence]
        assert similarities == sorted(similarities, reverse=True)
        assert len(evidence) == 3
        assert int(row["support"]) == sum(one["label"] == row["label"] for one in evidence)
        if evidence[0]["text"] == text:
            same += 1
            assert evidence[0]["label"] == label
            assert similarities[0] == pytest.approx(1, abs=1e-3)
            assert "rows.tsv, line " in evidence[0]["where"]
    # The others are of dev and test
    assert same >= 40
    assert [*run.parent.joinpath("cache").glob("vectors-*/vectors.npy")]


def test_lines_for_people_show_it_too(run, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert predict(run, "好棒美赞", "--evidence", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["support", "evidence", "evidence"]


def test_the_report_marks_errors_with_a_near_copy_of_another_label(run, tmp_path):
    texts = [line.split("\t") for line in tiny_lines(20)[1:]]
    wrong = [(text, "正面" if label == "负面" else "负面") for text, label in texts if label != "中性"]
    table = "".join(f"{text}\t{label}\n" for text, label in wrong)
    (tmp_path / "new.tsv").write_text(f"text\tlabel\n{table}", encoding="utf-8")
    report = tmp_path / "report"
    assert predict(run, "--input", tmp_path / "new.tsv", "--report", report, "--evidence", "3") == 0
    marked = json.loads((report / "report.json").read_text("utf-8"))["evidence"]
    rows = written_rows(report / "predictions.csv")
    marks = [
        mark_of(row["text"], label, row["label"], json.loads(row["evidence"]))
        for row, (_, label) in zip(rows, wrong, strict=True)
    ]
    counts = {name: marks.count(name) for name in marked}
    assert {name: found["rows"] for name, found in marked.items()} == counts
    assert counts["mend"] > 10
    said = f"{counts['mend']} errors with a near copy in train"
    assert said in (report / "report.txt").read_text("utf-8")
    assert "in train:" in (report / "report.html").read_text("utf-8")


def test_marks():
    near, other = {"text": "今天的天气真好啊", "label": "好"}, {"text": "快递太慢了", "label": "坏"}
    assert mark_of("今天的天气真好", "好", "好", [near, other]) is None
    assert mark_of("今天的天气真好", "坏", "坏", [near]) == "unsupported"
    assert mark_of("今天的天气真好", "坏", "好", [near, other]) == "mend"
    assert mark_of("今天的天气真好", "好", "坏", [near, other]) is None
    assert mark_of("物流", "坏", "好", [near, other]) is None


@pytest.mark.parametrize("count", ["0", "-1", "101", "many"])
def test_a_number_that_makes_no_sense(run, capsys, count):
    assert predict(run, "好", f"--evidence={count}") == 2
    assert f"must be from 1 to 100, found {count}" in capsys.readouterr().err


def test_a_checkpoint_that_is_no_run_has_no_evidence(tmp_path, capsys):
    assert predict(save_checkpoint(tmp_path / "model"), "好", "--evidence", "1") == 2
    assert "--evidence needs the data of a run" in capsys.readouterr().err
