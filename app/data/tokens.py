"""A table -> its token store: every row tokenised once, flat on disk, memory-mapped by every process.

A store is a folder: `tokens.bin` (all rows end to end, special tokens included; uint16 if the vocabulary is
small enough, else int32), `offsets.npy` (num_rows + 1,), `cut.npy` (whether a text has more tokens) and, for
pairs where a model tells the two texts apart, `second_starts.npy` (the number of tokens before the second
text). Where long texts are read in windows, a row has the tokens of all its windows, one after the other, and
`window_ends.npy` (num_windows,) and `first_windows.npy` (num_rows + 1,) say where they are.
"""

import json
import mmap
from dataclasses import asdict
from pathlib import Path

import numpy as np

from .cache import build_once, content_key
from .encoded_parts import EncodingJob, encode_parts, token_dtype
from .long_texts import CUT, LongTexts
from .table import Table

VERSION = 2
# Rows read, after which mapped pages are released; each row maps 64 KiB around it
RELEASE_EVERY = 512


class TokenStore:
    """The tokens of one table; `tokens` is flat, row `i` is `tokens[offsets[i]:offsets[i + 1]]`.
    `has_windows`: a row has one or more windows of at most `max_length` tokens; else it has one."""

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
        return self.max_length * (self.long.max_windows if self.has_windows else 1)

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
        """Return mapped pages to the system from time to time: a large store is not to stay in memory."""
        if self._read > RELEASE_EVERY and hasattr(mmap, "MADV_DONTNEED"):
            self.tokens._mmap.madvise(mmap.MADV_DONTNEED)
            self._read = 0


def open_store(
    table: Table,
    tokenizer,
    max_length: int,
    cache_dir: str,
    long: LongTexts = CUT,
    workers: int | None = None,
) -> TokenStore:
    """Return the token store of a table; tokenises it in `workers` processes unless the cache has it."""
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    definition = backend.to_str()
    side = tokenizer.truncation_side
    key = content_key("tokens", VERSION, table.folder.name, definition, max_length, side, asdict(long))
    arguments = (table.folder, definition, max_length, tokenizer.unk_token_id, side, long, workers)
    folder = Path(cache_dir) / f"tokens-{key}"
    return TokenStore(build_once(folder, build_store, *arguments, num_bytes=table.num_bytes))


def build_store(
    folder: Path,
    table_folder: Path,
    definition: str,
    max_length: int,
    unknown_id: int | None,
    side: str = "right",
    long: LongTexts = CUT,
    workers: int | None = 1,
) -> None:
    """Tokenise a table into `folder`, in `workers` processes (None: one on all cores), with the same bits.
    Needs memory for a few chunks in each, 13 bytes per row and 8 per window."""
    from tokenizers import Tokenizer

    table = Table(table_folder)
    job = EncodingJob(table_folder, definition, max_length, unknown_id, side, long)
    unknown, (lengths, counts, cut, second_starts) = encode_parts(folder, job, table, workers or 1)
    has_second = bool((second_starts < lengths).any()) if table.has_pairs else False
    offsets, first_windows = (
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) for sizes in (lengths, counts)
    )
    np.save(folder / "offsets.npy", offsets[first_windows] if long.way == "windows" else offsets)
    np.save(folder / "cut.npy", cut)
    if has_second:
        np.save(folder / "second_starts.npy", second_starts)
    meta = {
        "dtype": token_dtype(Tokenizer.from_str(definition)).name,
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
