"""The server's answer with the nearest training rows: python -m pytest
tests/serving/test_served_evidence.py"""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
import httpx2

from app.config.command_line import load_config
from app.prediction.nearest_rows import NearestRows
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from app.run.entry import work
from app.serving.service import ServeOptions, Service
from tests.serving.running_server import running
from tests.tiny import SIZES, write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> OpenedModel:
    """A run of one epoch, which finds its training rows."""
    folder: Path = tmp_path_factory.mktemp("served")
    sizes = [f"--model.config.{name}={value}" for name, value in SIZES.items()]
    files = [f"--data.train={write_tiny(folder / 'rows.tsv')}", f"--data.cache_dir={folder / 'cache'}"]
    output = [f"--output.dir={folder / 'run'}", "--output.trackers=[]", "--train.epochs=1"]
    settings = [*files, *output, *sizes, "--data.max_length=32", "--train.precision=fp32"]
    assert work(load_config(settings), "single") == 0
    opened = open_model(folder / "run", ComputeOptions("cpu"))
    return replace(opened, nearest=NearestRows(opened))


def ask(model: OpenedModel, body: dict) -> httpx2.Response:
    with running(Service(lambda: model, ServeOptions())) as address:
        return httpx2.post(f"{address}/predict", json=body, timeout=60)


def test_a_request_gets_as_many_training_rows_as_it_asks_for(model):
    split = model.nearest.split
    text = split.table.text(split.rows[0])
    answer = ask(model, {"inputs": [text, "好棒"], "evidence": 3, "top_k": 1}).json()
    assert [[*one] for one in answer] == [["labels", "support", "evidence"]] * 2
    first = answer[0]["evidence"]
    assert len(first) == 3
    assert first[0]["text"] == text
    assert first[0]["label"] == model.predictor.label_names[split.labels[0]]
    assert answer[0]["support"] == sum(row["label"] == answer[0]["labels"][0]["label"] for row in first)
    single = ask(model, {"inputs": text, "evidence": 1}).json()
    assert len(single["labels"]) == 3
    assert [row["text"] for row in single["evidence"]] == [text]


@pytest.mark.parametrize("evidence", [0, 101, "3", True])
def test_a_number_that_makes_no_sense_is_refused(model, evidence):
    answer = ask(model, {"inputs": "好", "evidence": evidence})
    assert answer.status_code == 422
    assert "evidence must be a whole number from 1 to 100" in answer.json()["error"]


def test_the_page_shows_it_where_the_server_has_it(model):
    for opened in (model, replace(model, nearest=None)):
        assert Service(lambda opened=opened: opened, ServeOptions()).info()["evidence"] == (opened is model)


def test_a_server_without_evidence_says_how_to_get_it(model):
    answer = ask(replace(model, nearest=None), {"inputs": "好", "evidence": 1})
    assert answer.status_code == 422
    assert "started with --evidence" in answer.json()["error"]
