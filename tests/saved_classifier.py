"""Random classifiers saved as any transformers user would save them, texts for them, and transformers' own
predictions."""

import random
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, BertTokenizer, pipeline

from app.data.rows import Row

CHARACTERS = "今天真开心气死我了不好喜欢讨厌电影手机质量差评快递abc，。"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(CHARACTERS)]
LABELS = ["负面", "中性", "正面"]
SIZES = {
    "bert": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    },
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 64},
    "xlnet": {"d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 64},
}


def save_checkpoint(folder: Path, architecture: str = "bert", **config) -> Path:
    """Save a random classifier, as any transformers user would, with weights large enough for labels that
    differ."""
    torch.manual_seed(0)
    labels = {"num_labels": 3, "id2label": dict(enumerate(LABELS))}
    labels |= {"label2id": {name: number for number, name in enumerate(LABELS)}}
    sizes = SIZES[architecture] | {"vocab_size": len(VOCABULARY), "pad_token_id": 0}
    model = AutoModelForSequenceClassification.from_config(
        AutoConfig.for_model(architecture, **sizes, **labels | config)
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer = BertTokenizer({token: index for index, token in enumerate(VOCABULARY)})
    tokenizer.model_max_length = 60
    tokenizer.save_pretrained(folder)
    return folder


def random_texts(count: int) -> list[str]:
    """Return texts of very different lengths, some above the model's, with spaces and unknown characters in
    them."""
    generator = random.Random(0)
    return [
        "".join(generator.choices(CHARACTERS + "鼎", k=generator.choice([1, 2, 7, 30, 58, 90])))
        + f" {CHARACTERS[n % 9]}"
        for n in range(count)
    ]


def of_pipeline(folder: Path, inputs: list) -> np.ndarray:
    """Return transformers' own probabilities, (num_rows, num_labels), one row at a time and so without any
    padding."""
    classify = pipeline("text-classification", model=str(folder))
    scores_of_rows = [
        {entry["label"]: entry["score"] for entry in classify(one, truncation=True, top_k=None)}
        for one in inputs
    ]
    return np.array([[scores[label] for label in LABELS] for scores in scores_of_rows])


def as_rows(texts: list[str], pairs: list[str] | None = None) -> list[Row]:
    return [Row(n, text, pairs[n - 1] if pairs else None, None) for n, text in enumerate(texts, 1)]
