"""Above 50 labels files have the most probable ones in one column: python -m pytest
tests/tasks/test_many_labels.py"""

import csv
import json

import numpy as np
import pytest

from app.report.logits_file import write_predictions
from app.tasks import open_task
from chinese_text_classifier import load
from tests.saved_classifier import save_checkpoint
from tests.tiny import open_tiny
from tests.verbs import predict

NAMES = [f"类{number}" for number in range(60)]


@pytest.mark.parametrize("output", ["o.csv", "o.jsonl"])
def test_predictions_have_the_ten_most_probable_labels(tmp_path, output):
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: at for at, name in enumerate(NAMES)}}
    checkpoint = save_checkpoint(tmp_path / "model", num_labels=60, **labels)
    (tmp_path / "rows.csv").write_text("text\n今天真开心\n差\n", encoding="utf-8")
    files = ["--input", str(tmp_path / "rows.csv"), "--output", str(tmp_path / output)]
    assert predict(["--checkpoint", str(checkpoint), "--device", "cpu", *files]) == 0
    lines = (tmp_path / output).read_text(encoding="utf-8").splitlines()
    if output == "o.jsonl":
        rows = list(map(json.loads, lines))
    else:
        rows = [row | {"most_probable": json.loads(row["most_probable"])} for row in csv.DictReader(lines)]
    probabilities = load(checkpoint, device="cpu").predict_proba(["今天真开心", "差"])
    for row, known in zip(rows, probabilities, strict=True):
        assert [*row][-3:] == ["label", "probability", "most_probable"]
        first = row["most_probable"]
        assert [one["label"] for one in first] == [NAMES[at] for at in np.argsort(-known)[:10]]
        assert [one["probability"] for one in first] == pytest.approx(sorted(known)[:-11:-1], abs=1e-6)
        assert first[0]["label"] == row["label"]


@pytest.mark.parametrize(
    ("name", "number"), [("single_label", 60), ("multi_label", 60), ("single_label", 50)]
)
def test_the_rows_of_a_report_have_them_too(tmp_path, name, number):
    names = NAMES[:number]
    split = open_tiny(tmp_path)[0].splits["test"]
    if name == "multi_label":
        split = type(split)(split.name, split.table, split.rows, np.eye(60)[split.labels])
    task, logits = open_task(name, names), np.random.default_rng(0).normal(size=(len(split), number))
    write_predictions(tmp_path / "predictions.csv", split, logits, task)
    rows = list(csv.DictReader((tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()))
    if number == 50:
        assert list(rows[0])[5:] == [f"p_{name}" for name in names]
        return
    assert list(rows[0])[5:] == ["most_probable"]
    for row, known in zip(rows, task.probabilities(logits), strict=True):
        first = json.loads(row["most_probable"])
        assert [one["label"] for one in first] == [names[at] for at in np.argsort(-known)[:10]]
