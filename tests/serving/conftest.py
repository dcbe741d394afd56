"""Models to serve, and a client of the server of one."""

import pytest

from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from tests.saved_classifier import NUMBER, save_checkpoint, several_labels

CPU = ComputeOptions("cpu")


@pytest.fixture(scope="session")
def model(checkpoint) -> OpenedModel:
    return open_model(checkpoint, CPU)


@pytest.fixture(scope="session")
def client(model):
    pytest.importorskip("fastapi")
    import httpx2

    from tests.serving.running_server import HOOKS, OPTIONS, running

    with (
        running(model, OPTIONS) as address,
        httpx2.Client(base_url=address, timeout=60, event_hooks=HOOKS) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def several(tmp_path_factory) -> OpenedModel:
    """A model with any number of labels a row."""
    thresholds = several_labels(0.51, 0.45, 0.57)
    return open_model(save_checkpoint(tmp_path_factory.mktemp("sets"), **thresholds), CPU)


@pytest.fixture(scope="session")
def number(tmp_path_factory) -> OpenedModel:
    return open_model(save_checkpoint(tmp_path_factory.mktemp("numbers"), **NUMBER), CPU)
