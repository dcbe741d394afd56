"""Batches of rows with several windows, and batches that are filled up."""

import json
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from app.batching.loader import Loader
from app.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from app.data.dataset import open_dataset
from app.modes.mode import Single
from app.training.build import build, open_stores
from tests.tiny import tiny_model, tiny_tokenizer, write_tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """A split, and the token store of its rows of one to five windows."""
    folder = tmp_path_factory.mktemp("windows")
    tokenizer = tiny_tokenizer()
    texts = ["abc", "abcdefghijklmnop" * 2, "ponmlkjihg" * 9, "a", "fedcba" * 4, "abcd" * 5]
    labels = ["x", "y", "x", "y", "x", "y"]
    rows = [[" ".join(text), label] for text, label in zip(texts, labels, strict=True)]
    file = folder / "rows.json"
    file.write_text(json.dumps(rows))
    data = DataConfig(
        train=str(file),
        cache_dir=str(folder / "cache"),
        dev_size=0,
        test_size=0,
        max_length=12,
        long="windows",
        max_windows=5,
    )
    dataset = open_dataset(data)
    return dataset.splits["train"], open_stores(dataset, tokenizer, data)["train"]


def mean_logits(model, windows: list[np.ndarray]) -> torch.Tensor:
    """Return the mean of the logits of windows that the model reads one by one, (num_labels,)."""
    logits = []
    for window in windows:
        tokens = torch.from_numpy(window.astype(np.int64))
        logits.append(model(tokens[None])[0])
    return torch.stack(logits).mean(0)


@pytest.mark.parametrize(("packed", "varlen"), [(False, False), (True, False), (True, True)])
def test_logits_and_gradients_are_those_of_the_means_of_windows(windows, packed, varlen):
    split, store = windows
    model = tiny_model()
    positions = np.array([2, 0, 5, 4])
    loader = Loader(split, store, model.layout(packed, varlen))
    batch = loader.load(positions, CPU)
    logits = batch.row_outputs(model(**batch.inputs))
    row_windows = [store.windows(row) for row in split.rows[positions]]
    assert loader.windows()[positions].tolist() == [len(windows) for windows in row_windows]
    expected_logits = torch.stack([mean_logits(model, windows) for windows in row_windows])
    torch.testing.assert_close(logits, expected_logits, rtol=1e-5, atol=1e-6)
    labels = torch.tensor([0, 1, 2, 1])
    weight = model.model.classifier.weight
    [gradient] = torch.autograd.grad(cross_entropy(logits, labels), weight)
    [expected_gradient] = torch.autograd.grad(cross_entropy(expected_logits, labels), weight)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "long", "multiple"), [("bf16", "cut", 32), ("bf16", "windows", 1), ("fp32", "cut", 1)]
)
def test_a_run_fills_its_batches_up_in_bf16_on_the_cpu(tmp_path, precision, long, multiple):
    rows = write_tiny(tmp_path / "rows.tsv")
    data = DataConfig(train=str(rows), cache_dir=str(tmp_path / "cache"), long=long)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    model = ModelConfig("random", config=sizes)
    train = TrainConfig(precision=precision, device="cpu")
    with Single(Config(data, model, train)) as mode:
        for loader in build(mode.config, mode).loaders.values():
            positions = np.arange(min(5, len(loader)))
            num_tokens = loader.load(positions, CPU).inputs["input_ids"].shape[1]
            num_row_tokens = loader.lengths(positions).sum()
            assert num_tokens == math.ceil(num_row_tokens / multiple) * multiple
