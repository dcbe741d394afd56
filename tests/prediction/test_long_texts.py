"""Prediction on long texts, by torch, ONNX Runtime and the server: python -m pytest
tests/prediction/test_long_texts.py"""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from app.data.long_texts import LongTexts
from app.prediction.open_model import ComputeOptions, open_model
from app.prediction.predictor import Predictor
from app.tasks.task import softmax as probabilities
from tests.saved_classifier import as_rows, random_texts, save_checkpoint

CPU = ComputeOptions("cpu")
WINDOWS = {"max_length": 20, "long": "windows", "max_windows": 6}


def run_folder(folder: Path, settings: dict) -> Path:
    """Save a classifier with the settings of a run that read long texts in some way."""
    save_checkpoint(folder)
    (folder / "config.yaml").write_text(yaml.safe_dump({"data": settings}))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return run_folder(tmp_path_factory.mktemp("windows") / "run", WINDOWS)


def by_hand(predictor: Predictor, text: str) -> np.ndarray:
    """Return the probabilities of a text, whose windows are computed one by one."""
    predictor.tokenizer.no_truncation()
    first, *ids, last = predictor.tokenizer.encode(text).ids
    count = min(6, 1 + max(0, -(-(len(ids) - 18) // 13)))
    windows = [torch.tensor([[first, *ids[at * 13 : at * 13 + 18], last]]) for at in range(count)]
    with torch.inference_mode():
        logits = torch.cat([predictor.runtime.model(window) for window in windows]).numpy()
    return probabilities(logits.mean(axis=0, keepdims=True))[0]


def test_logits_are_the_means_of_those_of_the_windows(folder):
    opened = open_model(folder, CPU)
    assert opened.predictor.long == LongTexts("windows", 6)
    texts, done = random_texts(30), []
    found = [
        p.probabilities for p in opened.predictor.predict(as_rows(texts), chunk_rows=13, on_batch=done.append)
    ]
    assert sum(done) == 30
    reference = open_model(folder, CPU).predictor
    np.testing.assert_allclose(found, [by_hand(reference, text) for text in texts], atol=1e-5)
    assert np.ptp(found, axis=0).max() > 0.1


def test_head_and_tail(tmp_path):
    predictor = open_model(
        run_folder(tmp_path / "run", {"max_length": 20, "long": "head_tail"}), CPU
    ).predictor
    text = "今天真开心气死我了不好喜欢讨厌电影手机质量差评快递"
    [ids] = predictor.tokenize(as_rows([text])).rows
    assert "".join(map(predictor.tokenizer.id_to_token, ids[1:-1])) == text[:4] + text[-14:]
    assert len(list(predictor.predict(as_rows([text * 4000, "好"])))) == 2


def test_exported_folders_read_texts_as_the_run_does(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.verbs import export

    (tmp_path / "texts.txt").write_text("\n".join(random_texts(40)), encoding="utf-8")
    output = tmp_path / "exported"
    assert export([str(folder), "--output", str(output), "--rows", str(tmp_path / "texts.txt")]) == 0
    rows = as_rows(random_texts(20))
    wanted, found = (
        [p.probabilities for p in open_model(place, CPU).predictor.predict(rows)]
        for place in (folder, output)
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
