"""Texts -> tokens: rows of at most `max_length` tokens, where long texts are cut or read in parts; and the
token store of a table: every row tokenised once, flat on disk, memory-mapped by every process.

A store is a folder: `tokens.bin` (all rows end to end, special tokens included; uint16 if the vocabulary is
small enough, else int32), `offsets.npy` (num_rows + 1,), `cut.npy` (whether a text has more tokens) and, for
pairs where a model tells the two texts apart, `second_starts.npy` (the number of tokens before the second
text). Where long texts are read in windows, a row has the tokens of all its windows, one after the other, and
`window_ends.npy` (num_windows,) and `first_windows.npy` (num_rows + 1,) say where they are."""

from __future__ import annotations

import json
import mmap
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise, starmap
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer
from tqdm import tqdm

from ..errors import InputError, as_input_error, excerpt
from .cache import build_once, content_key, save_array
from .cells import BETWEEN_TEXTS
from .table import Table

VERSION = 3
CHUNK_ROWS = 8192  # that are read and tokenised at once
CHUNK_BYTES = 1 << 23  # of their texts
RELEASE_EVERY = 512  # rows read, after which mapped pages are released; each row maps 64 KiB around it
REMEDY = "repair its tokenizer.json, or choose another model"
tokenizer_errors = partial(as_input_error, remedy=REMEDY)
# Chinese, Latin, a digit, punctuation, a character that no vocabulary has, and a pair
PROBES = [("好a1。",), ("\ue000",), ("好", "好a")]
HEAD = 4  # one token in so many is of the head, the others are of the tail
MARGIN = 128  # tokens before the place where a text is cut that may be others than those of the whole text


