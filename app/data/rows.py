"""The rows of data files, one by one and in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from .bad_row import BadRow
from .row_cells import Cells

if TYPE_CHECKING:
    import pyarrow as pa

    from .label_shares import LabelShares


class Row(NamedTuple):
    """One valid row; `line` is its first line in the file (in JSON its element, in Parquet and Excel its
    row), from 1. `record` are all its cells by the names of their columns, where they were asked for."""

    line: int
    text: str
    pair: str | None
    label: str | None
    record: dict[str, Any] | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or the two texts of a pair."""
        if self.pair is None:
            return (self.text,)
        return (self.text, self.pair)

    @property
    def num_characters(self) -> int:
        """How many characters the text or the pair has."""
        return len(self.text) + len(self.pair or "")


@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of a file, one or two times `BLOCK_ROWS` at most, by columns.

    `lines`, `texts`, `pairs` and `labels` have a value for each row; `pairs` and `labels` are None where the
    rows have none. `problems` says which rows are invalid and why, by their index: the texts and labels of
    these mean nothing. `cells` are all cells of the rows. `shares` are the distributions of labels of
    rows that are trained on them; None where the file has none.
    """

    lines: Sequence[int]
    texts: list[str]
    pairs: list[str] | None
    labels: list[str | None] | None
    problems: dict[int, BadRow]
    cells: Cells
    shares: LabelShares | None = None

    @cached_property
    def columns(self) -> pa.RecordBatch:
        """All columns of the file, with their types."""
        return self.cells.columns()

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """All cells of each row, by the names of the columns."""
        return self.cells.dictionaries()

    def valid(self, values: Sequence) -> Sequence:
        """Return those of `values`, one for each row, that belong to valid rows."""
        if not self.problems:
            return values
        return [value for index, value in enumerate(values) if index not in self.problems]

    def rows(self, with_records: bool = False) -> Iterator[Row | BadRow]:
        """Yield the rows one by one: valid ones as `Row`, others as `BadRow`."""
        records: Iterable = repeat(None)
        if with_records:
            records = self.records
        pairs = self.pairs or repeat(None)
        labels = self.labels or repeat(None)
        values = zip(self.lines, self.texts, pairs, labels, records, strict=False)
        for index, row in enumerate(map(Row._make, values)):
            problem = self.problems.get(index)
            if problem is None:
                yield row
            else:
                yield problem._replace(record=row.record)
