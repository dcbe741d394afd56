"""The load benchmark finds wrong answers: python -m pytest tests/benchmarks/test_serving.py -m "" """

import asyncio

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("aiohttp")
pytest.importorskip("onnxruntime")

from app.prediction.open_model import ComputeOptions, open_model
from app.serving.application import ServeOptions
from benchmarks.serving.client import ask
from tests.saved_classifier import as_rows, random_texts, save_checkpoint
from tests.serving.running_server import running


@pytest.mark.slow
def test_the_client_counts_answers_that_are_of_another_text(tmp_path):
    opened = open_model(save_checkpoint(tmp_path), ComputeOptions("cpu"))
    texts, names = random_texts(12), opened.predictor.label_names
    wanted = [
        dict(zip(names, prediction.probabilities.tolist(), strict=True))
        for prediction in opened.predictor.predict(as_rows(texts))
    ]
    job = {"clients": 3, "seconds": 0.5, "texts": texts, "wanted": wanted, "tolerance": 1e-4}
    with running(opened, ServeOptions()) as address:
        job["port"] = int(address.rpartition(":")[2])
        right = asyncio.run(ask(job))
        swapped = asyncio.run(ask(job | {"wanted": wanted[1:] + wanted[:1]}))
    assert right["requests"] >= 3
    assert (right["wrong"], right["refused"]) == (0, 0)
    assert swapped["wrong"] > swapped["requests"] / 2
