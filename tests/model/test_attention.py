"""Packed batches of every type of model against plain transformers, padded, also for masked tokens; layers
that are computed again."""

import re
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForMaskedLM

from app.batching.collate import collate
from app.batching.loader import to_device
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model import grouped_attention
from app.model.build_model import build_masked_model, build_model
from app.model.classifier import PACKINGS, Classifier
from app.model.masked_model import MaskedLanguageModel
from app.model.saving import save_model
from app.model.weight_checks import check_passes
from tests.tiny import plain_model, row_keys, tiny_model, tiny_tokenizer, token_rows
from tests.training.tiny_training import SETTINGS, Training

BF16 = torch.bfloat16
FP32 = torch.float32
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500.0, "original_max_position_embeddings": 16}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 1000.0, "low_freq_factor": 1.0}
LLAMA_3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
ROTARY = {"full_attention": {"rope_type": "default", "rope_theta": 300.0}}
ROTARY |= {"sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 50.0}}
MEAN = {"classifier_pooling": "mean", "rope_parameters": ROTARY}
MEAN |= dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias"), True)
THREE = {"num_hidden_layers": 3, "layer_types": LOCAL}
WINDOWS = {"use_sliding_window": True, "num_key_value_heads": 1}
SHAPES = {
    "bert": {},
    "ernie": {},
    "ernie, tasks": {"use_task_id": True, "task_type_vocab_size": 2},
    "electra": {"embedding_size": 16},
    "roberta": {},
    "xlm-roberta": {},
    "modernbert": {},
    "modernbert, short windows": THREE | {"local_attention": 4},
    "modernbert, mean": MEAN | THREE | {"local_attention": 10},
    "qwen3": GROUPED,
    "qwen3, tied": {"num_key_value_heads": 4, "head_dim": 16, "tie_word_embeddings": True},
    "qwen3, yarn": {"num_key_value_heads": 1, "head_dim": 8, "attention_bias": True, "rope_parameters": YARN},
    "qwen3, short windows": WINDOWS | GROUPED | THREE | {"sliding_window": 3},
    "qwen2": {"num_key_value_heads": 2},
    "qwen2, windows": WINDOWS | {"sliding_window": 5, "max_window_layers": 1},
    "llama": {"num_key_value_heads": 4},
    "llama, llama3": {"num_key_value_heads": 1, "mlp_bias": True, "rope_parameters": LLAMA_3},
}
LENGTHS = [5, 9, 3, 20, 32, 1, 2, 17]


def rows(shape: str) -> list:
    token_ids = token_rows(LENGTHS)
    if PACKINGS[shape.split(",")[0]].reads_last:
        # As a tokenizer that ends each text with the token that is also its padding
        token_ids[1][-1] = 0
    return token_ids


def model_of(shape: str, dropout: float = 0.0):
    return tiny_model(shape.split(",")[0], dropout=dropout, **SHAPES[shape])


def outcome(model, inputs: dict) -> tuple[torch.Tensor, dict]:
    """Return the logits, and the gradients of every parameter by its name in transformers."""
    logits = model(**inputs)
    # Those of rows of padding come after them
    logits = getattr(logits, "logits", logits)[: len(LENGTHS)]
    logits.float().square().sum().backward()
    plain = model.model if isinstance(model, Classifier) else model
    return logits.detach(), {name: value.grad for name, value in plain.named_parameters()}


@pytest.mark.parametrize("variant", ["grouped", "varlen", "filled", "nothing dropped"])
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_logits_and_gradients_are_those_of_plain_transformers(shape, variant):
    # So each two values of shape, training and varlen meet; and dropout has its own gradients
    varlen = variant == "varlen"
    drops = variant == "nothing dropped"
    model = model_of(shape, 1e-9 if drops else 0.0)
    model.train(drops or varlen == (list(SHAPES).index(shape) % 2 == 0))
    plain = plain_model(model)
    starts = [2, 4, 1, 10, 30, 1, 1, 8] if model.layout(True).token_types else None
    # 39 tokens of padding are more than a row
    layout = replace(model.layout(True, varlen), multiple_of=128 if variant == "filled" else 1)
    packed_logits, gradients = outcome(model, collate(rows(shape), starts, layout, row_keys(8)))
    logits, expected = outcome(plain, collate(rows(shape), starts, model.layout(False)))
    torch.testing.assert_close(packed_logits, logits, atol=1e-5, rtol=1e-5)
    assert set(gradients) == set(expected)
    # The gradient of a bias of keys is 0, up to rounding
    floor = 1e-2 * max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        tolerance = 1e-5 * max(floor, float(value.abs().max()))
        torch.testing.assert_close(gradients[name], value, atol=tolerance, rtol=0, msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_differs_by_its_rounding(shape):
    model = model_of(shape).train()
    exact = outcome(plain_model(model), collate(rows(shape), None, model.layout(False)))
    differences = []
    for classifier, packed in ((plain_model(model), False), (model, True)):
        with torch.autocast("cpu", BF16):
            logits, gradients = outcome(classifier, collate(rows(shape), None, model.layout(packed)))
        of_gradients = torch.stack([(gradients[name] - value).norm() for name, value in exact[1].items()])
        differences.append(((logits.float() - exact[0]).abs().max(), of_gradients.norm()))
    (usual, usual_of_gradients), (error, error_of_gradients) = differences
    assert error <= max(2 * usual, 2**-6)
    assert error_of_gradients <= 2 * usual_of_gradients


@pytest.mark.parametrize(("shape", "expected"), [("bert", BF16), ("roberta", BF16), ("qwen3", FP32)])
def test_the_dtype_of_states_between_layers(shape, expected):
    """Sums over many layers, as in decoders, stay in fp32."""
    model = model_of(shape).train()
    dtypes = []
    layers = getattr(model.model.base_model, "encoder", model.model.base_model)
    layer = (layers.layer if hasattr(layers, "layer") else layers.layers)[-1]
    layer.register_forward_pre_hook(lambda module, args: dtypes.append(args[0].dtype))
    inputs = collate(rows(shape), None, model.layout(True))
    for precision in (BF16, FP32):
        with torch.autocast("cpu", BF16, enabled=precision == BF16):
            outcome(model, inputs)
    assert dtypes == [expected, FP32]


@pytest.mark.parametrize(("shape", "num_kinds"), [("bert", 1), ("modernbert, short windows", 2)])
def test_masks_of_groups_are_made_once_a_pass(shape, num_kinds, monkeypatch):
    """Not in each layer; a model with windows has two kinds of layers."""
    model = model_of(shape).train()
    calls = []
    make_masks = grouped_attention.group_masks
    monkeypatch.setattr(
        grouped_attention, "group_masks", lambda *inputs: calls.append(inputs) or make_masks(*inputs)
    )
    inputs = collate(rows(shape), None, model.layout(True))
    for num_passes in (1, 2):
        outcome(model, inputs)
        assert len(calls) == num_passes * num_kinds


def test_every_type_of_the_table_is_tested():
    assert {shape.split(",")[0] for shape in SHAPES} == set(PACKINGS)


def test_a_decoder_without_padding_token_runs_packed():
    model = model_of(shape := "llama")
    model.model.config.pad_token_id = None
    texts = [row[row != 0] for row in rows(shape)]
    with torch.inference_mode():
        expected = torch.cat([plain_model(model)(torch.from_numpy(row)[None].long()).logits for row in texts])
        logits = model(**collate(texts, None, model.layout(True)))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    check_passes(model, [row.tolist() for row in texts])


@pytest.mark.parametrize(
    ("architecture", "config", "why"),
    [
        ("deberta-v2", {}, "packed batches are for bert, ernie, .*, found deberta-v2"),
        ("bert", {"is_decoder": True}, "which tokens attend to which"),
    ],
)
def test_why_a_model_is_padded(architecture, config, why):
    model = tiny_model(architecture, **config)
    assert not model.can_pack
    assert re.search(why, model.why_padded)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", ["bert", "modernbert, short windows", "qwen3"])
@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
def test_varlen_kernels_do_what_groups_do(precision, shape):
    """Both are compared with groups in fp32 on the CPU: varlen may be as far from them as groups in the same
    precision, within a factor."""
    outcomes = {}
    for device, name in (("cpu", "grouped"), ("cuda", "grouped"), ("cuda", "varlen")):
        model = model_of(shape).train().to(device)
        inputs = collate(rows(shape), None, model.layout(True, varlen=name == "varlen"))
        inputs = to_device(inputs, torch.device(device))
        with torch.autocast("cuda", precision, enabled=precision != FP32):
            logits, gradients = outcome(model, inputs)
        outcomes[device, name] = {key: value.cpu() for key, value in (gradients | {"logits": logits}).items()}
    for key, exact in outcomes["cpu", "grouped"].items():
        error = (outcomes["cuda", "varlen"][key] - exact).norm()
        rounding = (outcomes["cuda", "grouped"][key] - exact).norm()
        assert error <= 3 * rounding + 1e-5 * exact.norm() + 1e-4, f"{key}: {error}, groups {rounding}"


@pytest.mark.parametrize("shape", ["modernbert, short windows", "qwen3, short windows", "llama"])
def test_attention_dropout_in_training(shape):
    model = model_of(shape, dropout=0.2).train()
    inputs = collate(rows(shape), None, model.layout(True), row_keys(8))
    logits = model(**inputs)
    assert torch.equal(logits, model(**inputs))
    in_next_step = collate(rows(shape), None, model.layout(True), row_keys(8, step=1))
    assert not torch.allclose(logits, model(**in_next_step))
    assert torch.isfinite(outcome(model, inputs)[0]).all()


@pytest.mark.parametrize(
    ("shape", "changes"), [({}, {}), ({"architecture": "qwen3"} | GROUPED, {"packed": False})]
)
def test_layers_that_are_computed_again_give_the_same_bits(shape, changes):
    """With dropout, and micro-batches; each layer is computed twice in a step."""
    runs = []
    calls = []
    for is_on in (False, True):
        settings = replace(SETTINGS, max_steps=4, accumulation_steps=2, gradient_checkpointing=is_on)
        runs.append(Training(settings, shape=shape, dropout=0.3, **changes))
        named = runs[-1].mode.module.model.named_modules()
        linear_layers = []
        for name, module in named:
            if ".0." in name and isinstance(module, torch.nn.Linear):
                linear_layers.append(module)
        linear_layers[0].register_forward_hook(lambda *_, is_on=is_on: calls.append(is_on))
    runs[1].run().assert_same_bits(runs[0].run())
    assert calls.count(True) == 2 * calls.count(False) > 0


def test_a_model_that_cannot_compute_layers_again_is_refused():
    with pytest.raises(InputError, match="train.gradient_checkpointing true does not work with mpnet"):
        tiny_model("mpnet").checkpoint_layers()


def weights(model: MaskedLanguageModel) -> dict:
    return {name.removeprefix("model."): value for name, value in model.state_dict().items()}


MASKED = ["bert", "ernie", "roberta", "xlm-roberta", "electra", "modernbert", "roformer"]


@pytest.mark.parametrize("architecture", MASKED)
def test_logits_of_masked_tokens_are_those_of_transformers(architecture, tmp_path):
    """Saved and loaded by transformers, the model computes the same for every token; ours only those that are
    asked for, packed where it can be."""
    pad_id = 1 if "roberta" in architecture else 0
    model = tiny_model(architecture, pad_id, masked=True)
    save_model(tmp_path, model.model, weights(model), tiny_tokenizer(pad_id))
    plain, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] | info["unexpected_keys"]
    rows = token_rows([9, 4, 17])
    places = [(0, 3), (1, 1), (1, 2), (2, 16)]
    padded = collate(rows, None, model.layout(False))
    mask = torch.zeros_like(padded["input_ids"], dtype=torch.bool)
    for row, place in places:
        mask[row, place] = True
    with torch.inference_mode():
        logits = plain.eval()(**padded).logits
        torch.testing.assert_close(model(**padded, masked=mask), logits[mask], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(**padded), logits[:, 0], rtol=1e-4, atol=1e-4)
        if model.can_pack:
            packed = collate(rows, None, model.layout(True))
            index = torch.tensor([int(packed["first_tokens"][row]) + place for row, place in places])
            masked_logits = model(**packed, masked=index)
            torch.testing.assert_close(masked_logits, logits[mask], rtol=1e-4, atol=1e-4)
            assert model(**packed, masked=index[:0]).shape == (0, 21)


def test_a_head_that_is_there_is_kept_and_a_classifier_takes_the_encoder(tmp_path):
    model = tiny_model(masked=True)
    save_model(tmp_path, model.model, weights(model), tiny_tokenizer())
    again = build_masked_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), 32)
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(model).items())
    classifier = build_model(ModelConfig(name=str(tmp_path)), tiny_tokenizer(), ["a", "b"], 32)
    layer = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(weights(model)[layer], classifier.model.state_dict()[layer])
    # The checkpoint has none
    assert torch.equal(classifier.model.bert.pooler.dense.weight, torch.eye(32))
    # And back: without a head for masked tokens it gets a new one
    classifier.model.save_pretrained(tmp_path / "classifier")
    new = build_masked_model(ModelConfig(name=str(tmp_path / "classifier")), tiny_tokenizer(), 32)
    assert torch.equal(weights(new)[layer], weights(model)[layer])
    with pytest.raises(InputError, match="the weights of .* must be those of"):
        build_masked_model(ModelConfig(name=str(tmp_path), config={"hidden_size": 16}), tiny_tokenizer(), 32)
