"""Random classifiers saved as by transformers, texts for them, and transformers' own predictions."""

import json
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
    "bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    | {"max_position_embeddings": 64},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 64},
    "xlnet": {"d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 64},
}
# What `save_checkpoint` needs for a model that gives a number from about 0 to 100
NUMBER = {"num_labels": 1, "id2label": {0: "score"}, "label2id": {"score": 0}, "problem_type": "regression"}
NUMBER |= {"decision": {"mean": 50.0, "scale": 20.0}}


def several_labels(*thresholds: float) -> dict:
    """Return what `save_checkpoint` needs for several labels a row, with the thresholds of LABELS."""
    decision = {"thresholds": dict(zip(LABELS, thresholds, strict=True)), "chosen_on": "dev", "rows": 800}
    return {"problem_type": "multi_label_classification", "decision": decision}


def save_checkpoint(folder: Path, architecture: str = "bert", decision: dict | None = None, **config) -> Path:
    """Save a random classifier, as any transformers user would, with weights large enough for labels that
    differ; `decision` is what a run adds about its decision."""
    torch.manual_seed(0)
    labels = {"num_labels": 3, "id2label": dict(enumerate(LABELS))}
    labels |= {"label2id": {name: number for number, name in enumerate(LABELS)}}
    sizes = SIZES.get(architecture, SIZES["bert"]) | {"vocab_size": len(VOCABULARY), "pad_token_id": 0}
    config = AutoConfig.for_model(architecture, **sizes | labels | config)
    model = AutoModelForSequenceClassification.from_config(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer = BertTokenizer({token: index for index, token in enumerate(VOCABULARY)})
    tokenizer.model_max_length = 60
    tokenizer.save_pretrained(folder)
    if decision:
        (folder / "decision.json").write_text(json.dumps(decision), encoding="utf-8")
    return folder


def random_texts(count: int) -> list[str]:
    """Return texts of very different lengths, some above the model's, with spaces and unknown characters."""
    generator = random.Random(0)
    return [
        "".join(generator.choices(CHARACTERS + "鼎", k=generator.choice([1, 2, 7, 30, 58, 90])))
        + f" {CHARACTERS[n % 9]}"
        for n in range(count)
    ]


def of_pipeline(folder: Path, inputs: list) -> np.ndarray:
    """Return transformers' own probabilities, (num_rows, num_labels), one row at a time without padding."""
    classify = pipeline("text-classification", model=str(folder))
    scores_of_rows = []
    for row in inputs:
        entries = classify(row, truncation=True, top_k=None)
        scores_of_rows.append({entry["label"]: entry["score"] for entry in entries})
    return np.array([[scores[label] for label in LABELS] for scores in scores_of_rows])


def as_rows(texts: list[str], pairs: list[str] | None = None) -> list[Row]:
    return [Row(n, text, pairs[n - 1] if pairs else None, None) for n, text in enumerate(texts, 1)]
