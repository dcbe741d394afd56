"""Packed batches of every type of model against plain transformers, padded: python -m pytest
tests/model/test_packing.py"""

import copy
import re

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification

from app.batching.loader import collate
from app.model.classifier import PACKINGS, Classifier, check_passes
from tests.tiny import tiny_model, token_rows

GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0, "original_max_position_embeddings": 16}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 1000.0, "low_freq_factor": 1.0}
LLAMA_3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
ROTARY = {"full_attention": {"rope_type": "default", "rope_theta": 300.0}}
ROTARY |= {"sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}}
MEAN = {"classifier_pooling": "mean", "rope_parameters": ROTARY}
MEAN |= dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias"), True)
WINDOWS = {"use_sliding_window": True, "num_key_value_heads": 1}
SHAPES = {
    "bert": {},
    "ernie": {},
    "ernie, tasks": {"use_task_id": True, "task_type_vocab_size": 2},
    "electra": {"embedding_size": 16},
    "roberta": {},
    "xlm-roberta": {},
    "modernbert": {},
    "modernbert, short windows": {"num_hidden_layers": 3, "layer_types": LOCAL, "local_attention": 4},
    "modernbert, mean": MEAN | {"num_hidden_layers": 3, "layer_types": LOCAL, "local_attention": 10},
    "qwen3": GROUPED,
    "qwen3, tied": {"num_key_value_heads": 4, "head_dim": 16, "tie_word_embeddings": True},
    "qwen3, yarn": {"num_key_value_heads": 1, "head_dim": 8, "attention_bias": True, "rope_parameters": YARN},
    "qwen3, short windows": WINDOWS
    | GROUPED
    | {"sliding_window": 3, "num_hidden_layers": 3, "layer_types": LOCAL},
    "qwen2": {"num_key_value_heads": 2},
    "qwen2, windows": WINDOWS | {"sliding_window": 5, "max_window_layers": 1},
    "llama": {"num_key_value_heads": 4},
    "llama, llama3": {"num_key_value_heads": 1, "mlp_bias": True, "rope_parameters": LLAMA_3},
}
LENGTHS = [5, 9, 3, 20, 32, 1, 2, 17]


def rows(shape: str) -> list:
    found = token_rows(LENGTHS)
    if PACKINGS[shape.split(",")[0]].reads_last:
        # As a tokenizer that ends each text with the token that is also its padding
        found[1][-1] = 0
    return found


def model_of(shape: str, dropout: float = 0.0, **config):
    return tiny_model(shape.split(",")[0], dropout=dropout, **SHAPES[shape] | config)


def plain_model(model) -> torch.nn.Module:
    """Return transformers' own model with the same weights, whose attention is written out in Python."""
    config = copy.deepcopy(model.model.config)
    plain = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    plain.load_state_dict(model.model.state_dict())
    return plain.train(model.training)


def outcome(model, inputs: dict) -> tuple[torch.Tensor, dict]:
    """Return the logits, and the gradients of every parameter by its name in transformers."""
    logits = model(**inputs)
    logits = getattr(logits, "logits", logits)
    logits.float().square().sum().backward()
    plain = model.model if isinstance(model, Classifier) else model
    return logits.detach(), {name: value.grad for name, value in plain.named_parameters()}


def assert_same(found, expected) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-5)
    assert set(found[1]) == set(expected[1])
    # The gradient of a bias of keys is 0, up to rounding
    least = 1e-2 * max(float(value.abs().max()) for value in expected[1].values())
    for name, value in expected[1].items():
        tolerance = 1e-5 * max(least, float(value.abs().max()))
        torch.testing.assert_close(found[1][name], value, atol=tolerance, rtol=0, msg=name)


@pytest.mark.parametrize("varlen", [False, True], ids=["grouped", "varlen"])
@pytest.mark.parametrize("is_training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_logits_and_gradients_are_those_of_plain_transformers(shape, is_training, varlen):
    model = model_of(shape).train(is_training)
    plain = plain_model(model)
    types = model.layout(True).token_types
    starts = [2, 4, 1, 10, 30, 1, 1, 8] if types else None
    padded = collate(rows(shape), starts, model.layout(False))
    assert_same(
        outcome(model, collate(rows(shape), starts, model.layout(True, varlen))), outcome(plain, padded)
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_differs_by_its_rounding(shape):
    model = model_of(shape).train()
    exact = outcome(plain_model(model), collate(rows(shape), None, model.layout(False)))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(**collate(rows(shape), None, model.layout(True)))
        padded = plain_model(model)(**collate(rows(shape), None, model.layout(False))).logits
    error, usual = ((found.float() - exact[0]).abs().max() for found in (logits, padded))
    assert error <= max(2 * usual, 2**-6)


@pytest.mark.parametrize("shape", ["modernbert, short windows", "qwen3, short windows", "llama"])
def test_attention_dropout_in_training(shape):
    """The mean over many draws is the output without dropout, so the right tokens are dropped."""
    model = model_of(shape, dropout=0.2).train()
    inputs = collate(rows(shape), None, model.layout(True))
    assert not torch.equal(model(**inputs), model(**inputs))
    assert torch.isfinite(outcome(model, inputs)[0]).all()


def test_every_type_of_the_table_is_tested():
    assert {shape.split(",")[0] for shape in SHAPES} == set(PACKINGS)


def test_a_decoder_without_padding_token_runs_packed():
    model = model_of(shape := "llama")
    model.model.config.pad_token_id = None
    texts = [row[row != 0] for row in rows(shape)]
    with torch.inference_mode():
        expected = torch.cat([plain_model(model)(torch.from_numpy(row)[None].long()).logits for row in texts])
        found = model(**collate(texts, None, model.layout(True)))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    check_passes(model, *(row.tolist() for row in texts))


@pytest.mark.parametrize(
    ("architecture", "config", "why"),
    [
        ("deberta-v2", {}, "packed batches work with bert, ernie, .* models, found deberta-v2"),
        ("albert", {"embedding_size": 16}, "packed batches work with bert, ernie, .* models, found albert"),
        ("bert", {"is_decoder": True}, "which tokens attend to which"),
    ],
)
def test_why_a_model_is_padded(architecture, config, why):
    model = tiny_model(architecture, **config)
    assert not model.can_pack
    assert re.search(why, model.why_padded)


class Largest(TorchDispatchMode):
    """Finds the largest tensor that any operation makes, in elements."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if torch.is_tensor(tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("shape", ["bert", "qwen3"])
def test_long_texts_need_memory_by_their_tokens(shape):
    """No tensor is as large as all pairs of tokens, or as all rows padded to the longest, in both passes."""
    model = model_of(shape, max_position_embeddings=8192).train()
    lengths = [4096, *[16] * 64]
    with Largest() as largest:
        model(**collate(token_rows(lengths), None, model.layout(True))).sum().backward()
    tokens = sum(lengths)
    # Nothing is wider than the feed-forward part
    assert tokens <= largest.elements <= 3 * 128 * tokens < 4096 * 4096 < 65 * 4096 * 64
