"""How a file is read again for a finished run, as asked for, else as recorded, else by usual names; and where
it can be cut into ranges of rows that are read alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..words import _
from .file_formats import FORMATS, SUFFIXES
from .files import Source, Span, Stream, ends_lines_with_lf, file_encoding, read_start
from .read import BadRow, ReadOptions, content_format, file_format, num_parquet_rows, separated_format
from .rows import RowReader

# Formats that are recognised by a file's name only
DELIMITED = tuple(name for name, format in FORMATS.items() if format.delimiter)
LABEL_SETTINGS = ("label_column", "label_separator", "label_columns")
# Of the train file only
NOT_AGAIN = ("format", "limit")
# Bytes in which the first line of a table ends
FIRST_LINE = 1 << 16


def options_of_run(
    path: Source,
    recorded: Mapping[str, Any],
    asked: Mapping[str, Any] | None = None,
    need_label: bool = False,
) -> ReadOptions:
    """Return the settings with which a run reads a file again; `format` is never auto.

    `recorded` are the `data` settings of the run's config.yaml (empty for a checkpoint of another program),
    `asked` the settings that were asked for now. None and auto stand for a setting that was not asked for.
    A recorded column that the file does not have is an error when its rows are read. Without `need_label`,
    the settings of labels are left out. Raises InputError for a file that cannot be read.
    """
    asked = {name: value for name, value in (asked or {}).items() if value not in (None, "auto")}
    known = {name: value for name, value in recorded.items() if value is not None and name not in NOT_AGAIN}
    if "label_columns" in asked:
        known = {name: value for name, value in known.items() if name not in LABEL_SETTINGS}
    elif {"label_column", "label_separator"} & set(asked):
        known.pop("label_columns", None)
    settings = known | asked
    if not need_label:
        settings = {name: value for name, value in settings.items() if name not in LABEL_SETTINGS}
    names = {field.name for field in fields(ReadOptions)} - {"format"}
    encoding = settings["encoding"] = file_encoding(path, settings.get("encoding", ReadOptions.encoding))
    format = asked.get("format") or _format(path, recorded, encoding, need_label)
    return ReadOptions(format, **{name: value for name, value in settings.items() if name in names})


def _format(path: Source, recorded: Mapping[str, Any], encoding: str, need_label: bool) -> str:
    """Return the format by the content, by what the run recorded for such a name, or by the name. A stream,
    and a .txt file without labels, is text, unless the run and this file are .txt tables."""
    if isinstance(path, Stream):
        return "text"
    if by_content := content_format(path, encoding):
        return by_content
    suffix = path.suffix.lower()
    is_named_alike = suffix == Path(recorded.get("train") or "").suffix.lower()
    if recorded.get("format") in DELIMITED and (is_named_alike or suffix not in SUFFIXES):
        return recorded["format"]
    if suffix == ".txt" and not need_label:
        has_tabs = b"\t" in read_start(path, FIRST_LINE).split(b"\n")[0]
        if not (is_named_alike and (has_tabs or separated_format(path, encoding))):
            return "text"
    return file_format(path, "auto", encoding)


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
        return sum(rows for rows, _span in self.pieces)

    def joined(self, count: int) -> list[tuple[int, Span | None]]:
        """Return the pieces with `count` of them made one."""
        groups = [self.pieces[at : at + count] for at in range(0, len(self.pieces), count)]
        joined = []
        for group in groups:
            first, last = group[0][1], group[-1][1]
            span = None if first is None else first._replace(end=last.end)
            joined.append((sum(rows for rows, _span in group), span))
        return joined


def cut_file(path: Path, options: ReadOptions, rows: int) -> CutFile:
    """Return where a file without labels, which is read with `options`, can be cut every `rows` rows.

    CSV, TSV, JSON Lines and plain text are read once for it, so that line ends in quotes are seen as they are
    later; of Parquet only the footer. An array of JSON, Excel, and encodings such as UTF-16 give one piece.
    Raises InputError as `RowReader.rows` does, but not for invalid rows.
    """
    cut = CutFile()
    if options.format == "parquet":
        total, cut.is_table = num_parquet_rows(path), True
        spans = [Span(at, min(at + rows, total), at + 1) for at in range(0, total, rows)]
        cut.pieces = [(span.end - span.start, span) for span in spans]
    else:
        _cut_lines(cut, path, options, rows)
    if not cut.pieces:
        raise InputError(_("{path}: there are no rows in the file").format(path=path))
    return cut


def _cut_lines(cut: CutFile, path: Path, options: ReadOptions, rows: int) -> None:
    lines, counts, num_rows, due = [], [], 0, 0
    for chunk in RowReader(path, options, need_label=False).records():
        for line, record in zip(*chunk, strict=True):
            # Not within the lines of one invalid record
            if num_rows >= due and not (num_rows and isinstance(record, BadRow)):
                lines.append(line)
                counts.append(num_rows)
                due = (num_rows // rows + 1) * rows
            num_rows += 1
            if isinstance(record, dict) and not record.keys() <= cut.keys.keys():
                cut.keys.update(dict.fromkeys(record))
            cut.is_table = cut.is_table or isinstance(record, (list, dict))
    if options.format in ("json", "xlsx") or not ends_lines_with_lf(options.encoding):
        cut.pieces = [(num_rows, None)] if num_rows else []
        return
    offsets = [*_offsets(path, lines), path.stat().st_size]
    for count, ends, line in zip(pairwise([*counts, num_rows]), pairwise(offsets), lines, strict=True):
        cut.pieces.append((count[1] - count[0], Span(*ends, line)))


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
