"""Which parameters are of the encoder and which of the head, which decay, and which are frozen: for types
of models whose layers have other names than BERT's. What is expected is written out by names."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSequenceClassification

from app.config.schema import TrainConfig
from app.errors import InputError
from app.model.classifier import Classifier
from app.model.freeze import freeze
from app.model.linear_start import add_mean_layer
from app.model.lora import add_lora
from app.model.masked_model import MaskedLanguageModel
from tests.model.test_trained_weights import needs_peft
from tests.tiny import tiny_model

BERT_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
GPT_SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 4}
XLM_SIZES = {"emb_dim": 32, "n_layers": 2, "n_heads": 4}
T5_SIZES = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4}
BART_SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
BART_SIZES |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}
BART_SIZES |= {f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")}
DECODER_SIZES = BERT_SIZES | {"num_key_value_heads": 2, "head_dim": 8}
PADDED = {"vocab_size": 40, "pad_token_id": 0}


@dataclass(frozen=True)
class Expected:
    """What is expected of a type of model. All are patterns of names: `head` of the parameters of the head,
    `norms` of those of norms (their biases need no pattern), `embeddings` of those of the embeddings."""

    sizes: dict
    head: tuple[str, ...]
    norms: tuple[str, ...]
    embeddings: tuple[str, ...]


POOLED = ("*.pooler.*", "classifier.*")
LAYER_NORM = ("*.LayerNorm.weight",)
IN_EMBEDDINGS = ("*.embeddings.*",)
NORMS_OF_LAYERS = ("*.input_layernorm.weight", "*.post_attention_layernorm.weight")
NORMS_OF_DECODER = (*NORMS_OF_LAYERS, "model.norm.weight")
NORMS_OF_GPT = ("*.ln_1.weight", "*.ln_2.weight")
TYPES = {
    "bert": Expected(BERT_SIZES, POOLED, LAYER_NORM, IN_EMBEDDINGS),
    "ernie": Expected(BERT_SIZES, POOLED, LAYER_NORM, IN_EMBEDDINGS),
    "roberta": Expected(BERT_SIZES, ("classifier.*",), LAYER_NORM, IN_EMBEDDINGS),
    "xlm-roberta": Expected(BERT_SIZES, ("classifier.*",), LAYER_NORM, IN_EMBEDDINGS),
    "electra": Expected(
        BERT_SIZES | {"embedding_size": 16},
        ("classifier.*",),
        LAYER_NORM,
        ("electra.embeddings.*", "electra.embeddings_project.*"),
    ),
    "modernbert": Expected(
        BERT_SIZES,
        ("head.*", "classifier.*"),
        ("*norm.weight",),
        ("model.embeddings.*",),
    ),
    "llama": Expected(DECODER_SIZES, ("score.*",), NORMS_OF_DECODER, ("model.embed_tokens.*",)),
    "qwen2": Expected(DECODER_SIZES, ("score.*",), NORMS_OF_DECODER, ("model.embed_tokens.*",)),
    "qwen3": Expected(
        DECODER_SIZES,
        ("score.*",),
        (*NORMS_OF_DECODER, "*.q_norm.weight", "*.k_norm.weight"),
        ("model.embed_tokens.*",),
    ),
    "albert": Expected(
        BERT_SIZES | {"embedding_size": 16},
        ("albert.pooler.*", "classifier.*"),
        ("*.LayerNorm.weight", "*.full_layer_layer_norm.weight"),
        ("albert.embeddings.*", "albert.encoder.embedding_hidden_mapping_in.*"),
    ),
    "gpt2": Expected(GPT_SIZES, ("score.*",), (*NORMS_OF_GPT, "*.ln_f.weight"), ("*.wte.*", "*.wpe.*")),
    "openai-gpt": Expected(
        GPT_SIZES, ("score.*",), NORMS_OF_GPT, ("*.tokens_embed.*", "*.positions_embed.*")
    ),
    "bloom": Expected(
        {"hidden_size": 32, "n_layer": 2, "n_head": 4},
        ("score.*",),
        (*NORMS_OF_LAYERS, "*.ln_f.weight", "*.word_embeddings_layernorm.weight"),
        ("*.word_embeddings.*", "*.word_embeddings_layernorm.*"),
    ),
    "gpt_neox": Expected(
        BERT_SIZES,
        ("score.*",),
        (*NORMS_OF_LAYERS, "*.final_layer_norm.weight"),
        ("gpt_neox.embed_in.*",),
    ),
    "funnel": Expected(
        {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "block_sizes": [1, 1]},
        ("classifier.*",),
        ("*.layer_norm.weight",),
        IN_EMBEDDINGS,
    ),
    "xlm": Expected(
        XLM_SIZES,
        ("sequence_summary.*",),
        ("*.layer_norm?.?.weight", "*.layer_norm_emb.weight"),
        ("transformer.embeddings.*", "transformer.position_embeddings.*"),
    ),
    "mpnet": Expected(
        BERT_SIZES,
        ("classifier.*",),
        LAYER_NORM,
        ("mpnet.embeddings.*", "mpnet.encoder.relative_attention_bias.*"),
    ),
    "esm": Expected(
        BERT_SIZES | {"token_dropout": True, "mask_token_id": 4},
        ("classifier.*",),
        ("*.LayerNorm.weight", "*.emb_layer_norm_after.weight"),
        IN_EMBEDDINGS,
    ),
    "bart": Expected(
        BART_SIZES,
        ("classification_head.*",),
        ("*layer_norm.weight", "*.layernorm_embedding.weight"),
        ("model.shared.*", "*.embed_positions.*", "*.layernorm_embedding.*"),
    ),
    "megatron-bert": Expected(BERT_SIZES, ("bert.pooler.*", "classifier.*"), ("*.ln.weight",), IN_EMBEDDINGS),
    "t5": Expected(T5_SIZES, ("classification_head.*",), ("*layer_norm.weight",), ("transformer.shared.*",)),
    "big_bird": Expected(BERT_SIZES, ("bert.pooler.*", "classifier.*"), LAYER_NORM, IN_EMBEDDINGS),
    "roberta-prelayernorm": Expected(BERT_SIZES, ("classifier.*",), LAYER_NORM, IN_EMBEDDINGS),
    "deberta-v2": Expected(
        BERT_SIZES | {"relative_attention": True, "norm_rel_ebd": "layer_norm"},
        ("pooler.*", "classifier.*"),
        LAYER_NORM,
        ("deberta.embeddings.*", "deberta.encoder.rel_embeddings.*"),
    ),
}


def names_of(model: torch.nn.Module, patterns: tuple[str, ...]) -> set[str]:
    """Return the names of parameters that fit a pattern; each pattern must fit one at least."""
    names = set()
    for pattern in patterns:
        fitting = {name for name, _ in model.named_parameters() if fnmatchcase(name, pattern)}
        assert fitting, f"{pattern} fits no parameter"
        names |= fitting
    return names


def build(architecture: str) -> torch.nn.Module:
    """Return transformers' model for classification, without memory for its weights."""
    config = AutoConfig.for_model(architecture, **PADDED, **TYPES[architecture].sizes)
    with torch.device("meta"):
        return AutoModelForSequenceClassification.from_config(config)


