"""Tiny models, rows and data files for the tests; nothing is downloaded."""

from __future__ import annotations

import random
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification, BertTokenizer

from app.batching.collate import RowKeys, StepMasks, keys_of_rows
from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import Dataset, open_dataset
from app.model.build_model import build_masked_model, build_model
from app.model.classifier import Classifier
from app.model.masked_model import MaskedLanguageModel
from app.model.tokenizer import load_tokenizer
from app.training.build import open_stores

# Tensors this small are faster so, above all beside other work
torch.set_num_threads(1)
# In the order of their ids
LABELS = ["中性", "正面", "负面"]
WORDS = {"负面": "差坏烂臭烦气", "中性": "书桌门窗椅柜", "正面": "好棒美赞爱喜"}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def tiny_tokenizer(pad_id: int = 0, characters: Iterable[str] = "abcdefghijklmnop") -> BertTokenizer:
    """Return a WordPiece tokenizer of single characters whose padding token has the id `pad_id`."""
    tokens = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens.insert(pad_id, "[PAD]")
    return BertTokenizer({token: index for index, token in enumerate([*tokens, *characters])})


def tiny_model(
    architecture: str = "bert", pad_id: int = 0, dropout: float = 0.0, masked: bool = False, **config
) -> Classifier | MaskedLanguageModel:
    """Return a random model in evaluation mode; its weights are large enough for logits that differ. With
    `masked` it predicts masked tokens."""
    torch.manual_seed(0)
    sizes = SIZES | {"initializer_range": 0.2, "max_position_embeddings": 64} | config
    settings = ModelConfig("random", architecture=architecture, config=sizes, dropout=dropout)
    if masked:
        return build_masked_model(settings, tiny_tokenizer(pad_id), 32).eval()
    return build_model(settings, tiny_tokenizer(pad_id), LABELS, 32).eval()


def plain_model(model: Classifier) -> torch.nn.Module:
    """Return transformers' own model with the same weights, whose attention is written out in Python."""
    config = deepcopy(model.model.config)
    plain = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    plain.load_state_dict(model.model.state_dict())
    return plain.train(model.training)


def row_keys(num_rows: int, step: int = 0) -> RowKeys:
    """Return the keys of the first rows of a table in a step, for `collate` in training."""
    return keys_of_rows(StepMasks(seed=1, step=step), np.arange(num_rows))


def token_rows(lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    """Return rows of random token ids, none of them a special token, as a token store has them."""
    generator = np.random.default_rng(seed)
    return [generator.integers(5, 21, length).astype(np.uint16) for length in lengths]


def tiny_lines(rows_per_label: int, pairs: bool = False, seed: int = 0) -> list[str]:
    """Return the lines of a TSV file; texts of different labels have different characters."""
    generator = random.Random(seed)

    def text(words: str) -> str:
        return "".join(generator.choices(words + "的一", k=generator.randint(2, 14)))

    rows = []
    for number in range(rows_per_label):
        for label in LABELS:
            texts = [f"{text(WORDS[label])}{number}"] + ([text(WORDS[label])] if pairs else [])
            rows.append("\t".join([*texts, label]))
    generator.shuffle(rows)
    return ["\t".join(["text", *(["other"] if pairs else []), "label"]), *rows]


def write_tiny(path: Path, rows_per_label: int = 20, pairs: bool = False, seed: int = 0) -> Path:
    """Write a TSV data file and return its path."""
    path.write_text("\n".join(tiny_lines(rows_per_label, pairs, seed)) + "\n", encoding="utf-8")
    return path


def open_tiny(folder: Path, pairs: bool = False) -> tuple[Dataset, object, dict]:
    """Return the dataset of a file in `folder`, its tokenizer, and the token store of each split."""
    files = {"train": str(write_tiny(folder / "rows.tsv", pairs=pairs)), "cache_dir": str(folder / "cache")}
    data = DataConfig(**files, text_pair_column="other" if pairs else None, max_length=32)
    dataset = open_dataset(data)
    tokenizer = load_tokenizer(ModelConfig("random"), dataset, data.max_length, data.cache_dir)
    return dataset, tokenizer, open_stores(dataset, tokenizer, data)


class CountCasts(TorchDispatchMode):
    """Counts the casts of weights to bf16."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.addresses = {parameter.data_ptr() for parameter in model.parameters()}
        self.num_casts = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        # In inference mode it is the second one
        if function in (torch.ops.aten._to_copy.default, torch.ops.aten.to.dtype):
            is_cast = result.dtype == torch.bfloat16 and result.dtype != args[0].dtype
            self.num_casts += is_cast and args[0].data_ptr() in self.addresses
        return result
