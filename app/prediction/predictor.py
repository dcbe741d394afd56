"""Texts -> labels and probabilities, a chunk of rows at a time, whatever computes the logits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..batching import token_batches
from ..data.read import BadRow
from ..data.rows import Row
from ..data.tokens import CUT, LongTexts, RowEncoder
from ..errors import TrainingError, excerpt, listed
from ..tasks.task import Task

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Tokenised and sorted together: large enough for batches of similar lengths, small enough for a moving bar.
CHUNK_ROWS = 2048
CHUNK_CHARACTERS = 1 << 23


class Prediction(NamedTuple):
    """The answer on one row: a label, or a list of labels; `probabilities` (num_labels,) float64 in the order
    of the label ids. An invalid row has neither."""

    row: Row | BadRow
    answer: str | list[str] | None
    probabilities: np.ndarray | None


class Tokens(NamedTuple):
    """The token ids of rows, each (length,) int64; for pairs also the tokens before each second text.

    Where rows have windows, a row has the tokens of all of them, one after the other, and `window_ends` says
    where each of them ends, (num_windows,) for each row. A runtime computes rows without windows only. `cut`
    (num_rows,) bool, where it is known, is whether tokens of a text were left out.
    """

    rows: list[np.ndarray]
    second_starts: np.ndarray | None
    window_ends: list[np.ndarray] | None = None
    cut: np.ndarray | None = None

    def take(self, indices: np.ndarray) -> Tokens:
        """Return the rows at `indices`."""
        starts = None if self.second_starts is None else self.second_starts[indices]
        ends = None if self.window_ends is None else [self.window_ends[index] for index in indices]
        return Tokens([self.rows[index] for index in indices], starts, ends)

    def windows(self) -> Tokens:
        """Return each window of each row as a row."""
        if self.window_ends is None:
            return self
        split = (np.split(row, ends[:-1]) for row, ends in zip(self.rows, self.window_ends, strict=True))
        return Tokens([window for windows in split for window in windows], None)

    def pooled(self, logits: np.ndarray) -> np.ndarray:
        """Return the rows' logits, (num_rows, num_labels), from those of `windows()`: means of each row's."""
        if self.window_ends is None:
            return logits
        counts = np.array([len(ends) for ends in self.window_ends])
        return np.add.reduceat(logits, np.cumsum(counts) - counts) / counts[:, None].astype(np.float32)


def parts_of(values: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Return the parts of an array, one after the other, that have these lengths."""
    return [values[start:end] for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]


class Predictor:
    """Classifies rows in their order, holding one chunk of them in memory.

    `runtime` computes logits: a `TorchRuntime` or an `OnnxRuntime`. `tokenizer` is one of the library
    tokenizers. Rows are cut at `max_length` tokens (None: never), at their end or, with `truncation_side`
    left, at their start, unless `long` says otherwise. `task` makes answers and probabilities of the logits.
    """

    def __init__(
        self,
        runtime: Any,
        tokenizer: Tokenizer,
        task: Task,
        max_length: int | None,
        truncation_side: str = "right",
        long: LongTexts = CUT,
    ) -> None:
        self.runtime = runtime
        self.task = task
        self.max_length = max_length
        self.tokenizer = tokenizer
        self.long = CUT if max_length is None else long
        self.encoder = RowEncoder(tokenizer, max_length, truncation_side, self.long)

    @property
    def label_names(self) -> list[str]:
        """The names of the labels, in the order of their ids."""
        return self.task.label_names

    def predict(
        self,
        rows: Iterable[Row | BadRow],
        chunk_rows: int = CHUNK_ROWS,
        on_batch: Callable[[float], None] = lambda rows: None,
    ) -> Iterator[Prediction]:
        """Yield a prediction for each row, in their order, reading `chunk_rows` of them at once.

        Either all valid rows have a second text or none has. `on_batch` is called with the number of rows of
        each batch. Raises TrainingError for logits that are not finite, before any row of their chunk.
        """
        for chunk in _chunks(rows, chunk_rows):
            good = [row for row in chunk if isinstance(row, Row)]
            done = iter(self.predictions(good, self.logits(self.tokenize(good), on_batch)) if good else ())
            for row in chunk:
                yield next(done) if isinstance(row, Row) else Prediction(row, None, None)

    def predictions(self, rows: list[Row], logits: np.ndarray) -> list[Prediction]:
        """Return the predictions of logits, (num_rows, num_labels); raises TrainingError unless finite."""
        bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
        if len(bad):
            row = rows[bad[0]]
            raise TrainingError(
                f"the model's logits must be finite numbers, found {listed(logits[bad[0]], 5)} for row "
                f"{row.line}: {excerpt(row.text)}; its weights are damaged or too large, "
                f"{self.runtime.remedy}"
            )
        probabilities, decided = self.task.probabilities(logits), self.task.decide(logits)
        answers = list(map(self.task.answer, decided))
        return list(map(Prediction, rows, answers, probabilities))

    def tokenize(self, rows: Sequence[Row]) -> Tokens:
        """Return the tokens of one or more rows, all of them single texts or all of them pairs."""
        has_pairs = rows[0].pair is not None
        texts = [(row.text, row.pair) if has_pairs else row.text for row in rows]
        encoded = self.encoder.encode(texts, lambda index: f"row {rows[index].line}")
        tokens = encoded.tokens.astype(np.int64)
        if self.long.way == "windows":
            ends = [np.cumsum(of_row) for of_row in parts_of(encoded.lengths, encoded.counts)]
            return Tokens(parts_of(tokens, [of_row[-1] for of_row in ends]), None, ends, encoded.is_cut)
        return Tokens(parts_of(tokens, encoded.lengths), encoded.second_starts, None, encoded.is_cut)

    def logits(
        self, tokens: Tokens, on_batch: Callable[[float], None] = lambda rows: None, sort: bool = True
    ) -> np.ndarray:
        """Return the logits, (num_rows, num_labels) float32, of rows; unless `sort`, of one batch."""
        windows = tokens.windows()
        lengths = np.array(list(map(len, windows.rows)))
        order = token_batches(lengths, self.runtime.batch_tokens) if sort else [np.arange(len(lengths))]
        share = len(tokens.rows) / len(lengths)
        by_length = self.runtime.logits(map(windows.take, order), lambda count: on_batch(count * share))
        logits = np.empty_like(by_length)
        logits[np.concatenate(order)] = by_length
        return tokens.pooled(logits)


def _chunks(rows: Iterable[Row | BadRow], chunk_rows: int) -> Iterator[list]:
    """Yield the rows in chunks of `chunk_rows`, or fewer with about `CHUNK_CHARACTERS`."""
    chunk: list[Row | BadRow] = []
    size = 0
    for row in rows:
        chunk.append(row)
        kept = row.record.values() if isinstance(row.record, dict) else row.record or ()
        size += sum(len(value) for value in kept if isinstance(value, str))
        if isinstance(row, Row):
            size += len(row.text) + len(row.pair or "")
        if len(chunk) >= chunk_rows or size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
