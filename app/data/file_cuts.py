"""Where a file can be cut into ranges of rows that are read alone, without reading what is before them."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ..config.file_formats import FORMATS
from ..errors import InputError
from ..words import _
from .first_rows import Looks, open_records
from .formats import open_reader
from .readers import BadRow, Reader, ReadOptions
from .readers.parquet import ParquetReader
from .text_files import Span, ends_lines_with_lf


@dataclass
class CutFile:
    """The rows of a file in `pieces`: the number of rows of each, and its place, None for the whole file.
    `keys` are those of all objects; `is_table`: rows have columns."""

    pieces: list[tuple[int, Span | None]] = field(default_factory=list)
    keys: dict[str, None] = field(default_factory=dict)
    is_table: bool = False

    @property
    def num_rows(self) -> int:
        """The rows of the file, valid or not."""
        return sum(rows for rows, _ in self.pieces)

    def joined(self, count: int) -> list[tuple[int, Span | None]]:
        """Return the pieces with `count` of them made one."""
        groups = [self.pieces[at : at + count] for at in range(0, len(self.pieces), count)]
        return [(sum(rows for rows, _ in group), _around(group[0][1], group[-1][1])) for group in groups]


def _around(first: Span | None, last: Span | None) -> Span | None:
    return None if first is None else first._replace(end=last.end)


def cut_file(path: Path, options: ReadOptions, rows: int) -> CutFile:
    """Return where a file without labels, which is read with `options`, can be cut every `rows` rows.

    CSV, TSV, JSON Lines and plain text are read once for it, so that line ends in quotes are seen as they are
    later; of Parquet only the footer. An array of JSON, Excel, and encodings such as UTF-16 give one piece.
    Raises InputError as `read_rows` does, but not for invalid rows.
    """
    reader = open_reader(path, options, options.format)
    if isinstance(reader, ParquetReader):
        total = reader.num_rows()
        spans = [Span(at, min(at + rows, total), at + 1) for at in range(0, total, rows)]
        cut = CutFile([(span.end - span.start, span) for span in spans], is_table=True)
    else:
        cut = _read_once(path, reader, options, rows)
    if not cut.pieces:
        raise InputError(_("{path}: there are no rows in the file").format(path=path))
    return cut


def _read_once(path: Path, reader: Reader, options: ReadOptions, rows: int) -> CutFile:
    looks = Looks(need_label=False, find_pairs=False, keep_records=True)
    notes = {"place": FORMATS[options.format].row_unit}
    records = open_records(path, reader, FORMATS[options.format], options, looks, notes)[-1]
    cut, lines, counts, num_rows, due = CutFile(), [], [], 0, 0
    for line, record in records:
        # Not within the lines of one invalid record
        if num_rows >= due and not (num_rows and isinstance(record, BadRow)):
            lines.append(line)
            counts.append(num_rows)
            due = (num_rows // rows + 1) * rows
        num_rows += 1
        if isinstance(record, dict) and not record.keys() <= cut.keys.keys():
            cut.keys.update(dict.fromkeys(record))
        cut.is_table = cut.is_table or isinstance(record, (list, dict))
    if not (reader.has_lines and ends_lines_with_lf(options.encoding)):
        cut.pieces = [(num_rows, None)] if num_rows else []
        return cut
    offsets = [*_offsets(path, lines), path.stat().st_size]
    for count, ends, line in zip(pairwise([*counts, num_rows]), pairwise(offsets), lines, strict=True):
        cut.pieces.append((count[1] - count[0], Span(*ends, line)))
    return cut


def _offsets(path: Path, lines: list[int]) -> list[int]:
    """Return where lines begin, in bytes; `lines` are their numbers, from 1 and ascending."""
    offsets, wanted, offset = [], iter(lines), 0
    due = next(wanted, None)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == due:
                offsets.append(offset)
                due = next(wanted, None)
            offset += len(line)
    return offsets
