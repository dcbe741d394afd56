"""Models to serve, and a client of the server of one."""

import json

import pytest

from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from tests.saved_classifier import LABELS, save_checkpoint

CPU = ComputeOptions("cpu")


@pytest.fixture(scope="session")
def model(checkpoint) -> OpenedModel:
    return open_model(checkpoint, CPU)


@pytest.fixture(scope="session")
def client(model):
    pytest.importorskip("fastapi")
    import httpx2

    from tests.serving.running_server import OPTIONS, running

    with running(model, OPTIONS) as address, httpx2.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def several(tmp_path_factory) -> OpenedModel:
    """A model with any number of labels a row."""
    from tests.multi_label_runs import write_thresholds

    folder = tmp_path_factory.mktemp("sets") / "model"
    save_checkpoint(folder, problem_type="multi_label_classification")
    write_thresholds(folder, [0.51, 0.45, 0.57], LABELS, chosen_on="dev", rows=10)
    return open_model(folder, CPU)


@pytest.fixture(scope="session")
def number(tmp_path_factory) -> OpenedModel:
    """A model that gives a number."""
    folder = tmp_path_factory.mktemp("numbers") / "model"
    names = {"num_labels": 1, "id2label": {0: "score"}, "label2id": {"score": 0}}
    save_checkpoint(folder, problem_type="regression", **names)
    (folder / "decision.json").write_text(json.dumps({"mean": 50.0, "scale": 20.0}), encoding="utf-8")
    return open_model(folder, CPU)