def definition_of(tokenizer: Tokenizer) -> str:
    """Turn padding and truncation of a tokenizer off, and return its definition as JSON."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.to_str()


def highest_id(tokenizer: Tokenizer) -> int:
    """Return the highest id of a token; ids may have gaps."""
    return max(tokenizer.get_vocab().values(), default=-1)


class LongTexts(NamedTuple):
    """The setting `data.long` as `way`, and the maximum windows of a row."""

    way: str = "cut"
    max_windows: int = 8


CUT = LongTexts()


class Token(NamedTuple):
    """A token: characters `start` to `end` (exclusive) of `text`: 0, 1 of a pair, None if it is special."""

    id: int
    type: int
    text: int | None
    start: int
    end: int


class EncodedRows(NamedTuple):
    """Rows as token ids, special ones included: `tokens` (num_tokens,) int32 of all windows, end to end, the
    `lengths` of the windows, (num_windows,), and for each row, (num_rows,), `counts`, its windows, `is_cut`,
    whether tokens of its text are in none; of pairs `second_starts`, the tokens before the second text."""

    tokens: np.ndarray
    lengths: np.ndarray
    counts: np.ndarray
    is_cut: np.ndarray
    second_starts: np.ndarray | None


def ranges_of(parts: list[list[Token]], text: int) -> list[tuple[int, int]]:
    """Return the first and the last character (exclusive) of a text, 0 or 1, in each part that has any."""
    ranges = []
    for part in parts:
        starts = []
        ends = []
        for token in part:
            if token.text == text and token.end > token.start:
                starts.append(token.start)
                ends.append(token.end)
        if starts:
            ranges.append((min(starts), max(ends)))
    return ranges


class RowEncoder:
    """Encodes texts with `tokenizer`, whose truncation it sets, as rows of up to `max_length` tokens, or any:
    cut at a `side`, or read as `long` says. Raises InputError where `long` and `max_length` do not fit."""

    def __init__(
        self, tokenizer: Tokenizer, max_length: int | None, side: str = "right", long: LongTexts = CUT
    ) -> None:
        definition_of(tokenizer)
        self.tokenizer = tokenizer
        self.long = CUT
        if max_length is not None:
            self.long = long
        self.max_length = max_length or sys.maxsize
        long_way = self.long.way
        probe = tokenizer.encode(*PROBES[0])
        is_special = probe.special_tokens_mask
        # The special tokens before and after a text
        before = len(is_special)
        after = 0
        if 0 in is_special:
            before = is_special.index(0)
            after = is_special[::-1].index(0)
        # The special token behind a text also stands between the texts of several columns
        self.separator = "\n"
        if is_special[-1:] == [1]:
            self.separator = probe.tokens[-1]
        self.separated = methodcaller("replace", BETWEEN_TEXTS, self.separator)
        capacity = self.max_length - before - after
        min_capacity = HEAD
        self.side = "right"
        if long_way == "cut":
            min_capacity = 1
            self.side = side
        if capacity < min_capacity:
            raise InputError(
                f"data.long {long_way} needs {min_capacity} or more tokens of a text in a row, found "
                f"{capacity} with data.max_length {max_length}; raise it"
            )
        self.head = before + capacity // HEAD
        self.max_windows = 1
        self.step = capacity  # tokens from the start of a window to that of the next
        if long_way == "windows":
            self.max_windows = self.long.max_windows
            self.step = max(1, capacity * 3 // 4)
        # The tokens that the windows need of a text
        self.needed = capacity * self.max_windows + MARGIN
        if max_length is not None and long_way != "head_tail":
            tokenizer.enable_truncation(max_length, stride=capacity - self.step, direction=self.side)

    def encode(self, texts: list[str] | list[tuple[str, str]], place: Callable[[int], str]) -> EncodedRows:
        """Return the rows of one or more single texts, or pairs. Raises InputError for a text that cannot be
        encoded or has no token, naming its `place`, of its index; and for pairs, unless texts are cut."""
        are_pairs = not isinstance(texts[0], str)
        long_way = self.long.way
        if are_pairs and long_way != "cut":
            raise InputError(
                f"{place(0)}: data.long {long_way} reads single texts, found a pair; leave data.long out, or "
                "set --data.text_column for single texts"
            )
        if are_pairs:
            whole_texts = [tuple(map(self.separated, pair)) for pair in texts]
        else:
            whole_texts = list(map(self.separated, texts))
        parts, long_texts = self._needed_parts(whole_texts)
        where = f"{place(0)}, or one of the {len(texts):,} from there"
        with tokenizer_errors(f"{where}: the tokenizer cannot encode a text"):
            encodings = self.tokenizer.encode_batch_fast(parts)
            for at in long_texts:
                # The part had too few tokens: a token may also have many characters
                if len(encodings[at].overflowing) * self.step < self.needed:
                    encodings[at] = self.tokenizer.encode(whole_texts[at])
        windows = [[encoding.ids] for encoding in encodings]
        lengths = np.fromiter(map(len, encodings), np.int32, len(encodings))
        if not lengths.all():
            at = int(lengths.argmin())
            rule = f"each text must have a token, and the tokenizer makes none of {excerpt(texts[at])}"
            raise InputError(f"{place(at)}: {rule}; remove the row, or choose another model")
        is_cut = np.zeros(len(encodings), bool)
        # Only a full row may have more tokens, and to ask each of them would take longer than all else here
        for at in np.flatnonzero(lengths >= self.max_length).tolist():
            if long_way == "head_tail":
                [ids] = windows[at]
                is_cut[at] = len(ids) > self.max_length
                windows[at] = [ids[: self.head] + ids[self.head - self.max_length :]]
            else:
                later_windows = encodings[at].overflowing
                is_cut[at] = len(later_windows) >= self.max_windows
                for window in later_windows[: self.max_windows - 1]:
                    windows[at].append(window.ids)
        second_starts = None
        if are_pairs:
            starts = []
            for encoding in encodings:
                # The types are 0, then 1 from the second text on
                starts.append([*encoding.type_ids, 1].index(1))
            second_starts = np.array(starts, np.int32)
        all_windows = list(chain.from_iterable(windows))
        return EncodedRows(
            tokens=np.fromiter(chain.from_iterable(all_windows), np.int32),
            lengths=np.fromiter(map(len, all_windows), np.int32),
            counts=np.fromiter(map(len, windows), np.int32),
            is_cut=is_cut,
            second_starts=second_starts,
        )

    def _needed_parts(self, texts: list) -> tuple[list, list[int]]:
        """Return the texts as the tokenizer gets them, only with the part that the windows need of a long
        one, and the indices of these long texts."""
        parts = texts.copy()
        long_texts: list[int] = []
        if self.long.way == "head_tail":
            return parts, long_texts
        size = 8 * self.needed  # characters
        for at, text in enumerate(texts):
            # The length of a pair is 2
            if len(text) > 2 * size:
                long_texts.append(at)
                if self.side == "right":
                    parts[at] = text[:size]
                else:
                    parts[at] = text[-size:]
        return parts, long_texts

    def parts_read(self, texts: tuple[str, ...]) -> tuple[list[list[Token]], bool]:
        """Return the tokens that are read of one text, or of a pair: of each window; of the head and of the
        tail, which make one row; else of one part. And whether tokens of the text are in none of them."""
        whole = self.tokenizer.encode(*map(self.separated, texts))
        positions = list(map(self._original_positions, texts))
        parts = []
        for window in [whole, *whole.overflowing][: self.max_windows]:
            tokens = []
            columns = zip(window.ids, window.type_ids, window.sequence_ids, window.offsets, strict=True)
            for token_id, token_type, number, (start, end) in columns:
                if number is not None and start < end:
                    start = positions[number][start]
                    end = positions[number][end - 1] + 1
                tokens.append(Token(token_id, token_type, number, start, end))
            parts.append(tokens)
        if self.long.way == "head_tail" and len(whole) > self.max_length:
            [tokens] = parts
            return [tokens[: self.head], tokens[self.head - self.max_length :]], True
        return parts, len(whole.overflowing) >= self.max_windows

    def _original_positions(self, text: str) -> list[int]:
        """Return for each character that the tokenizer gets its position in `text`: a mark between texts is
        replaced by a separator, which may be longer."""
        positions = []
        for position, character in enumerate(text):
            length = 1
            if character == BETWEEN_TEXTS:
                length = len(self.separator)
            positions += [position] * length
        return positions

    def characters_read(self, texts: tuple[str, ...]) -> list[list[tuple[int, int]]]:
        """Return which characters of one text, or of each of a pair, become tokens: the first, and the last
        (exclusive), of each range without a gap that is due to the limit of tokens."""
        parts, _ = self.parts_read(texts)
        if self.long.way == "windows":
            parts = [list(chain.from_iterable(parts))]
        return [ranges_of(parts, number) for number in range(len(texts))]


class TokenStore:
    """The tokens of one table; `tokens` is flat, row `i` is `tokens[offsets[i]:offsets[i + 1]]`.
    `has_windows`: a row has one or more windows of at most `max_length` tokens; else it has one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "store.json").read_text())
        self.max_length = meta["max_length"]
        self.unknown_tokens = meta["unknown_tokens"]
        self.long = LongTexts(*meta["long"])
        self.has_windows = self.long.way == "windows"
        self.tokens = np.memmap(folder / "tokens.bin", np.dtype(meta["dtype"]), "r")
        arrays = {}
        for path in folder.glob("*.npy"):
            arrays[path.stem] = np.load(path, mmap_mode="r")
        self.offsets = arrays["offsets"]
        self.cut = arrays["cut"]
        self.second_starts = arrays.get("second_starts")
        self.first_windows = arrays.get("first_windows")
        self.window_ends = arrays.get("window_ends")
        self._read = 0

    @property
    def unknown_share(self) -> float:
        """The share of all tokens that are unknown."""
        return self.unknown_tokens / max(1, len(self.tokens))

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
        """Return mapped pages to the system after some rows: a large store is not to stay in memory."""
        if self._read > RELEASE_EVERY and hasattr(mmap, "MADV_DONTNEED"):
            self.tokens._mmap.madvise(mmap.MADV_DONTNEED)
            self._read = 0


