"""Plain text: one text a line, without labels."""

from collections.abc import Collection, Iterator

from ...errors import excerpt
from ..text_files import read_lines
from . import BadRow, Reader


class PlainTextReader(Reader):
    """Each line that is not blank is a record."""

    has_lines = True

    def records(self, columns: Collection[int | None] = ()) -> Iterator[tuple[int, str | BadRow]]:
        """Yield number and text of each line."""
        for number, line in lines_without_ends(self):
            if isinstance(line, BadRow) or line.strip():
                yield number, line


def lines_without_ends(reader: Reader) -> Iterator[tuple[int, str | BadRow]]:
    """Yield number and text of the lines that are not blank, without their line ends. A carriage return
    inside a line may be a line end: reading the line as one row could join many rows."""
    lines = read_lines(reader.path, reader.options.encoding, reader.span)
    for number, line in enumerate(lines, reader.first_line):
        line = line.rstrip("\r\n")
        if "\r" in line.strip(" \r"):
            problem = f"a carriage return is inside the line: {excerpt(line)}; end lines with LF or CRLF"
            yield number, BadRow(number, problem)
        elif line.strip(" \r"):
            yield number, line
