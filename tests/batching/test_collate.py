"""Rows as padded and packed tensors."""

import math

import pytest
import torch

from app.batching.collate import Layout, collate
from tests.tiny import token_rows


def test_single_texts_have_no_token_types_and_padding_stops_at_the_last_position():
    rows = token_rows([3, 4])
    for packed in (False, True):
        assert "token_type_ids" not in collate(rows, None, Layout(packed))
        assert "token_type_ids" not in collate(rows, [1, 2], Layout(packed, token_types=False))
    for lengths, padded_length in (([3, 10], 10), ([3, 7], 8)):
        inputs = collate(token_rows(lengths), None, Layout(False, max_positions=10))
        assert inputs["input_ids"].shape == (2, padded_length)


@pytest.mark.parametrize("lengths", [[3, 4], [5, 3], [1], [30, 9]])
def test_rows_of_padding_fill_a_packed_batch_up(lengths):
    """None is longer than the longest row, or empty."""
    rows = token_rows(lengths)
    second_starts = [1] * len(rows)
    inputs = collate(rows, second_starts, Layout(True, varlen=True, multiple_of=8, pad_id=9))
    plain = collate(rows, second_starts, Layout(True, varlen=True))
    total = sum(lengths)
    num_tokens = math.ceil(total / 8) * 8
    assert inputs["input_ids"].shape == (1, num_tokens)
    assert inputs["input_ids"][0, total:].tolist() == [9] * (num_tokens - total)
    for name in ("input_ids", "position_ids", "token_type_ids"):
        assert torch.equal(inputs[name][:, :total], plain[name])
    assert inputs["first_tokens"][: len(rows)].tolist() == plain["first_tokens"].tolist()
    row_lengths = inputs["row_offsets"].diff()
    assert row_lengths[: len(rows)].tolist() == lengths
    assert row_lengths.min() > 0
    assert row_lengths.max() == max(lengths)
    assert row_lengths.sum() == num_tokens
    assert inputs["position_ids"].max() < max(lengths)
