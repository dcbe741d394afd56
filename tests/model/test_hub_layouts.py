"""The models that docs/models.md names, as the hub has them but with random weights; nothing was downloaded:
python -m pytest tests/model/test_hub_layouts.py

As published are the values of config.json, the names of files and weights, and the ids of special tokens. The
quick tests take two narrow layers and a part of long vocabularies; the slow ones six layers and all the rest.
"""

import csv
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

from app.data.tokenizer import gb2312_characters
from app.run import main

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 96}
BASE, LARGE = (768, 12, 12, 3072), (1024, 24, 16, 4096)
BIN, TENSORS = "pytorch_model.bin", "model.safetensors"
OTHERS = ["tf_model.h5", "flax_model.msgpack", "onnx/model.onnx"]
JSON = ["tokenizer.json", "tokenizer_config.json"]
QWEN3_FILES = [TENSORS, "vocab.json", *JSON]
OLD_NORMS = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


def shape(architecture: str, model_type: str, sizes: tuple[int, ...], positions: int, **values) -> dict:
    values |= {"architectures": [architecture], "model_type": model_type}
    return values | {"max_position_embeddings": positions} | dict(zip(SIZES, sizes, strict=True))


def bert(*sizes: int, architecture: str = "BertForMaskedLM", **values) -> dict:
    values |= {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0, "directionality": "bidi"}
    return shape(architecture, "bert", sizes, 512, **values)


def ernie(*sizes: int, tasks: int = 16) -> tuple:
    values = {
        "type_vocab_size": 4,
        "task_type_vocab_size": tasks,
        "use_task_id": True,
        "layer_norm_eps": 1e-5,
    }
    of_ernie = shape("ErnieForMaskedLM", "ernie", (*sizes, 40000), 2048, **values)
    return of_ernie, [BIN, "vocab.txt"], OLD_NORMS


