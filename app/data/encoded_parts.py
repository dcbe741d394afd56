"""Ranges of the rows of a table -> their tokens on disk, each range in a process of its own."""

from __future__ import annotations

import os
import shutil
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .cache import computed_apart
from .encoding import highest_id
from .long_texts import EncodedRow, LongTexts
from .row_encoder import RowEncoder
from .table import Table

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Most rows that a process tokenises before another is started
PART_ROWS = 500_000
ARRAYS = ("lengths", "counts", "cut", "second_starts")
# Rows tokenised at once
CHUNK = 8192
# Of their texts
CHUNK_BYTES = 1 << 25


class EncodingJob(NamedTuple):
    """What is tokenised, and how; see `open_store`."""

    table_folder: Path
    definition: str
    max_length: int
    unknown_id: int | None
    side: str
    long: LongTexts


def encode_parts(folder: Path, job: EncodingJob, table: Table, workers: int) -> tuple[int, list[np.ndarray]]:
    """Write the tokens of all rows, end to end, as `tokens.bin`; return how many are unknown, and the
    `ARRAYS`. In one process on all cores, or in `workers` processes of one thread each."""
    from tqdm import tqdm

    ranges = row_ranges(table, workers)
    parts = [folder / f"part-{number}" for number in range(len(ranges))]
    # A rank may tokenise: see ProgressBar for its lock
    tqdm.set_lock(threading.RLock())
    bar = tqdm(total=table.num_rows, desc="tokenise", unit=" rows", unit_scale=True, disable=None, delay=2)
    with bar as progress:
        if workers == 1:
            unknown = [encode_part(*parts, *ranges, job, True, progress.update)]
        else:
            jobs = [(part, rows, job, False) for part, rows in zip(parts, ranges, strict=True)]
            unknown = []
            for rows, count in zip(ranges, computed_apart(encode_part, jobs, workers), strict=True):
                unknown.append(count)
                progress.update(len(rows))
    with (folder / "tokens.bin").open("wb") as tokens:
        for part in parts:
            with (part / "tokens.bin").open("rb") as file:
                shutil.copyfileobj(file, tokens, 1 << 20)
            (part / "tokens.bin").unlink()
    arrays = [np.concatenate([np.load(part / f"{name}.npy") for part in parts]) for name in ARRAYS]
    for part in parts:
        shutil.rmtree(part)
    return sum(unknown), arrays


def row_ranges(table: Table, workers: int) -> list[range]:
    """Return the ranges of rows that are tokenised apart, of about as many bytes each: one, or a multiple of
    `workers`, of about `PART_ROWS` at most."""
    count = 1 if workers == 1 else workers * -(-table.num_rows // (workers * PART_ROWS))
    ends = table.array("text_ends")
    bounds = np.searchsorted(ends, np.arange(1, count) * (int(ends[-1]) / count)).tolist()
    return [range(start, stop) for start, stop in pairwise([0, *bounds, table.num_rows]) if start < stop]


def encode_part(
    folder: Path, rows: range, job: EncodingJob, parallel: bool, progress: Callable[[int], Any] = int
) -> int:
    """Tokenise some rows into `folder`, `parallel` on all cores; return the number of unknown tokens."""
    from tokenizers import Tokenizer

    if not parallel:
        # The other cores have processes of their own
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder.mkdir()
    table = Table(job.table_folder)
    tokenizer = Tokenizer.from_str(job.definition)
    encoder = RowEncoder(tokenizer, job.max_length, job.side, job.long)
    dtype = token_dtype(tokenizer)
    # Lengths are of windows
    lengths, counts, cut, second_starts = array("i"), array("i"), array("B"), array("i")
    unknown = 0
    with (folder / "tokens.bin").open("wb") as tokens:
        for encoded in encoded_chunks(table, encoder, rows):
            windows = [window for row in encoded for window in row.windows]
            chunk = np.fromiter(chain.from_iterable(windows), dtype)
            tokens.write(chunk.tobytes())
            unknown += 0 if job.unknown_id is None else int((chunk == job.unknown_id).sum())
            lengths.extend(map(len, windows))
            counts.extend(len(row.windows) for row in encoded if job.long.way == "windows")
            cut.extend(row.is_cut for row in encoded)
            if table.has_pairs:
                second_starts.extend(row.second_start for row in encoded)
            progress(len(encoded))
    for name, values in zip(ARRAYS, (lengths, counts, cut, second_starts), strict=True):
        np.save(folder / f"{name}.npy", np.asarray(values))
    return unknown


def token_dtype(tokenizer: Tokenizer) -> np.dtype:
    """Return the smallest of uint16 and int32 that has all ids of a tokenizer."""
    return np.dtype(np.uint16 if highest_id(tokenizer) < 1 << 16 else np.int32)


def encoded_chunks(table: Table, encoder: RowEncoder, rows: range) -> Iterator[list[EncodedRow]]:
    """Yield lists of the rows with their tokens, of `CHUNK` rows each, or fewer where texts are long. The
    next chunk is encoded, on all cores and without the GIL, while the caller works on the one before."""

    def encode_rows(rows: np.ndarray) -> list[EncodedRow]:
        texts = table.texts(rows)
        if table.has_pairs:
            texts = list(zip(texts, table.pairs(rows), strict=True))
        return encoder.encode(texts, lambda index: table.where(int(rows[index])))

    with ThreadPoolExecutor(1) as pool:
        following = None
        for chunk in _chunks(table, rows):
            current, following = following, pool.submit(encode_rows, chunk)
            if current:
                yield current.result()
        if following:
            yield following.result()


def _chunks(table: Table, rows: range) -> Iterator[np.ndarray]:
    """Yield the ids of rows that are tokenised at once, in order: `CHUNK` rows, `CHUNK_BYTES` or one row."""
    ends = table.array("text_ends") + (table.array("pair_ends") if table.has_pairs else 0)
    start = rows.start
    while start < rows.stop:
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + CHUNK_BYTES, side="right"))
        stop = min(start + CHUNK, max(fitting, start + 1), rows.stop)
        yield np.arange(start, stop)
        start = stop
