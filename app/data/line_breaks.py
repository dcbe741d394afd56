"""Texts of several lines: how many there are, and which of them are rows that stray quotes have joined.

In CSV, a quote that opens a field and is meant as part of the text joins all lines up to the next such quote
into one row, which is valid. The data report shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .row_cells import FieldCells
from .rows import RowBatch

MAX_KEPT = 100  # rows that seem joined, of a file


@dataclass
class LineBreaks:
    """The valid texts of a file with line breaks. `most_lines` are those of the longest one, which is row
    `longest_row`; `joined_rows` are the first rows that seem to be several."""

    num_texts: int = 0
    most_lines: int = 0
    longest_row: int = 0
    num_joined: int = 0
    joined_rows: list[int] = field(default_factory=list)

    def add(self, batch: RowBatch) -> None:
        if "\n" not in "".join(batch.texts):
            return
        indices = [index for index, text in enumerate(batch.texts) if "\n" in text]
        for index in indices:
            if index in batch.problems:
                continue
            row = int(batch.lines[index])
            self.num_texts += 1
            num_lines = batch.texts[index].count("\n") + 1
            if num_lines > self.most_lines:
                self.most_lines = num_lines
                self.longest_row = row
            if isinstance(batch.cells, FieldCells) and is_joined(batch.cells, index):
                self.num_joined += 1
                if len(self.joined_rows) < MAX_KEPT:
                    self.joined_rows.append(row)


def is_joined(cells: FieldCells, index: int) -> bool:
    """Return whether each line of a row has as many fields as the row itself."""
    fields = cells.records[index]
    num_separators = len(fields) - 1
    if num_separators == 0 or set(map(type, fields)) != {str}:
        return False
    lines = cells.separator.join(fields).split("\n")
    return all(line.count(cells.separator) == num_separators for line in lines)
