"""A table -> its token store: every row tokenised once, flat on disk, memory-mapped by every process.

A store is a folder: `tokens.bin` (all rows end to end, special tokens included; uint16 if the vocabulary is
small enough, else int32), `offsets.npy` (num_rows + 1,), `cut.npy` (whether a text has more tokens) and, for
pairs where a model tells the two texts apart, `second_starts.npy` (the number of tokens before the second
text). Where long texts are read in windows, a row has the tokens of all its windows, one after the other, and
`window_ends.npy` (num_windows,) and `first_windows.npy` (num_rows + 1,) say where they are.
"""

from __future__ import annotations

import json
import mmap
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np

from .cache import build_once, content_key
from .long_texts import CUT, EncodedRows, LongTexts, RowEncoder, definition_of, highest_id
from .table import Table

VERSION = 3
RELEASE_EVERY = 512  # rows read, after which mapped pages are released; each row maps 64 KiB around it
CHUNK, CHUNK_BYTES = 8192, 1 << 23  # rows tokenised at once, and bytes of their texts


class TokenStore:
    """The tokens of one table; `tokens` is flat, row `i` is `tokens[offsets[i]:offsets[i + 1]]`.
    `has_windows`: a row has one or more windows of at most `max_length` tokens; else it has one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "store.json").read_text())
        self.max_length: int = meta["max_length"]
        self.unknown_tokens: int = meta["unknown_tokens"]
        self.long = LongTexts(*meta["long"])
        self.has_windows = self.long.way == "windows"
        self.tokens = np.memmap(folder / "tokens.bin", np.dtype(meta["dtype"]), "r")
        arrays = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
        self.offsets, self.cut = arrays["offsets"], arrays["cut"]
        self.second_starts = arrays.get("second_starts")
        self.first_windows, self.window_ends = arrays.get("first_windows"), arrays.get("window_ends")
        self._read = 0

    def row(self, row: int) -> np.ndarray:
        """Return the token ids of one row, (length,)."""
        self._read += 1
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def windows(self, row: int) -> list[np.ndarray]:
        """Return the token ids of each window of a row, (length,)."""
        if not self.has_windows:
            return [self.row(row)]
        ends = self.window_ends[self.first_windows[row] : self.first_windows[row + 1]] - self.offsets[row]
        return np.split(self.row(row), ends[:-1])

    def release(self) -> None:
        """Return mapped pages to the system after every `RELEASE_EVERY` rows, so that a large store does not
        stay in memory."""
        if self._read > RELEASE_EVERY and hasattr(mmap, "MADV_DONTNEED"):
            self.tokens._mmap.madvise(mmap.MADV_DONTNEED)
            self._read = 0


def open_store(table: Table, tokenizer, max_length: int, cache_dir: str, long: LongTexts = CUT) -> TokenStore:
    """Return the token store of a table; tokenises it as `build_store` does unless the cache has it. Raises
    InputError for a text without a token, and the errors of `build_once`."""
    encoding = definition_of(tokenizer.backend_tokenizer), max_length, tokenizer.truncation_side, long
    key = content_key("tokens", VERSION, table.key, tokenizer.unk_token_id, encoding)
    folder, arguments = Path(cache_dir) / f"tokens-{key}", (table, encoding, tokenizer.unk_token_id)
    return TokenStore(build_once(folder, build_store, *arguments, num_bytes=table.num_bytes))


def build_store(folder: Path, table: Table, encoding: tuple, unknown_id: int | None) -> None:
    """Tokenise a table into `folder`, on all cores; the files are the same for any number. `encoding` has the
    arguments of RowEncoder, the tokenizer as JSON. Needs memory for a few chunks, and 13 bytes a row and 8 a
    window."""
    from tokenizers import Tokenizer
    from tqdm import tqdm

    definition, max_length, side, long = encoding
    tokenizer = Tokenizer.from_str(definition)
    dtype = np.dtype(np.uint16 if highest_id(tokenizer) < 1 << 16 else np.int32)
    encoder = RowEncoder(tokenizer, max_length, side, long)

    def encode(rows: range) -> EncodedRows:
        return encoder.encode(table.texts(np.asarray(rows)), lambda at: table.where(rows[at]))

    ends, starts = np.cumsum(table.sizes), [0]
    while (start := starts[-1]) < len(ends):
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))
        starts.append(min(start + CHUNK, max(fitting, start + 1), len(ends)))
    unknown, parts = 0, []
    # A rank may tokenise: see ProgressBar for its lock
    tqdm.set_lock(threading.RLock())
    bar = {"desc": "tokenise", "unit": " rows", "unit_scale": True, "disable": None, "delay": 2}
    with (
        tqdm(total=table.num_rows, **bar) as progress,
        (folder / "tokens.bin").open("wb") as file,
        ThreadPoolExecutor(2) as pool,
    ):
        # A chunk is encoded, on all cores, while the one before becomes arrays
        for encoded in pool.map(encode, [range(*bounds) for bounds in pairwise(starts)]):
            encoded.tokens.astype(dtype).tofile(file)
            unknown += 0 if unknown_id is None else int((encoded.tokens == unknown_id).sum())
            parts.append(encoded[1:])
            progress.update(len(encoded.counts))
    lengths, counts, cut = (np.concatenate([part[at] for part in parts]) for at in range(3))
    offsets, first_windows = (np.r_[0, np.cumsum(sizes, dtype=np.int64)] for sizes in (lengths, counts))
    arrays = {"offsets": offsets[first_windows], "cut": cut.astype(np.uint8)}
    if table.has_pairs:
        second_starts = np.concatenate([part[3] for part in parts])
        if (second_starts < lengths).any():
            arrays["second_starts"] = second_starts
    if long.way == "windows":
        arrays |= {"window_ends": offsets[1:], "first_windows": first_windows}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    meta = {"dtype": dtype.name, "max_length": max_length, "unknown_tokens": unknown, "long": long}
    (folder / "store.json").write_text(json.dumps(meta))
