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
import os
import shutil
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .cache import build_once, computed_apart, content_key
from .encoding import highest_id
from .long_texts import CUT, EncodedRow, LongTexts, RowEncoder
from .table import Table

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VERSION = 3
RELEASE_EVERY = 512  # rows read, after which mapped pages are released; each row maps 64 KiB around it
PART_ROWS = 500_000  # most rows that a process tokenises before another is started
CHUNK, CHUNK_BYTES = 8192, 1 << 25  # rows tokenised at once, and bytes of their texts
ARRAYS = ("lengths", "counts", "cut", "second_starts")


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
    job = EncodingJob(
        table, backend.to_str(), max_length, tokenizer.unk_token_id, tokenizer.truncation_side, long
    )
    key = content_key("tokens", VERSION, table.key, *job[1:5], asdict(long))
    folder = Path(cache_dir) / f"tokens-{key}"
    return TokenStore(build_once(folder, build_store, job, workers, num_bytes=table.num_bytes))


class EncodingJob(NamedTuple):
    """What is tokenised, and how; see `open_store`."""

    table: Table
    definition: str
    max_length: int
    unknown_id: int | None
    side: str = "right"
    long: LongTexts = CUT


def build_store(folder: Path, job: EncodingJob, workers: int | None = None) -> None:
    """Tokenise a table into `folder`, in `workers` processes (None: one on all cores), with the same bits.
    Needs memory for a few chunks in each, 13 bytes per row and 8 per window."""
    from tokenizers import Tokenizer
    from tqdm import tqdm

    table, long = job.table, job.long
    ranges = row_ranges(table, workers or 1)
    parts = [folder / f"part-{number}" for number in range(len(ranges))]
    # A rank may tokenise: see ProgressBar for its lock
    tqdm.set_lock(threading.RLock())
    bar = tqdm(total=table.num_rows, desc="tokenise", unit=" rows", unit_scale=True, disable=None, delay=2)
    with bar as progress:
        if (workers or 1) == 1:
            unknown = [_encode_part(*parts, *ranges, job, True, progress.update)]
        else:
            jobs = [(part, rows, job, False) for part, rows in zip(parts, ranges, strict=True)]
            unknown = []
            for rows, count in zip(ranges, computed_apart(_encode_part, jobs, workers), strict=True):
                unknown.append(count)
                progress.update(len(rows))
    with (folder / "tokens.bin").open("wb") as tokens:
        for part in parts:
            with (part / "tokens.bin").open("rb") as file:
                shutil.copyfileobj(file, tokens, 1 << 20)
            (part / "tokens.bin").unlink()
    lengths, counts, cut, second_starts = (
        np.concatenate([np.load(part / f"{name}.npy") for part in parts]) for name in ARRAYS
    )
    for part in parts:
        shutil.rmtree(part)
    has_second = bool((second_starts < lengths).any()) if table.has_pairs else False
    offsets, first_windows = (
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]) for sizes in (lengths, counts)
    )
    np.save(folder / "offsets.npy", offsets[first_windows] if long.way == "windows" else offsets)
    np.save(folder / "cut.npy", cut)
    if has_second:
        np.save(folder / "second_starts.npy", second_starts)
    if long.way == "windows":
        np.save(folder / "window_ends.npy", offsets[1:])
        np.save(folder / "first_windows.npy", first_windows)
    meta = {
        "dtype": _token_dtype(Tokenizer.from_str(job.definition)).name,
        "max_length": job.max_length,
        "unknown_tokens": sum(unknown),
        "has_second": has_second,
        "num_rows": table.num_rows,
        "long": asdict(long),
    }
    (folder / "store.json").write_text(json.dumps(meta))


def row_ranges(table: Table, workers: int) -> list[range]:
    """Return the ranges of rows that are tokenised apart, of about as many bytes each: one, or a multiple of
    `workers`, of about `PART_ROWS` at most."""
    if workers == 1:
        return [range(table.num_rows)]
    count = workers * -(-table.num_rows // (workers * PART_ROWS))
    ends = np.cumsum(table.sizes)
    bounds = np.searchsorted(ends, np.arange(1, count) * (int(ends[-1]) / count)).tolist()
    return [range(start, stop) for start, stop in pairwise([0, *bounds, table.num_rows]) if start < stop]


def _encode_part(
    folder: Path, rows: range, job: EncodingJob, parallel: bool, progress: Callable[[int], Any] = int
) -> int:
    """Tokenise some rows into `folder`, `parallel` on all cores; return the number of unknown tokens."""
    from tokenizers import Tokenizer

    if not parallel:
        # The other cores have processes of their own
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder.mkdir()
    tokenizer = Tokenizer.from_str(job.definition)
    encoder = RowEncoder(tokenizer, job.max_length, job.side, job.long)
    dtype = _token_dtype(tokenizer)
    # Lengths are of windows
    lengths, counts, cut, second_starts = array("i"), array("i"), array("B"), array("i")
    unknown = 0
    with (folder / "tokens.bin").open("wb") as tokens:
        for encoded in _encoded_chunks(job.table, encoder, rows):
            windows = [window for row in encoded for window in row.windows]
            chunk = np.fromiter(chain.from_iterable(windows), dtype)
            tokens.write(chunk.tobytes())
            unknown += 0 if job.unknown_id is None else int((chunk == job.unknown_id).sum())
            lengths.extend(map(len, windows))
            counts.extend(len(row.windows) for row in encoded if job.long.way == "windows")
            cut.extend(row.is_cut for row in encoded)
            if job.table.has_pairs:
                second_starts.extend(row.second_start for row in encoded)
            progress(len(encoded))
    for name, values in zip(ARRAYS, (lengths, counts, cut, second_starts), strict=True):
        np.save(folder / f"{name}.npy", np.asarray(values))
    return unknown


def _token_dtype(tokenizer: Tokenizer) -> np.dtype:
    """Return the smallest of uint16 and int32 that has all ids of a tokenizer."""
    return np.dtype(np.uint16 if highest_id(tokenizer) < 1 << 16 else np.int32)


def _encoded_chunks(table: Table, encoder: RowEncoder, rows: range) -> Iterator[list[EncodedRow]]:
    """Yield lists of the rows with their tokens, of `CHUNK` rows each, or fewer where texts are long. The
    next chunk is encoded, on all cores and without the GIL, while the caller works on the one before."""

    def encode_rows(start: int, stop: int) -> list[EncodedRow]:
        return encoder.encode(table.texts(np.arange(start, stop)), lambda index: table.where(start + index))

    ends = np.cumsum(table.sizes[rows.start : rows.stop])
    with ThreadPoolExecutor(1) as pool:
        following, start = None, rows.start
        while start < rows.stop:
            before = ends[start - rows.start - 1] if start > rows.start else 0
            fitting = rows.start + int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))
            stop = min(start + CHUNK, max(fitting, start + 1), rows.stop)
            current, following = following, pool.submit(encode_rows, start, stop)
            if current:
                yield current.result()
            start = stop
        if following:
            yield following.result()
