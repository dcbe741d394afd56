"""Chinese words over the tokens of a table: which token belongs to the same word as the one before it. One
byte for each token, in the order of the token store, on disk and memory-mapped."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from ..errors import InputError
from .cache import build_once, content_key
from .long_texts import RowEncoder
from .table import Table
from .tokens import CHUNK, TokenStore

VERSION = 2
FILE = "continues.bin"


def open_words(table: Table, store: TokenStore, tokenizer, cache_dir: str) -> np.ndarray:
    """Return whether each token of a store continues a word, (num_tokens,) uint8, memory-mapped. Words are
    those of jieba. Raises InputError where rjieba is not installed."""
    try:
        installed = version("rjieba")
    except PackageNotFoundError as error:
        raise InputError("data.whole_words needs rjieba: pip install -r requirements/words.txt") from error
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    key = content_key("words", VERSION, store.folder.name, installed)
    arguments = (table, backend.to_str(), store.max_length, tokenizer.truncation_side)
    folder = build_once(Path(cache_dir) / f"words-{key}", build_words, *arguments)
    return np.memmap(folder / FILE, np.uint8, "r")


def build_words(folder: Path, table: Table, definition: str, max_length: int, side: str) -> None:
    """Cut the texts of a table into words, on one core, and write which tokens continue one."""
    import rjieba
    from tokenizers import Tokenizer

    encoder = RowEncoder(Tokenizer.from_str(definition), None)
    encoder.tokenizer.enable_truncation(max_length, direction=side)
    with (folder / FILE).open("wb") as file:
        for start in range(0, table.num_rows, CHUNK):
            texts = table.texts(np.arange(start, min(start + CHUNK, table.num_rows)))
            texts = [encoder.separated(text) for text in texts]
            for text, encoding in zip(texts, encoder.tokenizer.encode_batch(texts), strict=True):
                file.write(continued(rjieba.cut(text), encoding).tobytes())


def continued(words: list[str], encoding) -> np.ndarray:
    """Return whether each token continues the word before, (length,) uint8; special tokens never do. `words`
    make up the text that was encoded. A token with characters of two words belongs to the first."""
    word_of_character = np.repeat(np.arange(len(words)), [len(word) for word in words])
    first = np.array([start for start, _ in encoding.offsets], dtype=np.int64)
    word = word_of_character[np.minimum(first, len(word_of_character) - 1)]
    word = np.where(np.asarray(encoding.special_tokens_mask, dtype=bool), -1, word)
    return np.concatenate([[False], (word[1:] == word[:-1]) & (word[1:] >= 0)]).astype(np.uint8)
