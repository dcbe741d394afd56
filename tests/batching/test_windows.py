"""The logits of a row are the mean of its windows': python -m pytest tests/batching/test_windows.py"""

import json

import numpy as np
import pytest
import torch

from app.batching.loader import Loader, means_of_rows
from app.batching.plan import evaluation_batches
from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import open_dataset
from app.data.tokenizer import load_tokenizer
from app.training.build import open_stores
from tests.tiny import tiny_model

CPU = torch.device("cpu")
TEXTS = ["abc", "abcdefghijklmnop" * 2, "ponmlkjihg" * 9, "a", "fedcba" * 4, "abcd" * 5]


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """A split, and the token store of its rows of one to five windows."""
    folder = tmp_path_factory.mktemp("windows")
    rows = [[" ".join(text), "xy"[at % 2]] for at, text in enumerate(TEXTS)]
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop", "##a"])
    )
    data = DataConfig(
        train=str(folder / "rows.json"),
        cache_dir=str(folder / "cache"),
        dev_size=0,
        test_size=0,
        max_length=12,
        long="windows",
        max_windows=5,
    )
    dataset = open_dataset(data)
    tokenizer = load_tokenizer(ModelConfig(vocab_file=str(folder / "vocab.txt")), dataset, 12, data.cache_dir)
    return dataset.splits["train"], open_stores(dataset, tokenizer, data)["train"]


@pytest.mark.parametrize(("packed", "varlen"), [(False, False), (True, False), (True, True)])
def test_logits_and_gradients_are_those_of_the_means(windows, packed, varlen):
    split, store = windows
    model = tiny_model()
    loader = Loader(split, store, model.layout(packed, varlen))
    positions = np.array([2, 0, 5, 4])
    batch = loader.load(positions, CPU)
    logits = batch.row_outputs(model(**batch.inputs))
    one_by_one = [
        torch.stack(
            [model(torch.from_numpy(window.astype(np.int64))[None])[0] for window in store.windows(row)]
        ).mean(0)
        for row in split.rows[positions]
    ]
    torch.testing.assert_close(logits, torch.stack(one_by_one), rtol=1e-5, atol=1e-6)
    labels = torch.tensor([0, 1, 2, 1])
    found, wanted = (
        torch.autograd.grad(torch.nn.functional.cross_entropy(rows, labels), model.model.classifier.weight)[0]
        for rows in (logits, torch.stack(one_by_one))
    )
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_one_window_keeps_its_bits_and_a_part_without_rows_has_one(windows):
    split, store = windows
    outputs = torch.randn(3, 4)
    assert torch.equal(means_of_rows(outputs, torch.ones(3, dtype=torch.int64)), outputs)
    batch = Loader(split, store, tiny_model().layout(True)).load(np.empty(0, np.int64), CPU)
    assert batch.windows_per_row.tolist() == [1]
    assert (len(batch.labels), len(batch.positions)) == (0, 0)


@pytest.mark.parametrize("num_shards", [1, 2, 3])
def test_evaluation_batches_are_bounded_by_windows(windows, num_shards):
    split, store = windows
    loader = Loader(split, store, tiny_model().layout(True))
    counts = loader.windows()
    shards = [evaluation_batches(loader.lengths(), 6, num_shards, i, counts) for i in range(num_shards)]
    assert len({len(batches) for batches in shards}) == 1
    batches = [batch for batches in shards for batch in batches]
    assert sorted(np.concatenate(batches)) == list(range(len(split)))
    assert all(len(batch) <= 1 or counts[batch].sum() <= 6 for batch in batches)
    assert max(counts[batch].sum() for batch in batches) == 6
