"""The head computes in fp32 also where the encoder computes in bf16. In every mode: tests/modes."""

import pytest
import torch

from app.batching.loader import collate
from tests.tiny import tiny_model, token_rows

# Heads of different shapes: with a pooler in the encoder or beside it, of one layer or more, over all tokens
TYPES = ["bert", "albert", "electra", "roberta", "modernbert", "qwen3", "deberta-v2", "big_bird"]
TYPES += ["mobilebert", "longformer", "squeezebert", "gpt_neox"]
MORE = {
    "longformer": {"attention_window": 8},
    "squeezebert": {"embedding_size": 32},
    "albert": {"embedding_size": 16},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "mobilebert": {"intra_bottleneck_size": 16, "true_hidden_size": 16, "embedding_size": 16},
}


def has_more_than_bf16(values: torch.Tensor) -> bool:
    return bool((values != values.bfloat16().float()).any())


@pytest.mark.parametrize("architecture", TYPES)
def test_logits_under_bf16_are_no_steps_of_bf16(architecture):
    model = tiny_model(architecture, **MORE.get(architecture, {}))
    rows = token_rows([5, 9, 3, 12, 7, 20, 4, 6])
    for packed in {False, model.can_pack}:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            logits = model(**collate(rows, None, model.layout(packed)))
        assert logits.dtype == torch.float32
        assert has_more_than_bf16(logits)


def test_packed_and_padded_logits_under_bf16_are_near_each_other():
    """Both have the same head: what is left is the rounding of the encoder."""
    model = tiny_model()
    rows = token_rows([5, 9, 3, 12, 7, 20, 4, 6])
    logits = []
    for packed in (False, True):
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            logits.append(model(**collate(rows, None, model.layout(packed))))
    assert (logits[0] - logits[1]).abs().max() < 2**-5


def test_a_head_in_fp32_changes_nothing_without_autocast():
    model = tiny_model()
    rows = token_rows([5, 9, 3])
    with torch.no_grad():
        double = model.double()(**collate(rows, None, model.layout(True)))
    assert double.dtype == torch.float64
