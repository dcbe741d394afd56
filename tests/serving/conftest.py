"""A model to serve, and a client of its server."""

import pytest

from app.prediction.open_model import ComputeOptions, OpenedModel, open_model


@pytest.fixture(scope="session")
def model(checkpoint) -> OpenedModel:
    return open_model(checkpoint, ComputeOptions("cpu"))


@pytest.fixture(scope="session")
def client(model):
    pytest.importorskip("fastapi")
    import httpx2

    from tests.serving.running_server import OPTIONS, running

    with running(model, OPTIONS) as address, httpx2.Client(base_url=address, timeout=60) as client:
        yield client
