"""Above 50 labels files have the most probable ones in one column: python -m pytest
tests/tasks/test_many_labels.py"""

import csv
import json

import numpy as np
import pytest
from pyarrow import parquet, table

from app.report.logits_file import write_predictions
from app.tasks import task_class
from chinese_text_classifier import load
from tests.saved_classifier import save_checkpoint
from tests.tiny import open_tiny
from tests.verbs import predict

NAMES = [f"类{number}" for number in range(60)]
PATHS = [f"上{number % 7}-{name}" for number, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: at for at, name in enumerate(NAMES)}}
    return save_checkpoint(tmp_path_factory.mktemp("many"), num_labels=60, **labels)


@pytest.mark.parametrize("output", ["o.csv", "o.jsonl", "o.parquet"])
def test_predictions_have_the_ten_most_probable_labels(tmp_path, checkpoint, output):
    source = tmp_path / "rows.parquet"
    parquet.write_table(table({"text": ["今天真开心", "差"]}), source)
    files = ["--input", str(source), "--output", str(tmp_path / output)]
    assert predict(["--checkpoint", str(checkpoint), "--device", "cpu", *files]) == 0
    if output == "o.parquet":
        rows = parquet.read_table(tmp_path / output).to_pylist()
    elif output == "o.csv":
        with (tmp_path / output).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        rows = [row | {"most_probable": json.loads(row["most_probable"])} for row in rows]
    else:
        rows = list(map(json.loads, (tmp_path / output).read_text(encoding="utf-8").splitlines()))
    model = load(checkpoint, device="cpu")
    probabilities = model.predict_proba(["今天真开心", "差"])
    for row, known in zip(rows, probabilities, strict=True):
        assert list(row) == ["text", "label", "probability", "most_probable"]
        first = row["most_probable"]
        assert [one["label"] for one in first] == [NAMES[at] for at in np.argsort(-known)[:10]]
        assert [one["probability"] for one in first] == pytest.approx(sorted(known)[:-11:-1], abs=1e-6)
    table_rows = model.predict_table(["今天真开心", "差"]).to_pylist()
    assert [row["most_probable"][0]["label"] for row in table_rows] == [row["label"] for row in table_rows]


@pytest.mark.parametrize(
    ("name", "names"),
    [("single_label", NAMES), ("multi_label", NAMES), ("single_path", PATHS), ("single_label", NAMES[:50])],
)
def test_the_rows_of_a_report_have_them_too(tmp_path, name, names):
    dataset, _tokenizer, _stores = open_tiny(tmp_path)
    split = dataset.splits["test"]
    task = task_class(name)(names)
    logits = np.random.default_rng(0).normal(size=(len(split), len(names)))
    if name == "multi_label":
        split = type(split)(split.name, split.table, split.rows, np.eye(60)[split.labels])
    write_predictions(tmp_path / "predictions.csv", split, logits, task)
    with (tmp_path / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if len(names) == 50:
        assert list(rows[0])[5:] == [f"p_{name}" for name in names]
        return
    assert list(rows[0])[5:] == ["most_probable"]
    wanted = task.probabilities(logits, calibrated=False)
    for row, known in zip(rows, wanted, strict=True):
        first = json.loads(row["most_probable"])
        assert [one["label"] for one in first] == [names[at] for at in np.argsort(-known)[:10]]
