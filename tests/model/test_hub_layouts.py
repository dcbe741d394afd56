"""The models that docs/models.md names, as the hub has them but with random weights; nothing was downloaded.

As published are the values of config.json, the names of files and weights, and the ids of special tokens. The
quick tests take two narrow layers and part of a long vocabulary; the slow ones two layers and all the rest,
but for a vocabulary that another model has, too.
"""

import json
import re
import string
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer, XLMRobertaTokenizer

from app.model.vocabulary import gb2312_characters
from app.run import main
from tests.multi_label_runs import read_predictions
from tests.ranks import settings

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 96}
IDS = ("vocab_size", "bos_token_id", "eos_token_id")
BASE = (768, 12, 12, 3072)
LARGE = (1024, 24, 16, 4096)
BIN = "pytorch_model.bin"
TENSORS = "model.safetensors"
OTHERS = ["tf_model.h5", "flax_model.msgpack", "onnx/model.onnx"]
JSON = ["tokenizer.json", "tokenizer_config.json"]
QWEN3_FILES = [TENSORS, "vocab.json", *JSON]
OLD_NORMS = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
BERT = {"vocab_size": 21128, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0}
ERNIE = {"vocab_size": 40000, "type_vocab_size": 4, "task_type_vocab_size": 16, "use_task_id": True}
XLM_ROBERTA = {"vocab_size": 250002, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0}
QWEN3 = {"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 1000000, "rope_scaling": None}
QWEN3 |= {"torch_dtype": "bfloat16", "tie_word_embeddings": True, "use_sliding_window": False}
QWEN3 |= {"bos_token_id": 151643, "rms_norm_eps": 1e-6, "max_window_layers": 28}
MODERNBERT = {"global_attn_every_n_layers": 3, "local_attention": 128, "norm_eps": 1e-5, "vocab_size": 50368}
MODERNBERT |= {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "classifier_pooling": "mean"}
MODERNBERT |= {"pad_token_id": 50283, "cls_token_id": 50281, "sep_token_id": 50282}
DEBERTA = {"relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm"}
DEBERTA |= {"share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
DEBERTA |= {"vocab_size": 12800, "type_vocab_size": 0}
# By the type of a model: its class, the positions, and the other values of its configuration
KINDS = {
    "bert": ("BertForMaskedLM", 512, BERT | {"directionality": "bidi"}),
    "ernie": ("ErnieForMaskedLM", 2048, ERNIE | {"layer_norm_eps": 1e-5}),
    "xlm-roberta": ("XLMRobertaModel", 514, XLM_ROBERTA | {"eos_token_id": 2}),
    "qwen3": ("Qwen3ForCausalLM", 40960, QWEN3 | {"eos_token_id": 151645, "vocab_size": 151936}),
    "modernbert": ("ModernBertForMaskedLM", 8192, MODERNBERT),
    "deberta-v2": ("DebertaV2ForMaskedLM", 512, DEBERTA),
    "electra": ("ElectraForPreTraining", 512, BERT | {"embedding_size": 24}),
}


def shape(model_type: str, *sizes: int, **changes) -> dict:
    architecture, positions, values = KINDS[model_type]
    named = {"architectures": [architecture], "model_type": model_type, "max_position_embeddings": positions}
    return named | values | dict(zip(SIZES, sizes, strict=True)) | changes


E5 = {"architectures": ["BertModel"], "tokenizer_class": "XLMRobertaTokenizer", "vocab_size": 250037}
EMBEDDING = {"vocab_size": 151669, "max_position_embeddings": 32768, "eos_token_id": 151643}
QWEN = (1024, 28, 16, 3072)
MACBERT = "hfl/chinese-macbert-base"
ERLANGSHEN = "IDEA-CCNL/Erlangshen-DeBERTa-v2-97M-Chinese"
BGE = shape("bert", 512, 4, 8, 2048, architectures=["BertModel"])
BERT_FILES = [BIN, "vocab.txt", *JSON, *OTHERS]
ERNIE_FILES = [BIN, "vocab.txt"]
# The configuration of a model, its files, and parts of the names of its weights where others are usual today
PUBLISHED = {
    "bert-base-chinese": (shape("bert", *BASE), [TENSORS, *BERT_FILES], OLD_NORMS),
    # As chinese-roberta-wwm-ext and chinese-bert-wwm-ext
    MACBERT: (shape("bert", *BASE), BERT_FILES, {}),
    "hfl/chinese-roberta-wwm-ext-large": (shape("bert", *LARGE), BERT_FILES, {}),
    "nghuyong/ernie-3.0-base-zh": (shape("ernie", *BASE, task_type_vocab_size=3), ERNIE_FILES, OLD_NORMS),
    "nghuyong/ernie-3.0-mini-zh": (shape("ernie", 384, 6, 12, 1536), ERNIE_FILES, OLD_NORMS),
    "nghuyong/ernie-3.0-micro-zh": (shape("ernie", 384, 4, 12, 1536), ERNIE_FILES, OLD_NORMS),
    "nghuyong/ernie-3.0-nano-zh": (shape("ernie", 312, 4, 12, 1248), ERNIE_FILES, OLD_NORMS),
    "BAAI/bge-small-zh-v1.5": (BGE, [TENSORS, BIN, "vocab.txt", *JSON], {}),
    "intfloat/multilingual-e5-small": (shape("bert", 384, 12, 12, 1536, **E5), [TENSORS, BIN, *JSON], {}),
    "intfloat/multilingual-e5-base": (shape("xlm-roberta", *BASE), [TENSORS, BIN, *JSON], {}),
    "intfloat/multilingual-e5-large": (shape("xlm-roberta", *LARGE), [TENSORS, BIN, *JSON], {}),
    "Qwen/Qwen3-0.6B": (shape("qwen3", *QWEN), QWEN3_FILES, {}),
    "Qwen/Qwen3-Embedding-0.6B": (shape("qwen3", *QWEN, **EMBEDDING), QWEN3_FILES, {"model.": ""}),
    "hfl/chinese-electra-180g-base-discriminator": (shape("electra", *BASE), [BIN, "vocab.txt", *JSON], {}),
    "answerdotai/ModernBERT-base": (shape("modernbert", 768, 22, 12, 1152), [TENSORS, BIN, *JSON], {}),
    ERLANGSHEN: (shape("deberta-v2", *BASE), [BIN, "vocab.txt", "tokenizer_config.json"], {}),
}
# One of each type, and MACBERT in all layouts
QUICK = ["nghuyong/ernie-3.0-base-zh", "intfloat/multilingual-e5-base", "Qwen/Qwen3-0.6B", ERLANGSHEN]
QUICK += ["hfl/chinese-electra-180g-base-discriminator", "answerdotai/ModernBERT-base"]
LAYOUTS = {
    "vocab.txt alone": (MACBERT, [BIN, "vocab.txt"], {}),
    "vocab.txt of a BERT": (ERLANGSHEN, [BIN, "vocab.txt"], {}),
    "tokenizer.json alone": (MACBERT, [TENSORS, "tokenizer.json"], {}),
    "safetensors beside other frameworks": (MACBERT, [TENSORS, "vocab.txt", *OTHERS], OLD_NORMS),
    "safetensors in shards": (MACBERT, [f"{TENSORS}.index.json", "vocab.txt"], OLD_NORMS),
    "PyTorch in shards": (MACBERT, [f"{BIN}.index.json", "vocab.txt"], {}),
    "names without bert.": (MACBERT, [TENSORS, "vocab.txt"], {"bert.": ""}),
}


def vocabulary(size: int, places: dict[int, str], pieces: list[str]) -> dict[str, int]:
    """Return ids of tokens: those of `places`, then `pieces`, and as many others as are needed."""
    other_tokens = iter([*pieces, *(f"[unused{number}]" for number in range(size))])
    return {places[index] if index in places else next(other_tokens): index for index in range(size)}


def make_tokenizer(name: str, config: dict) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the published class, size and special tokens; others are characters, or bytes."""
    model_type = config["model_type"]
    size = config["vocab_size"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    characters = [*string.digits, *gb2312_characters()]
    if model_type == "qwen3":
        end = config["bos_token_id"]
        places = {end: "<|endoftext|>", end + 1: "<|im_start|>", end + 2: "<|im_end|>"}
        tokenizer = Qwen2Tokenizer(vocabulary(end + 3, places, alphabet), [], eos_token="<|im_end|>")
        if "Embedding" in name:
            template = processors.TemplateProcessing("$A <|endoftext|>", special_tokens=[(places[end], end)])
            tokenizer.backend_tokenizer.post_processor = template
        return tokenizer
    if model_type == "modernbert":
        names = ("unk", "cls", "sep", "pad", "mask")
        places = {50280 + index: f"[{name.upper()}]" for index, name in enumerate(names)}
        backend = Tokenizer(models.BPE(vocabulary(size, places, alphabet), []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        ends = [("[CLS]", 50281), ("[SEP]", 50282)]
        backend.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
        special = {f"{name}_token": f"[{name.upper()}]" for name in names}
        return PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    if "e5" in name:
        size -= 35 if model_type == "bert" else 0
        places = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>", 4: "\u2581", size - 1: "<mask>"}
        pieces = vocabulary(size, places, characters)
        return XLMRobertaTokenizer([(piece, -10.0 if index > 3 else 0.0) for piece, index in pieces.items()])
    places = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
    if model_type == "ernie":
        places = {0: "[PAD]", 1: "[CLS]", 2: "[SEP]", 3: "[MASK]", 17963: "[UNK]"}
    return BertTokenizer(vocabulary(size, places, characters))


def publish(folder: Path, name: str, config: dict, files: list[str], renamed: dict[str, str]) -> tuple:
    """Write a model as the hub has it; return its weights by transformers' names, and its tokenizer."""
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = make_tokenizer(name, config)
    special = {"tokenizer_class": type(tokenizer).__name__, **tokenizer.special_tokens_map}
    torch.manual_seed(0)
    # The hub's files of BERT and ERNIE have the pooler, too
    architecture = re.sub("^(Bert|Ernie)ForMaskedLM", r"\1ForPreTraining", config["architectures"][0])
    model = getattr(transformers, architecture)(transformers.AutoConfig.from_pretrained(folder))
    for parameter in model.parameters():
        # No weight is what a new model would have, such as the ones of a norm
        parameter.data += 0.02 * torch.randn(parameter.shape[-1:])
    weights = model.to(getattr(torch, config.get("torch_dtype", "float32"))).state_dict()
    named = {}
    for key, value in weights.items():
        theirs = key
        for ours, old in renamed.items():
            theirs = theirs.replace(ours, old)
        named[theirs] = value.clone()
        if key.endswith("embeddings.position_embeddings.weight"):
            # Older versions of transformers saved it
            named[theirs.replace("embeddings.weight", "ids")] = torch.arange(len(value))[None]
    for file in files:
        if file.startswith(TENSORS) or (file.startswith(BIN) and TENSORS not in files):
            pattern = file.removesuffix(".index.json").replace(".", "{suffix}.")
            size = "1MB" if file.endswith(".index.json") else "9GB"
            safe = TENSORS in file
            save_torch_state_dict(
                named, folder, filename_pattern=pattern, max_shard_size=size, safe_serialization=safe
            )
        elif file == "tokenizer.json":
            tokenizer.backend_tokenizer.save(str(folder / file))
        elif file == "tokenizer_config.json":
            (folder / file).write_text(json.dumps(special))
        elif file.startswith("vocab."):
            tokenizer.backend_tokenizer.model.save(str(folder))
        else:
            (folder / file).write_bytes(b"not read")
    return weights, tokenizer


@pytest.mark.parametrize(
    ("case", "is_wide"),
    [
        *((case, False) for case in (*QUICK, *LAYOUTS)),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in PUBLISHED),
    ],
)
def test_a_published_model_trains_and_is_read_by_transformers(tmp_path, data, case, is_wide):
    name, *layout = LAYOUTS.get(case, (case,))
    config, *published = PUBLISHED[name]
    files, renamed = layout or published
    sizes = {"num_hidden_layers": 2} if is_wide else SMALL
    if not is_wide or name.endswith(("e5-large", "Embedding-0.6B")):
        sizes = sizes | {key: config[key] % 120_000 for key in IDS if key in config}
    config = config | sizes
    hub = tmp_path / "hub"
    run = tmp_path / "run"
    published, tokenizer = publish(hub, name, config, files, renamed)
    changes = {"model__name": hub, "train__max_steps": 2, "train__batch_size": 4, "data__max_length": 64}
    # So small that the weights are still those of the hub
    changes |= {"train__learning_rate": 1e-6, "train__head_learning_rate": 1e-6, "data__limit": 60}
    # Else AdamW keeps gigabytes for the words of XLM-R
    if config["hidden_size"] >= 1024 or config["hidden_size"] * config["vocab_size"] > 10**8:
        changes |= {"model__lora_rank": 4}
    assert main("single", "", settings(data, run, {}, **changes)) == 0

    for key, value in load_file(run / TENSORS).items():
        start = published.get(key, published.get(key.partition(".")[2]))
        if start is None:
            assert key.startswith(("classifier.", "score.", "pooler.")), key
        else:
            assert value.shape == start.shape, key
            assert (value - start.float()).abs().max() <= 1e-5, key
    classify = transformers.pipeline("text-classification", str(run))
    for row in read_predictions(run / "predictions.csv"):
        [answer] = classify(row["text"])
        assert answer["label"] == row["predicted"]
        assert answer["score"] == pytest.approx(float(row[f"p_{answer['label']}"]), abs=1e-5)
        assert classify.tokenizer(row["text"])["input_ids"] == tokenizer(row["text"])["input_ids"]


@pytest.mark.parametrize("name", [MACBERT, "intfloat/multilingual-e5-base"])
def test_without_a_vocabulary_nothing_is_trained(tmp_path, data, capsys, name):
    """transformers makes a tokenizer of special tokens, for which every text is unknown."""
    publish(tmp_path / "hub", name, PUBLISHED[name][0] | SMALL, [TENSORS, "tokenizer_config.json"], {})
    assert main("single", "", [*data, f"--model.name={tmp_path / 'hub'}"]) == 2
    assert "there is no file with its vocabulary" in capsys.readouterr().err
