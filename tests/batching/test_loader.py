"""Padded and packed batches, and rows of several windows: python -m pytest tests/batching/test_loader.py"""

import json

import numpy as np
import pytest
import torch

from app.batching.loader import Layout, Loader, collate, evaluation_batches, means_of_rows
from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import open_dataset
from app.data.tokens import load_tokenizer
from app.training.build import open_stores
from tests.tiny import tiny_model, token_rows

CPU = torch.device("cpu")
TEXTS = ["abc", "abcdefghijklmnop" * 2, "ponmlkjihg" * 9, "a", "fedcba" * 4, "abcd" * 5]
# Mixed; equal, also a multiple of 8; one row; more tokens than positions
LENGTHS = [[5, 9, 3, 20, 2, 7, 32], [6, 6, 6], [16, 16], [11], [2], [30] * 5 + [2] * 9]


def second_starts(lengths: list[int]) -> list[int]:
    """Second texts that start anywhere, also after the end: then the row has none."""
    return [min(length, 1 + 3 * index) for index, length in enumerate(lengths)]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_padded_tensors(lengths):
    rows = token_rows(lengths)
    batch = collate(rows, second_starts(lengths), Layout(packed=False, pad_id=4))
    shape = (len(rows), -(-max(lengths) // 8) * 8)
    for name, tensor in batch.items():
        assert (tuple(tensor.shape), tensor.dtype) == (shape, torch.int64), name
    assert batch["attention_mask"].sum(1).tolist() == lengths
    for index, row in enumerate(rows):
        assert batch["input_ids"][index, : len(row)].tolist() == row.tolist()
        assert set(batch["input_ids"][index, len(row) :].tolist()) <= {4}
        types = batch["token_type_ids"][index].tolist()
        start = second_starts(lengths)[index]
        assert types == [0] * start + [1] * (len(row) - start) + [0] * (shape[1] - len(row))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_packed_tensors(lengths):
    rows = token_rows(lengths)
    batch = collate(rows, second_starts(lengths), Layout(packed=True, first_position=2))
    total = sum(lengths)
    starts = np.cumsum([0, *lengths])
    for name in ("input_ids", "position_ids", "token_type_ids"):
        assert (tuple(batch[name].shape), batch[name].dtype) == ((1, total), torch.int64), name
    assert batch["first_tokens"].tolist() == starts[:-1].tolist()
    shapes = batch["group_shapes"]
    assert sum(count for count, _, _ in shapes) == len(rows)
    masks = batch["key_mask"].split([count * longest for count, longest, _ in shapes])
    found = []
    for (count, longest, has_padding), mask in zip(shapes, masks, strict=True):
        in_group = mask.view(count, longest).sum(1).tolist()
        assert has_padding == (min(in_group) < longest)
        assert longest == max(in_group)
        assert min(in_group) * 2 > longest, "no row is shorter than half of its group's longest"
        found += in_group
    assert found == [lengths[row] for row in batch["row_order"]]
    assert sorted(batch["row_order"].tolist()) == list(range(len(rows)))
    for index, row in enumerate(rows):
        part = slice(starts[index], starts[index + 1])
        assert batch["input_ids"][0, part].tolist() == row.tolist()
        assert batch["position_ids"][0, part].tolist() == list(range(2, 2 + len(row)))
        assert batch["token_type_ids"][0, part].sum() == len(row) - second_starts(lengths)[index]
    ids = batch["input_ids"][0]
    assert torch.equal(ids[batch["to_padded"]][batch["from_padded"]], ids)
    assert batch["key_mask"][batch["from_padded"]].all()
    assert int(batch["key_mask"].sum()) == total


def test_single_texts_have_no_token_types():
    for packed in (False, True):
        assert "token_type_ids" not in collate(token_rows([3, 4]), None, Layout(packed))
        assert "token_type_ids" not in collate(token_rows([3, 4]), [1, 2], Layout(packed, token_types=False))


def test_padding_stops_at_the_last_position():
    for lengths, padded in (([3, 10], 10), ([3, 7], 8)):
        inputs = collate(token_rows(lengths), None, Layout(False, max_positions=10))
        assert inputs["input_ids"].shape == (2, padded)
    # 33 tokens would be padded to 40
    model = tiny_model(max_position_embeddings=33)
    assert model(**collate(token_rows([33, 2]), None, model.layout(False))).shape == (2, 3)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """A split, and the token store of its rows of one to five windows."""
    folder = tmp_path_factory.mktemp("windows")
    rows = [[" ".join(text), "xy"[at % 2]] for at, text in enumerate(TEXTS)]
    (folder / "rows.json").write_text(json.dumps(rows))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop", "##a"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    files = {"train": str(folder / "rows.json"), "cache_dir": str(folder / "cache")}
    data = DataConfig(**files, dev_size=0, test_size=0, max_length=12, long="windows", max_windows=5)
    dataset = open_dataset(data)
    tokenizer = load_tokenizer(ModelConfig(vocab_file=str(folder / "vocab.txt")), dataset, 12, data.cache_dir)
    return dataset.splits["train"], open_stores(dataset, tokenizer, data)["train"]


@pytest.mark.parametrize(("packed", "varlen"), [(False, False), (True, False), (True, True)])
def test_logits_and_gradients_are_those_of_the_means_of_windows(windows, packed, varlen):
    split, store = windows
    model = tiny_model()
    positions = np.array([2, 0, 5, 4])
    batch = Loader(split, store, model.layout(packed, varlen)).load(positions, CPU)
    logits = batch.row_outputs(model(**batch.inputs))
    of_rows = [
        [model(torch.from_numpy(window.astype(np.int64))[None])[0] for window in store.windows(row)]
        for row in split.rows[positions]
    ]
    one_by_one = torch.stack([torch.stack(of_windows).mean(0) for of_windows in of_rows])
    torch.testing.assert_close(logits, one_by_one, rtol=1e-5, atol=1e-6)
    labels = torch.tensor([0, 1, 2, 1])
    found, wanted = (
        torch.autograd.grad(torch.nn.functional.cross_entropy(rows, labels), model.model.classifier.weight)[0]
        for rows in (logits, one_by_one)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_one_window_keeps_its_bits_and_a_part_without_rows_has_one(windows):
    outputs = torch.randn(3, 4)
    assert torch.equal(means_of_rows(outputs, torch.ones(3, dtype=torch.int64)), outputs)
    batch = Loader(*windows, tiny_model().layout(True)).load(np.empty(0, np.int64), CPU)
    assert batch.windows_per_row.tolist() == [1]
    assert (len(batch.labels), len(batch.positions)) == (0, 0)


@pytest.mark.parametrize("num_shards", [1, 2, 3])
def test_evaluation_batches_are_bounded_by_windows(windows, num_shards):
    loader = Loader(*windows, tiny_model().layout(True))
    counts = loader.windows()
    shards = [evaluation_batches(loader.lengths(), 6, num_shards, i, counts) for i in range(num_shards)]
    assert len({len(batches) for batches in shards}) == 1
    batches = [batch for batches in shards for batch in batches]
    assert sorted(np.concatenate(batches)) == list(range(len(loader)))
    assert all(len(batch) <= 1 or counts[batch].sum() <= 6 for batch in batches)
    assert max(counts[batch].sum() for batch in batches) == 6
