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
from ..ngrams.second_reader import SecondReader
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
    were left out. `added` (num_rows, num_labels) float32 is what a second reader adds to the logits of rows,
    None where the encoder answers alone.
    """

    windows: list[np.ndarray]
    second_starts: np.ndarray | None
    counts: np.ndarray
    cut: np.ndarray | None = None
    added: np.ndarray | None = None

    def take(self, indices: np.ndarray) -> Tokens:
        """Return the windows at `indices`, each as a row: what a runtime computes."""
        second_starts = None
        if self.second_starts is not None:
            second_starts = self.second_starts[indices]
        windows = [self.windows[index] for index in indices]
        return Tokens(windows, second_starts, counts=np.ones(len(indices), np.int64))

    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each window, (num_windows,)."""
        return np.array([len(window) for window in self.windows])

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of the `values` of each row's windows, (num_windows, ...)."""
        return np.add.reduceat(values, np.cumsum(self.counts) - self.counts)


@dataclass
class Predictor:
    """Classifies rows in their order, holding one chunk of them in memory.

    `runtime` computes logits: a `TorchRuntime` or an `OnnxRuntime`. `tokenizer` is one of the library
    tokenizers. Rows are cut at `max_length` tokens (None: never), at their end or, with `truncation_side`
    left, at their start, unless `long` says otherwise. `task` makes answers and probabilities of the logits.
    Where there is a `second_reader`, its part is added to all logits.
    """

    runtime: Any
    tokenizer: Tokenizer
    task: Task
    max_length: int | None
    truncation_side: str = "right"
    long: LongTexts = CUT
    second_reader: SecondReader | None = None

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
        for chunk in chunks_of(rows, chunk_rows):
            valid_rows = [row for row in chunk if isinstance(row, Row)]
            predictions = iter(())
            if valid_rows:
                logits = self.logits(self.tokenize(valid_rows), on_batch)
                predictions = iter(self.predictions(valid_rows, logits))
            for row in chunk:
                if isinstance(row, Row):
                    yield next(predictions)
                else:
                    yield Prediction(row, None, None)

    def predictions(self, rows: list[Row], logits: np.ndarray) -> list[Prediction]:
        """Return the predictions of logits, (num_rows, num_labels); raises TrainingError unless finite."""
        are_finite = np.isfinite(logits).all(axis=1)
        if not are_finite.all():
            index = int(np.argmin(are_finite))
            row = rows[index]
            raise TrainingError(
                f"the model's logits must be finite numbers, found {listed(logits[index], 5)} for row "
                f"{row.line}: {excerpt(row.text)}; its weights are damaged or too large, "
                f"{self.runtime.remedy}"
            )
        probabilities = self.task.probabilities(logits)
        answers = map(self.task.answer, self.task.decide(logits))
        return list(map(Prediction, rows, answers, probabilities))

    def tokenize(self, rows: Sequence[Row]) -> Tokens:
        """Return the tokens of one or more rows, all of them single texts or all of them pairs."""
        if rows[0].pair is None:
            texts = [row.text for row in rows]
        else:
            texts = [(row.text, row.pair) for row in rows]
        encoded = self.encoder.encode(texts, lambda index: f"row {rows[index].line}")
        ends = np.cumsum(encoded.lengths)
        windows = np.split(encoded.tokens.astype(np.int64), ends[:-1])
        added = None
        if self.second_reader is not None:
            added = self.second_reader.added([row.text for row in rows])
        return Tokens(windows, encoded.second_starts, encoded.counts, encoded.is_cut, added)

    def logits(
        self, tokens: Tokens, on_batch: Callable[[float], None] = lambda rows: None, sort: bool = True
    ) -> np.ndarray:
        """Return the logits, (num_rows, num_labels) float32, of rows, the means of those of their windows,
        with what a second reader adds; unless `sort`, of one batch."""
        lengths = tokens.lengths()
        batches = [np.arange(len(lengths))]
        if sort:
            batches = token_batches(lengths, self.runtime.batch_tokens)
        rows_per_window = len(tokens.counts) / len(lengths)
        logits_in_batches = self.runtime.logits(
            map(tokens.take, batches),
            on_batch=lambda num_windows: on_batch(num_windows * rows_per_window),
        )
        logits = np.empty_like(logits_in_batches)
        logits[np.concatenate(batches)] = logits_in_batches
        logits = tokens.sums(logits) / tokens.counts[:, None].astype(np.float32)
        if tokens.added is not None:
            logits = self.second_reader.logits(logits, tokens.added)
        return logits


def chunks_of(rows: Iterable[Row | BadRow], chunk_rows: int) -> Iterator[list]:
    """Yield the rows in chunks of `chunk_rows`, or fewer with about `CHUNK_CHARACTERS`."""
    chunk: list[Row | BadRow] = []
    num_characters = 0
    for row in rows:
        chunk.append(row)
        for cell in (row.record or {}).values():
            if isinstance(cell, str):
                num_characters += len(cell)
        if isinstance(row, Row):
            num_characters += row.num_characters
        if len(chunk) >= chunk_rows or num_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk = []
            num_characters = 0
    if chunk:
        yield chunk
