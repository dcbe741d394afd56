"""The server's answer with the nearest training rows: python -m pytest
tests/serving/test_served_evidence.py"""

from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
from app.prediction.nearest_rows import NearestRows
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from tests.serving.running_server import ask
from tests.tiny import train_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> OpenedModel:
    """A run of one epoch, which finds its training rows."""
    opened = open_model(train_tiny(tmp_path_factory.mktemp("served"), epochs=1), ComputeOptions("cpu"))
    return replace(opened, nearest=NearestRows(opened))


def test_a_request_gets_as_many_training_rows_as_it_asks_for(model):
    split = model.nearest.split
    text = split.table.text(split.rows[0])
    answer = ask(model, "predict", {"inputs": [text, "好棒"], "evidence": 3, "top_k": 1}).json()
    assert [[*one] for one in answer] == [["labels", "support", "evidence"]] * 2
    first = answer[0]["evidence"]
    assert len(first) == 3
    assert first[0]["text"] == text
    assert first[0]["label"] == model.predictor.label_names[split.labels[0]]
    assert answer[0]["support"] == sum(row["label"] == answer[0]["labels"][0]["label"] for row in first)
    single = ask(model, "predict", {"inputs": text, "evidence": 1}).json()
    assert len(single["labels"]) == 3
    assert [row["text"] for row in single["evidence"]] == [text]


@pytest.mark.parametrize("evidence", [0, 101, "3", True])
def test_a_number_that_makes_no_sense_is_refused(model, evidence):
    answer = ask(model, "predict", {"inputs": "好", "evidence": evidence})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("evidence: Input should be ")


def test_a_server_says_whether_it_has_it_and_how_to_get_it(model):
    without = replace(model, nearest=None)
    assert [ask(of, "info", None).json()["evidence"] for of in (model, without)] == [True, False]
    answer = ask(without, "predict", {"inputs": "好", "evidence": 1})
    assert answer.status_code == 422
    assert "started with --evidence" in answer.json()["error"]