def open_store(table: Table, tokenizer, max_length: int, cache_dir: str, long: LongTexts = CUT) -> TokenStore:
    """Return the token store of a table; tokenises it as `build_store` does unless the cache has it. Raises
    InputError for a text without a token, and the errors of `build_once`."""
    definition = definition_of(tokenizer.backend_tokenizer)
    encoding = (definition, max_length, tokenizer.truncation_side, long)
    unknown_id = tokenizer.unk_token_id
    key = content_key("tokens", VERSION, table.key, unknown_id, encoding)
    folder = Path(cache_dir) / f"tokens-{key}"
    build_once(folder, build_store, table, encoding, unknown_id, num_bytes=table.num_bytes)
    return TokenStore(folder)


def build_store(folder: Path, table: Table, encoding: tuple, unknown_id: int | None) -> None:
    """Tokenise a table into `folder`, on all cores; the files are the same for any number. Needs memory for a
    few chunks, 13 bytes a row, 8 a window. `encoding`: arguments of RowEncoder, the tokenizer as JSON."""
    definition, max_length, side, long = encoding
    tokenizer = Tokenizer.from_str(definition)
    dtype = np.dtype(np.int32)
    if highest_id(tokenizer) < 1 << 16:
        dtype = np.dtype(np.uint16)
    encoder = RowEncoder(tokenizer, max_length, side, long)

    def encode(rows: range) -> EncodedRows:
        return encoder.encode(table.texts(np.asarray(rows)), lambda at: table.location(rows[at]))

    # A chunk ends after so many rows, and where the bytes of all texts so far reach a multiple of CHUNK_BYTES
    ends = np.flatnonzero(np.diff(np.cumsum(table.sizes) // CHUNK_BYTES)) + 1
    bounds = np.unique([*range(0, table.num_rows, CHUNK_ROWS), *ends, table.num_rows]).tolist()
    # A rank may tokenise: see RunLog for its lock
    tqdm.set_lock(threading.RLock())
    bar = {"desc": "tokenise", "unit": " rows", "unit_scale": True, "disable": None, "delay": 2}
    unknown_tokens = 0
    lengths = []
    counts = []
    is_cut = []
    second_starts = []
    with (
        tqdm(total=table.num_rows, **bar) as progress,
        (folder / "tokens.bin").open("wb") as file,
        ThreadPoolExecutor(2) as pool,
    ):
        # A chunk is encoded, on all cores, while the one before becomes arrays
        for encoded in pool.map(encode, starmap(range, pairwise(bounds))):
            file.write(encoded.tokens.astype(dtype).data)
            if unknown_id is not None:
                unknown_tokens += int((encoded.tokens == unknown_id).sum())
            lengths.append(encoded.lengths)
            counts.append(encoded.counts)
            is_cut.append(encoded.is_cut)
            second_starts.append(encoded.second_starts)
            progress.update(len(encoded.counts))
    lengths = np.concatenate(lengths)
    window_offsets = np.r_[0, np.cumsum(lengths, dtype=np.int64)]
    first_windows = np.r_[0, np.cumsum(np.concatenate(counts), dtype=np.int64)]
    arrays = {"offsets": window_offsets[first_windows], "cut": np.concatenate(is_cut).astype(np.uint8)}
    if table.has_pairs:
        starts = np.concatenate(second_starts)
        # Otherwise the model does not tell the two texts apart
        if (starts < lengths).any():
            arrays["second_starts"] = starts
    if long.way == "windows":
        arrays["window_ends"] = window_offsets[1:]
        arrays["first_windows"] = first_windows
    for name, values in arrays.items():
        save_array(folder / f"{name}.npy", values)
    meta = {"dtype": dtype.name, "max_length": max_length, "unknown_tokens": unknown_tokens, "long": long}
    (folder / "store.json").write_text(json.dumps(meta))