def groups_of(model) -> tuple[set[str], set[str]]:
    """Return the names of the parameters that train at the rate of the head, and of those that decay."""
    names = {id(parameter): name for name, parameter in model.model.named_parameters()}
    config = TrainConfig(learning_rate=1e-3, head_learning_rate=1e-2, weight_decay=0.05)
    at_rate_of_head = set()
    decaying = set()
    for group in model.build_optimizer(config).param_groups:
        group_names = {names[id(parameter)] for parameter in group["params"]}
        if group["lr_scale"] == pytest.approx(10):
            at_rate_of_head |= group_names
        if group["weight_decay"]:
            decaying |= group_names
    return at_rate_of_head, decaying


@pytest.mark.parametrize("architecture", TYPES)
def test_only_the_head_trains_at_its_rate(architecture):
    model = build(architecture)
    at_rate_of_head, _ = groups_of(Classifier(model))
    assert at_rate_of_head == names_of(model, TYPES[architecture].head)


@pytest.mark.parametrize("architecture", TYPES)
def test_norms_and_biases_do_not_decay_and_all_else_does(architecture):
    model = build(architecture)
    names = {name for name, _ in model.named_parameters()}
    _, decaying = groups_of(Classifier(model))
    biases = {name for name in names if name.endswith("bias")}
    assert decaying == names - biases - names_of(model, TYPES[architecture].norms)