def xlm_roberta(*sizes: int) -> tuple:
    values = {"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    of_e5 = shape("XLMRobertaModel", "xlm-roberta", (*sizes, 250002), 514, **values)
    return of_e5, [TENSORS, BIN, *JSON], {}


def qwen3(vocabulary: int, positions: int, **values) -> dict:
    values |= {"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 1000000, "rope_scaling": None}
    values |= {"torch_dtype": "bfloat16", "tie_word_embeddings": True, "use_sliding_window": False}
    values |= {"bos_token_id": 151643, "rms_norm_eps": 1e-6, "max_window_layers": 28}
    return shape("Qwen3ForCausalLM", "qwen3", (1024, 28, 16, 3072, vocabulary), positions, **values)


MODERNBERT = {"global_attn_every_n_layers": 3, "local_attention": 128, "norm_eps": 1e-5}
MODERNBERT |= {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "classifier_pooling": "mean"}
MODERNBERT |= {"pad_token_id": 50283, "cls_token_id": 50281, "sep_token_id": 50282}
MODERNBERT = shape("ModernBertForMaskedLM", "modernbert", (768, 22, 12, 1152, 50368), 8192, **MODERNBERT)
DEBERTA = {"relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm"}
DEBERTA |= {"share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
DEBERTA = shape("DebertaV2ForMaskedLM", "deberta-v2", (*BASE, 12800), 512, type_vocab_size=0, **DEBERTA)
ELECTRA = shape("ElectraForPreTraining", "electra", (*BASE, 21128), 512, type_vocab_size=2, embedding_size=24)
E5 = {"architecture": "BertModel", "tokenizer_class": "XLMRobertaTokenizer"}
BGE = bert(512, 4, 8, 2048, 21128, architecture="BertModel")
MACBERT, ERLANGSHEN = "hfl/chinese-macbert-base", "IDEA-CCNL/Erlangshen-DeBERTa-v2-97M-Chinese"
# The configuration of a model, its files, and parts of the names of its weights where others are usual today
PUBLISHED = {
    "bert-base-chinese": (bert(*BASE, 21128), [TENSORS, BIN, "vocab.txt", *JSON, *OTHERS], OLD_NORMS),
    # As chinese-roberta-wwm-ext and chinese-bert-wwm-ext
    MACBERT: (bert(*BASE, 21128), [BIN, "vocab.txt", *JSON, *OTHERS], {}),
    "hfl/chinese-roberta-wwm-ext-large": (bert(*LARGE, 21128), [BIN, "vocab.txt", *JSON, *OTHERS], {}),
    "nghuyong/ernie-3.0-base-zh": ernie(*BASE, tasks=3),
    "nghuyong/ernie-3.0-mini-zh": ernie(384, 6, 12, 1536),
    "nghuyong/ernie-3.0-micro-zh": ernie(384, 4, 12, 1536),
    "nghuyong/ernie-3.0-nano-zh": ernie(312, 4, 12, 1248),
    "BAAI/bge-small-zh-v1.5": (BGE, [TENSORS, BIN, "vocab.txt", *JSON], {}),
    "intfloat/multilingual-e5-small": (bert(384, 12, 12, 1536, 250037, **E5), [TENSORS, BIN, *JSON], {}),
    "intfloat/multilingual-e5-base": xlm_roberta(*BASE),
    "intfloat/multilingual-e5-large": xlm_roberta(*LARGE),
    "Qwen/Qwen3-0.6B": (qwen3(151936, 40960, eos_token_id=151645), QWEN3_FILES, {}),
    "Qwen/Qwen3-Embedding-0.6B": (qwen3(151669, 32768, eos_token_id=151643), QWEN3_FILES, {"model.": ""}),
    "hfl/chinese-electra-180g-base-discriminator": (ELECTRA, [BIN, "vocab.txt", *JSON], {}),
    "answerdotai/ModernBERT-base": (MODERNBERT, [TENSORS, BIN, *JSON], {}),
    ERLANGSHEN: (DEBERTA, [BIN, "vocab.txt", "tokenizer_config.json"], {}),
}
# The others have the same files
QUICK = [name for name in PUBLISHED if not name.endswith(("-large", "-mini-zh", "-micro-zh", "-nano-zh"))]
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
    rest = iter([*pieces, *(f"[unused{number}]" for number in range(size))])
    return {places[index] if index in places else next(rest): index for index in range(size)}


def make_tokenizer(name: str, config: dict) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the published class, size and special tokens; others are characters, or bytes."""
    kind, size = config["model_type"], config["vocab_size"]
    alphabet, characters = sorted(pre_tokenizers.ByteLevel.alphabet()), [*string.digits, *gb2312_characters()]
    if kind == "qwen3":
        end = config["bos_token_id"]
        places = {end: "<|endoftext|>", end + 1: "<|im_start|>", end + 2: "<|im_end|>"}
        tokenizer = Qwen2Tokenizer(vocabulary(end + 3, places, alphabet), [], eos_token="<|im_end|>")
        if "Embedding" in name:
            template = processors.TemplateProcessing("$A <|endoftext|>", special_tokens=[(places[end], end)])
            tokenizer.backend_tokenizer.post_processor = template
        return tokenizer
    if kind == "modernbert":
        names = ("unk", "cls", "sep", "pad", "mask")
        places = {50280 + index: f"[{name.upper()}]" for index, name in enumerate(names)}
        backend = Tokenizer(models.BPE(vocabulary(size, places, alphabet), []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        ends = [("[CLS]", 50281), ("[SEP]", 50282)]
        backend.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
        special = {f"{name}_token": f"[{name.upper()}]" for name in names}
        return PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    if "e5" in name:
        size -= 35 if kind == "bert" else 0
        places = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>", 4: "\u2581", size - 1: "<mask>"}
        pieces = vocabulary(size, places, characters)
        return XLMRobertaTokenizer([(piece, -10.0 if index > 3 else 0.0) for piece, index in pieces.items()])
    places = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}
    if kind == "ernie":
        places = {0: "[PAD]", 1: "[CLS]", 2: "[SEP]", 3: "[MASK]", 17963: "[UNK]"}
    return BertTokenizer(vocabulary(size, places, characters))


def publish(folder: Path, name: str, config: dict, files: list[str], renamed: dict[str, str]) -> dict:
    """Write a model as the hub has it; return its weights by transformers' names."""
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
        parameter.data += 0.02 * torch.randn_like(parameter)
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
        if file.startswith((TENSORS, BIN)):
            pattern = file.removesuffix(".index.json").replace(".", "{suffix}.")
            size, safe = "1MB" if file.endswith(".index.json") else "9GB", TENSORS in file
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
    return weights


def check(tmp_path: Path, data: list[str], name: str, config: dict, files: list[str], renamed: dict) -> None:
    """Train five steps on a published model, and read the run with transformers."""
    hub, run = tmp_path / "hub", tmp_path / "run"
    published = publish(hub, name, config, files, renamed)
    settings = [*data, f"--model.name={hub}", f"--output.dir={run}", "--output.trackers=[]"]
    settings += [f"--train.{key}" for key in ("max_steps=5", "batch_size=4", "device=cpu", "precision=fp32")]
    # So small that the weights are still those of the hub
    settings += ["--train.learning_rate=1e-6", "--train.head_learning_rate=1e-6", "--data.max_length=64"]
    if config["hidden_size"] >= 1024:
        settings.append("--model.lora_rank=4")
    assert main("single", "", settings) == 0

    for key, value in load_file(run / TENSORS).items():
        start = published.get(key, published.get(key.partition(".")[2]))
        if start is None:
            assert key.startswith(("classifier.", "score.", "pooler.")), key
        else:
            torch.testing.assert_close(value, start.float(), atol=1e-5, rtol=0)
    with (run / "predictions.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    classify = transformers.pipeline("text-classification", str(run))
    tokenizer = make_tokenizer(name, config)
    for row in rows:
        [answer] = classify(row["text"])
        assert answer["label"] == row["predicted"]
        assert answer["score"] == pytest.approx(float(row[f"p_{answer['label']}"]), abs=1e-5)
        assert classify.tokenizer(row["text"])["input_ids"] == tokenizer(row["text"])["input_ids"]


@pytest.mark.parametrize("case", [*QUICK, *LAYOUTS])
def test_a_small_model_in_its_files(tmp_path, data, case):
    name, *layout = LAYOUTS.get(case, (case,))
    config, *published = PUBLISHED[name]
    small = config | SMALL
    for key in small.keys() & {"vocab_size", "bos_token_id", "eos_token_id"}:
        small[key] %= 120_000
    check(tmp_path, data, name, small, *(layout or published))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_as_wide_as_published_in_its_files(tmp_path, data, name):
    config, files, renamed = PUBLISHED[name]
    layers = {"num_hidden_layers": min(6, config["num_hidden_layers"])}
    check(tmp_path, data, name, config | layers, files, renamed)


@pytest.mark.parametrize("name", [MACBERT, "intfloat/multilingual-e5-base"])
def test_without_a_vocabulary_nothing_is_trained(tmp_path, data, capsys, name):
    """transformers makes a tokenizer of special tokens, for which every text is unknown."""
    publish(tmp_path / "hub", name, PUBLISHED[name][0] | SMALL, [TENSORS, "tokenizer_config.json"], {})
    assert main("single", "", [*data, f"--model.name={tmp_path / 'hub'}"]) == 2
    assert "there is no file with its vocabulary" in capsys.readouterr().err
