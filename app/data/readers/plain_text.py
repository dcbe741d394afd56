"""Plain text: one text a line, without labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...errors import excerpt
from ..text_files import Source, read_lines
from . import BadRow, Reader


class PlainTextReader(Reader):
    """Each line that is not blank is a record."""

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, str | BadRow]]:
        """Yield number and text of each line."""
        for number, line in lines_without_ends(self.path, self.options.encoding):
            if isinstance(line, BadRow) or line.strip():
                yield number, line


def lines_without_ends(path: Source, encoding: str) -> Iterator[tuple[int, str | BadRow]]:
    """Yield number and text of the lines that are not blank, without their line ends.

    A carriage return inside a line may be a line end: reading the line as one row could join many rows.
    """
    for number, line in enumerate(read_lines(path, encoding), 1):
        line = line.rstrip("\r\n")
        if "\r" in line.strip(" \r"):
            problem = f"a carriage return is inside the line: {excerpt(line)}; end lines with LF or CRLF"
            yield number, BadRow(number, problem)
        elif line.strip(" \r"):
            yield number, line
