"""A table -> its token store: every row tokenised once, flat on disk, memory-mapped by every process.

A store is a folder: `tokens.bin` (all rows end to end, special tokens included; uint16 if the vocabulary is
small enough, else int32), `offsets.npy` (num_rows + 1,), `cut.npy` (whether a text has tokens that its row
has not) and, for sentence pairs of models that tell the two texts apart, `second_starts.npy` (the number of
tokens before the second text). Where long texts are read in windows, a row has the tokens of all its windows,
one after the other, and `window_ends.npy` (num_windows,) and `first_windows.npy` (num_rows + 1,) say where
they are.
"""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np

from .cache import build_once, content_key
from .encoding import highest_id
from .long_texts import CUT, EncodedRow, LongTexts
from .row_encoder import RowEncoder
from .table import Table

VERSION = 2
# Rows tokenised at once
CHUNK = 8192
# Of their texts
CHUNK_BYTES = 1 << 25
# Rows read, after which mapped pages are released; each row maps 64 KiB around it
RELEASE_EVERY = 512


class TokenStore:
    """The tokens of one table; `tokens` is flat, row `i` is `tokens[offsets[i]:offsets[i + 1]]`.

    `has_windows`: a row has one or more windows of at most `max_length` tokens; else it has one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "store.json").read_text())
        self.max_length: int = meta["max_length"]
        self.unknown_tokens: int = meta["unknown_tokens"]
        self.tokens = np.memmap(folder / "tokens.bin", np.dtype(meta["dtype"]), "r")
        self.offsets = np.load(folder / "offsets.npy", mmap_mode="r")
        self.cut = np.load(folder / "cut.npy", mmap_mode="r")
        self.second_starts = (
            np.load(folder / "second_starts.npy", mmap_mode="r") if meta["has_second"] else None
        )
        self.long = LongTexts(**meta["long"])
        self.has_windows = self.long.way == "windows"
        if self.has_windows:
            self.window_ends = np.load(folder / "window_ends.npy", mmap_mode="r")
            self.first_windows = np.load(folder / "first_windows.npy", mmap_mode="r")
        self._read = 0

    @property
    def most_tokens(self) -> int:
        """No row has more tokens."""
        return self.max_length * self.long.most_windows

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, (num_rows,) int64."""
        return np.diff(self.offsets)

    def row(self, row: int) -> np.ndarray:
        """Return the token ids of one row, (length,)."""
        start, end = self.offsets[row], self.offsets[row + 1]
        self._read += 1
        return self.tokens[start:end]

    def windows(self, row: int) -> list[np.ndarray]:
        """Return the token ids of each window of a row, (length,)."""
        tokens = self.row(row)
        if not self.has_windows:
            return [tokens]
        ends = self.window_ends[self.first_windows[row] : self.first_windows[row + 1]] - self.offsets[row]
        return np.split(tokens, ends[:-1])

    def release(self) -> None:
        """Return mapped pages to the system from time to time, so that a large store does not stay in
        memory."""
        if self._read > RELEASE_EVERY and hasattr(mmap, "MADV_DONTNEED"):
            self.tokens._mmap.madvise(mmap.MADV_DONTNEED)
            self._read = 0


def open_store(table: Table, tokenizer, max_length: int, cache_dir: str, long: LongTexts = CUT) -> TokenStore:
    """Return the token store of a table; tokenises it only if the cache has none for this table, tokenizer,
    length and `long`."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    definition = backend.to_str()
    side = tokenizer.truncation_side
    key = content_key("tokens", VERSION, table.folder.name, definition, max_length, side, asdict(long))
    arguments = (table.folder, definition, max_length, tokenizer.unk_token_id, side, long)
    return TokenStore(build_once(Path(cache_dir) / f"tokens-{key}", build_store, *arguments))


def build_store(
    folder: Path,
    table_folder: Path,
    definition: str,
    max_length: int,
    unknown_id: int | None,
    side: str = "right",
    long: LongTexts = CUT,
) -> None:
    """Tokenise a table into `folder`, on all cores; needs memory for a few chunks, and 13 bytes per row and 8
    per window."""
    from tokenizers import Tokenizer
    from tqdm import tqdm

    table = Table(table_folder)
    tokenizer = Tokenizer.from_str(definition)
    encoder = RowEncoder(tokenizer, max_length, side, long)
    dtype = np.dtype(np.uint16 if highest_id(tokenizer) < 1 << 16 else np.int32)
    # Lengths are of windows
    lengths, counts, cut, second_starts = array("i"), array("i"), array("b"), array("i")
    unknown = 0
    with (
        (folder / "tokens.bin").open("wb") as tokens,
        tqdm(
            total=table.num_rows, desc="tokenise", unit=" rows", unit_scale=True, disable=None, delay=2
        ) as progress,
    ):
        for rows in encoded_chunks(table, encoder):
            windows = [window for row in rows for window in row.windows]
            chunk = np.fromiter(chain.from_iterable(windows), dtype)
            tokens.write(chunk.tobytes())
            unknown += 0 if unknown_id is None else int((chunk == unknown_id).sum())
            lengths.extend(map(len, windows))
            counts.extend(len(row.windows) for row in rows if long.way == "windows")
            cut.extend(row.is_cut for row in rows)
            if table.has_pairs:
                second_starts.extend(row.second_start for row in rows)
            progress.update(len(rows))
    has_second = bool((np.asarray(second_starts) < np.asarray(lengths)).any()) if table.has_pairs else False
    offsets, first_windows = (
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) for sizes in (lengths, counts)
    )
    np.save(folder / "offsets.npy", offsets[first_windows] if long.way == "windows" else offsets)
    np.save(folder / "cut.npy", np.asarray(cut, dtype=np.uint8))
    if has_second:
        np.save(folder / "second_starts.npy", np.asarray(second_starts))
    meta = {
        "dtype": dtype.name,
        "max_length": max_length,
        "unknown_tokens": unknown,
        "has_second": has_second,
        "num_rows": table.num_rows,
        "long": asdict(long),
    }
    if long.way == "windows":
        np.save(folder / "window_ends.npy", offsets[1:])
        np.save(folder / "first_windows.npy", first_windows)
    (folder / "store.json").write_text(json.dumps(meta))


def encoded_chunks(table: Table, encoder: RowEncoder) -> Iterator[list[EncodedRow]]:
    """Yield lists of rows with their tokens, of `CHUNK` rows each, or fewer where texts are long.

    The next chunk is encoded, on all cores and without the GIL, while the caller works on the one before.
    """

    def encode_rows(rows: np.ndarray) -> list[EncodedRow]:
        texts = table.texts(rows)
        if table.has_pairs:
            texts = list(zip(texts, table.pairs(rows), strict=True))
        return encoder.encode(texts, lambda index: table.where(int(rows[index])))

    with ThreadPoolExecutor(1) as pool:
        following = None
        for rows in _chunks(table):
            current, following = following, pool.submit(encode_rows, rows)
            if current:
                yield current.result()
        if following:
            yield following.result()


def _chunks(table: Table) -> Iterator[np.ndarray]:
    """Yield the ids of the rows that are tokenised at once, in their order: `CHUNK` rows, `CHUNK_BYTES` or
    one row."""
    ends = table.array("text_ends") + (table.array("pair_ends") if table.has_pairs else 0)
    start = 0
    while start < table.num_rows:
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))
        stop = min(start + CHUNK, max(fitting, start + 1))
        yield np.arange(start, stop)
        start = stop
