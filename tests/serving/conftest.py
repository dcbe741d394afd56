"""A model to serve."""

import pytest

from app.prediction.open_model import ComputeOptions, OpenedModel, open_model


@pytest.fixture(scope="session")
def model(checkpoint) -> OpenedModel:
    return open_model(checkpoint, ComputeOptions("cpu"))
