"""A table -> its token store: every row tokenised once, flat on disk, memory-mapped by every process.

A store is a folder: `tokens.bin` (all rows end to end, special tokens included; uint16 if the vocabulary is small enough,
else int32), `offsets.npy` (num_rows + 1,), `cut.npy` (whether a row was longer than max_length) and, for sentence pairs
of models that tell the two texts apart, `second_starts.npy` (the number of tokens before the second text).
"""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np

from app.data.cache import build_once, content_key
from app.data.table import Table

VERSION = 1
CHUNK = 8192  # rows tokenised at once
RELEASE_EVERY = 512  # rows read, after which mapped pages are released; each row maps 64 KiB around it


class TokenStore:
    """The tokens of one table; `tokens` is flat, row `i` is `tokens[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "store.json").read_text())
        self.max_length: int = meta["max_length"]
        self.unknown_tokens: int = meta["unknown_tokens"]
        self.tokens = np.memmap(folder / "tokens.bin", np.dtype(meta["dtype"]), "r")
        self.offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        self.cut = np.load(folder / "cut.npy", mmap_mode="r")
        self.second_starts = np.load(folder / "second_starts.npy", mmap_mode="r") if meta["has_second"] else None
        self._read = 0

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, (num_rows,) int64."""
        return np.diff(self.offsets)

    def row(self, row: int) -> np.ndarray:
        """Return the token ids of one row, (length,)."""
        start, end = self.offsets[row], self.offsets[row + 1]
        self._read += 1
        return self.tokens[start:end]

    def release(self) -> None:
        """Return mapped pages to the system from time to time, so that a large store does not stay in memory."""
        if self._read > RELEASE_EVERY and hasattr(mmap, "MADV_DONTNEED"):
            self.tokens._mmap.madvise(mmap.MADV_DONTNEED)
            self._read = 0


def open_store(table: Table, tokenizer, max_length: int, cache_dir: str) -> TokenStore:
    """Return the token store of a table; tokenises it only if the cache has none for this table, tokenizer and length."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    definition = backend.to_str()
    side = tokenizer.truncation_side
    key = content_key("tokens", VERSION, table.folder.name, definition, max_length, side)
    folder = Path(cache_dir) / f"tokens-{key}"
    return TokenStore(
        build_once(folder, build_store, table.folder, definition, max_length, tokenizer.unk_token_id, side)
    )


def build_store(
    folder: Path, table_folder: Path, definition: str, max_length: int, unknown_id: int | None, side: str = "right"
) -> None:
    """Tokenise a table into `folder`, on all cores; needs memory for a few chunks and 13 bytes per row."""
    from tokenizers import Tokenizer
    from tqdm import tqdm

    table = Table(table_folder)
    tokenizer = Tokenizer.from_str(definition)
    tokenizer.enable_truncation(max_length, direction=side)
    dtype = np.dtype(np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.int32)
    lengths, cut, second_starts = array("i"), array("b"), array("i")
    unknown = 0
    with (
        (folder / "tokens.bin").open("wb") as tokens,
        tqdm(total=table.num_rows, desc="tokenise", unit=" rows", unit_scale=True, disable=None, delay=2) as progress,
    ):
        for encodings in encoded_chunks(table, tokenizer):
            ids = [encoding.ids for encoding in encodings]
            chunk = np.fromiter(chain.from_iterable(ids), dtype)
            tokens.write(chunk.tobytes())
            unknown += 0 if unknown_id is None else int((chunk == unknown_id).sum())
            lengths.extend(map(len, ids))
            cut.extend(bool(encoding.overflowing) for encoding in encodings)
            if table.has_pairs:
                type_ids = (encoding.type_ids for encoding in encodings)
                second_starts.extend(types.index(1) if 1 in types else len(types) for types in type_ids)
            progress.update(len(encodings))
    has_second = bool((np.asarray(second_starts) < np.asarray(lengths)).any()) if table.has_pairs else False
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))
    np.save(folder / "cut.npy", np.asarray(cut, dtype=np.uint8))
    if has_second:
        np.save(folder / "second_starts.npy", np.asarray(second_starts))
    meta = {
        "dtype": dtype.name,
        "max_length": max_length,
        "unknown_tokens": unknown,
        "has_second": has_second,
        "num_rows": table.num_rows,
    }
    (folder / "store.json").write_text(json.dumps(meta))


def encoded_chunks(table: Table, tokenizer) -> Iterator[list]:
    """Yield lists of encodings, of `CHUNK` rows each.

    The next chunk is encoded, on all cores and without the GIL, while the caller works on the one before.
    """

    def encode(rows: np.ndarray) -> list:
        texts = table.texts(rows)
        if table.has_pairs:
            texts = list(zip(texts, table.pairs(rows), strict=True))
        return tokenizer.encode_batch_fast(texts)

    with ThreadPoolExecutor(1) as pool:
        following = None
        for start in range(0, table.num_rows, CHUNK):
            rows = np.arange(start, min(start + CHUNK, table.num_rows))
            current, following = following, pool.submit(encode, rows)
            if current:
                yield current.result()
        if following:
            yield following.result()
