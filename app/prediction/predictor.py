"""Texts -> labels and probabilities, a chunk of rows at a time, whatever computes the logits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..batching import token_batches
from ..data.bad_row import BadRow
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
    """The token ids of rows. `windows` are the windows of all rows, each (length,) int64, and `counts`
    (num_rows,) says how many of them each row has: one, unless long texts are read in several. For pairs also
    the tokens before each second text. `cut` (num_rows,) bool, where it is known, is whether tokens of a text
    were left out.
    """

    windows: list[np.ndarray]
    second_starts: np.ndarray | None
    counts: np.ndarray
    cut: np.ndarray | None = None

    def take(self, indices: np.ndarray) -> Tokens:
        """Return the windows at `indices`, each as a row: what a runtime computes."""
        starts = None if self.second_starts is None else self.second_starts[indices]
        return Tokens([self.windows[index] for index in indices], starts, np.ones(len(indices), np.int64))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of the `values` of each row's windows, (num_windows, ...)."""
        return np.add.reduceat(values, np.cumsum(self.counts) - self.counts)


@dataclass
class Predictor:
    """Classifies rows in their order, holding one chunk of them in memory.

    `runtime` computes logits: a `TorchRuntime` or an `OnnxRuntime`. `tokenizer` is one of the library
    tokenizers. Rows are cut at `max_length` tokens (None: never), at their end or, with `truncation_side`
    left, at their start, unless `long` says otherwise. `task` makes answers and probabilities of the logits.
    """

    runtime: Any
    tokenizer: Tokenizer
    task: Task
    max_length: int | None
    truncation_side: str = "right"
    long: LongTexts = CUT

    def __post_init__(self) -> None:
        self.encoder = RowEncoder(self.tokenizer, self.max_length, self.truncation_side, self.long)
        self.long = self.encoder.long

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
        windows = np.split(encoded.tokens.astype(np.int64), np.cumsum(encoded.lengths)[:-1])
        return Tokens(windows, encoded.second_starts, encoded.counts, encoded.is_cut)

    def logits(
        self, tokens: Tokens, on_batch: Callable[[float], None] = lambda rows: None, sort: bool = True
    ) -> np.ndarray:
        """Return the logits, (num_rows, num_labels) float32, of rows, the means of those of their windows;
        unless `sort`, of one batch."""
        lengths = np.array(list(map(len, tokens.windows)))
        order = token_batches(lengths, self.runtime.batch_tokens) if sort else [np.arange(len(lengths))]
        share = len(tokens.counts) / len(lengths)
        by_length = self.runtime.logits(map(tokens.take, order), lambda count: on_batch(count * share))
        logits = np.empty_like(by_length)
        logits[np.concatenate(order)] = by_length
        return tokens.sums(logits) / tokens.counts[:, None].astype(np.float32)


def _chunks(rows: Iterable[Row | BadRow], chunk_rows: int) -> Iterator[list]:
    """Yield the rows in chunks of `chunk_rows`, or fewer with about `CHUNK_CHARACTERS`."""
    chunk: list[Row | BadRow] = []
    size = 0
    for row in rows:
        chunk.append(row)
        for value in (row.record or {}).values():
            size += len(value) if isinstance(value, str) else 0
        if isinstance(row, Row):
            size += len(row.text) + len(row.pair or "")
        if len(chunk) >= chunk_rows or size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
