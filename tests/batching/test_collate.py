"""Padded and packed batches: python -m pytest tests/batching/test_collate.py"""

import numpy as np
import pytest
import torch

from app.batching.loader import Layout, collate
from tests.tiny import tiny_model, token_rows

LENGTHS = {
    "mixed": [5, 9, 3, 20, 2, 7, 32],
    "equal": [6, 6, 6],
    "equal, a multiple of 8": [16, 16],
    "one row": [11],
    "one short row": [2],
    "more tokens than positions": [30] * 5 + [2] * 9,
}


def second_starts(lengths: list[int]) -> list[int]:
    """Second texts that start anywhere, also after the end: then the row has none."""
    return [min(length, 1 + 3 * index) for index, length in enumerate(lengths)]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
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


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
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
    there_and_back = ids[batch["to_padded"]][batch["from_padded"]]
    assert torch.equal(there_and_back, ids)
    assert batch["key_mask"][batch["from_padded"]].all()
    assert int(batch["key_mask"].sum()) == total


def test_single_texts_have_no_token_types():
    for packed in (False, True):
        assert "token_type_ids" not in collate(token_rows([3, 4]), None, Layout(packed))
        assert "token_type_ids" not in collate(token_rows([3, 4]), [1, 2], Layout(packed, token_types=False))


def test_padding_stops_at_the_last_position():
    assert collate(token_rows([3, 10]), None, Layout(False, max_positions=10))["input_ids"].shape == (2, 10)
    assert collate(token_rows([3, 7]), None, Layout(False, max_positions=10))["input_ids"].shape == (2, 8)
    # 33 tokens would be padded to 40
    model = tiny_model(max_position_embeddings=33)
    assert model(**collate(token_rows([33, 2]), None, model.layout(False))).shape == (2, 3)