@pytest.mark.parametrize("architecture", TYPES)
def test_frozen_embeddings_are_the_embeddings_alone(architecture):
    model = build(architecture)
    freeze(Classifier(model), "embeddings")
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == names_of(model, TYPES[architecture].embeddings)


@pytest.mark.parametrize("architecture", TYPES)
def test_a_frozen_encoder_leaves_the_head_alone(architecture):
    model = build(architecture)
    freeze(Classifier(model), "encoder")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == names_of(model, TYPES[architecture].head)


MASKED_HEADS = {
    "bert": ("cls.*",),
    "electra": ("generator_predictions.*", "generator_lm_head.*"),
    "roberta": ("lm_head.*",),
    "xlm-roberta": ("lm_head.*",),
    "modernbert": ("head.*", "decoder.*"),
    "albert": ("predictions.*",),
    "xlm": ("pred_layer.*",),
    # The output matrix is that of the embeddings, and comes first under the name of the head
    "camembert": ("lm_head.dense.*", "lm_head.layer_norm.*", "lm_head.bias"),
}


@pytest.mark.parametrize("architecture", MASKED_HEADS)
def test_the_head_for_masked_tokens_alone_trains_at_its_rate(architecture):
    sizes = TYPES[architecture].sizes if architecture in TYPES else BERT_SIZES
    config = AutoConfig.for_model(architecture, **PADDED, **sizes)
    config.tie_word_embeddings = True
    model = AutoModelForMaskedLM.from_config(config)
    at_rate_of_head, _ = groups_of(MaskedLanguageModel(model))
    assert at_rate_of_head == names_of(model, MASKED_HEADS[architecture])


def test_the_layer_of_a_linear_start_trains_at_the_rate_of_the_encoder():
    model = tiny_model()
    add_mean_layer(model.model)
    at_rate_of_head, _ = groups_of(model)
    assert at_rate_of_head == names_of(model.model, ("bert.pooler.*", "classifier.*"))


@needs_peft
@pytest.mark.parametrize("architecture", ["albert", "bloom", "gpt_neox", "funnel"])
def test_factors_of_lora_train_at_the_rate_of_the_encoder(architecture):
    config = AutoConfig.for_model(architecture, **PADDED, **TYPES[architecture].sizes)
    model = Classifier(AutoModelForSequenceClassification.from_config(config))
    add_lora(model, 2)
    at_rate_of_head, _ = groups_of(model)
    assert at_rate_of_head == names_of(model.model, TYPES[architecture].head)


def test_freezing_all_that_there_is_is_refused():
    config = AutoConfig.for_model("bart", **PADDED, **BART_SIZES)
    config.tie_word_embeddings = True
    model = MaskedLanguageModel(AutoModelForMaskedLM.from_config(config))
    with pytest.raises(InputError, match=r"model\.freeze encoder must leave weights to train, found a bart"):
        freeze(model, "encoder")


@needs_peft
def test_lora_without_linear_layers_is_refused():
    """The matrices of GPT-2 are of a class of transformers."""
    config = AutoConfig.for_model("gpt2", **PADDED, **GPT_SIZES)
    model = Classifier(AutoModelForSequenceClassification.from_config(config))
    with pytest.raises(InputError, match=r"model\.lora_rank needs linear layers .*, found none in a gpt2"):
        add_lora(model, 2)
