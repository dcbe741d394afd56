"""Batches of rows with several windows, and batches that are filled up."""

import json

import numpy as np
import pytest
import torch

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
    rows = [[" ".join(text), "xy"[at % 2]] for at, text in enumerate(texts)]
    (folder / "rows.json").write_text(json.dumps(rows))
    files = {"train": str(folder / "rows.json"), "cache_dir": str(folder / "cache")}
    data = DataConfig(**files, dev_size=0, test_size=0, max_length=12, long="windows", max_windows=5)
    dataset = open_dataset(data)
    return dataset.splits["train"], open_stores(dataset, tokenizer, data)["train"]


@pytest.mark.parametrize(("packed", "varlen"), [(False, False), (True, False), (True, True)])
def test_logits_and_gradients_are_those_of_the_means_of_windows(windows, packed, varlen):
    split, store = windows
    model = tiny_model()
    positions = np.array([2, 0, 5, 4])
    loader = Loader(split, store, model.layout(packed, varlen))
    batch = loader.load(positions, CPU)
    logits = batch.row_outputs(model(**batch.inputs))
    of_rows = [
        [model(torch.from_numpy(window.astype(np.int64))[None])[0] for window in store.windows(row)]
        for row in split.rows[positions]
    ]
    assert loader.windows()[positions].tolist() == [len(of_windows) for of_windows in of_rows]
    one_by_one = torch.stack([torch.stack(of_windows).mean(0) for of_windows in of_rows])
    torch.testing.assert_close(logits, one_by_one, rtol=1e-5, atol=1e-6)
    labels = torch.tensor([0, 1, 2, 1])
    found, wanted = (
        torch.autograd.grad(torch.nn.functional.cross_entropy(rows, labels), model.model.classifier.weight)[0]
        for rows in (logits, one_by_one)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "long", "multiple"), [("bf16", "cut", 32), ("bf16", "windows", 1), ("fp32", "cut", 1)]
)
def test_a_run_fills_its_batches_up_in_bf16_on_the_cpu(tmp_path, precision, long, multiple):
    files = {"train": str(write_tiny(tmp_path / "rows.tsv")), "cache_dir": str(tmp_path / "cache")}
    train = TrainConfig(precision=precision, device="cpu")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    model = ModelConfig("random", config=sizes)
    with Single(Config(DataConfig(**files, long=long), model, train)) as mode:
        for loader in build(mode.config, mode).loaders.values():
            positions = np.arange(min(5, len(loader)))
            tokens = loader.load(positions, CPU).inputs["input_ids"].shape[1]
            real = loader.lengths(positions)
            assert tokens == -(-real.sum() // multiple) * multiple
