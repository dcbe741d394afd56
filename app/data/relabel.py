"""Corrected labels by text: a file of fixes -> other class ids for the rows that have these texts. Data files
stay as they are.

A fix is a row of a CSV file (or TSV, Excel, JSON Lines) with the column `label`, and `text_hash` as
label_issues.csv has it, or `text` (and `text_pair`). A row without a label is no fix, so a list of label
issues may be filled in part by part. For multi-label rows, `label` is a set of labels as the
data has them; the list [] is no label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt, listed, nearest, printable_path, shorten
from .formats import file_format, read_records, row_unit
from .label_cells import decode_labels, encode_labels, labels_in_cell
from .label_forms import label_form
from .labels import resolve_label
from .multi_label_rows import label_matrix
from .readers import BadRow, MultiLabelOptions, ReadOptions
from .readers.excel import NotText
from .table_builder import text_hash
from .text_files import is_utf8

COLUMNS = ("text_hash", "text", "text_pair", "label")
# The letter keeps spreadsheets from reading it as a number
HASH = re.compile(r"h[0-9a-f]{16}")


@dataclass(frozen=True)
class Fixes:
    """The corrected labels of a file: `hashes` (num_fixes,) uint64 of different texts, increasing, and the
    label of each.

    `lines` says where each fix is, counted in `unit`; `source` is the file's name for messages.
    """

    source: str
    unit: str
    hashes: np.ndarray
    labels: list[str]
    lines: list[int]

    def new_labels(self, names: list[str]) -> np.ndarray:
        """Return the class id of each fix, (num_fixes,); raises InputError for a label that is not one of
        `names`."""
        return np.array([self._id(at, label, names) for at, label in enumerate(self.labels)], np.int64)

    def _id(self, at: int, label: str, names: list[str]) -> int:
        label_id = resolve_label(label, names)
        if label_id is None:
            raise InputError(
                f"{self.source}, {self.unit} {self.lines[at]}: a fix must have a label of the data, found "
                f"{excerpt(label)}{nearest(label, names)} (known: {listed(names)}); correct it, or set "
                "--data.labels"
            )
        return label_id


class MultiLabelFixes(Fixes):
    """The corrected lists of labels of a file; `labels` has each as text, encoded as in
    `app/data/label_cells.py`."""

    def new_labels(self, names: list[str]) -> np.ndarray:
        """Return which labels each fix has, (num_fixes, num_labels) uint8; raises InputError for one not in
        `names`."""
        for at, text in enumerate(self.labels):
            for label in decode_labels(text):
                self._id(at, label, names)
        return label_matrix(self.labels, names)


def written_hash(value: int) -> str:
    """Return the hash of a text as files have it: the letter h and 16 hexadecimal digits."""
    return f"h{value:016x}"


def configured_fixes(config: DataConfig) -> Fixes | None:
    """Return the fixes of data.relabel, None without; raises InputError as `read_fixes` does."""
    if not config.relabel:
        return None
    sets = MultiLabelOptions(label_separator=config.label_separator, label_columns=config.label_columns)
    return read_fixes(
        config.relabel,
        config.encoding,
        config.remove_spaces,
        sets if label_form(config.task).options is MultiLabelOptions else None,
    )


def read_fixes(
    path: str | Path,
    encoding: str = "utf-8",
    remove_spaces: bool = False,
    multi_label: MultiLabelOptions | None = None,
) -> Fixes:
    """Read a file of fixes; texts are cleaned as those of the data are. `multi_label` says how sets of labels
    are written. `encoding` is that of the data: a file in UTF-8, as a list of label issues is, is read as
    such.

    Raises InputError, with file and line, for rows that are no fixes and for two different labels of one
    text.
    """
    file = Path(path)
    encoding = "utf-8" if is_utf8(file) else encoding
    options = ReadOptions(encoding=encoding)
    format = file_format(file, "auto", encoding)
    unit, source = row_unit(format), printable_path(str(path))
    label_and_line: dict[int, tuple[str, int]] = {}
    for line, values in _rows(file, options, format):
        where = f"{source}, {unit} {line}"
        given = values.get("label")
        label = (
            _label_list(where, given, multi_label) if multi_label else _string(where, given, "label").strip()
        )
        if not label:
            continue
        key = _key(where, values, remove_spaces)
        before = label_and_line.setdefault(key, (label, line))
        if before[0] != label:
            raise InputError(
                f"{where}: a text can have one {'set of labels' if multi_label else 'label'} only, found "
                f"{excerpt(label)} here and {excerpt(before[0])} in {unit} {before[1]}; keep one of the two"
            )
    hashes = sorted(label_and_line)
    labels, lines = ([label_and_line[key][at] for key in hashes] for at in (0, 1))
    return (MultiLabelFixes if multi_label else Fixes)(
        source, unit, np.array(hashes, np.uint64), labels, lines
    )


def _label_list(where: str, value: object, options: MultiLabelOptions) -> str:
    """Return the text of a set of labels, an empty one where the row is no fix."""
    if value is None or (isinstance(value, (str, NotText)) and not _string(where, value, "label").strip()):
        return ""
    try:
        labels = labels_in_cell(value, options.label_separator)
    except ValueError as error:
        # There is no separator to set
        if options.label_columns is not None:
            raise InputError(
                f'{where}: several labels of a fix must be a JSON list, like ["a", "b"], found '
                f"{excerpt(value)}; write one"
            ) from error
        raise InputError(f"{where}: {error}") from error
    names = [_string(where, label, "label").strip() for label in labels]
    if not all(names):
        raise InputError(
            f"{where}: a label of the set is empty, found {excerpt(value)}; remove it or write its name"
        )
    return encode_labels(names)


def _rows(path: Path, options: ReadOptions, format: str) -> Iterator[tuple[int, dict]]:
    """Yield line and values by column name of each row; raises InputError for what is no row."""
    if format not in ("csv", "tsv", "xlsx", "jsonl", "json"):
        raise InputError(f"{path}: fixes are read from CSV, TSV, Excel, JSON and JSON Lines, found {format}")
    names: list[str] | None = None
    for line, record in read_records(path, options, format):
        where = f"{path}, {row_unit(format)} {line}"
        if isinstance(record, BadRow):
            raise InputError(f"{where}: {record.problem}")
        if isinstance(record, list) and names is None:
            names = _header(where, record)
            continue
        if not isinstance(record, (list, dict)) or (isinstance(record, list) and len(record) != len(names)):
            needed = f"a row of {len(names)} columns as in the header" if names else "an object"
            raise InputError(f"{where}: {needed} is needed, found {excerpt(record)}; correct the row")
        yield line, record if isinstance(record, dict) else dict(zip(names, record, strict=True))


def _header(where: str, record: list) -> list[str]:
    names = [str(value).strip() for value in record]
    if "label" not in names or not {"text_hash", "text"} & set(names):
        raise InputError(
            f"{where}: a file of fixes needs a header with the column label, and text_hash or text; found "
            f"{listed(names)}"
        )
    return names


def _key(where: str, values: dict, remove_spaces: bool) -> int:
    """Return the hash of the text of a row."""
    given = _string(where, values.get("text_hash"), "text_hash").strip()
    if given:
        if not HASH.fullmatch(given):
            raise InputError(
                f"{where}: text_hash must be the letter h and 16 hexadecimal digits, as in label_issues.csv, "
                f"found {excerpt(given)}; copy it whole, or remove the column and use text"
            )
        return int(given[1:], 16)
    texts = [_string(where, values.get(name), name) for name in ("text", "text_pair")]
    text, pair = ("".join(part.split()) if remove_spaces else part.strip() for part in texts)
    if not text:
        raise InputError(f"{where}: a fix needs its text_hash or its text; fill one in, or remove the row")
    return text_hash(text.encode(), pair.encode() if pair else None)


def _string(where: str, value: object, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, float, dict, list, NotText)) and not (
        isinstance(value, float) and value.is_integer()
    ):
        raise InputError(
            f"{where}: {name} must be a string or an integer, found {shorten(str(value))}; fix the row"
        )
    text = str(int(value)) if isinstance(value, float) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where}: {name} has bytes that are not in the encoding; set --data.encoding (gb18030 for most "
            "older Chinese files), or save the file in UTF-8"
        ) from error
    return text


def apply_fixes(
    ids: np.ndarray, hashes: np.ndarray, fixes: Fixes, new_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of rows after the fixes, and how many rows each fix is about, (num_fixes,).

    `ids` are (num_rows,), or (num_rows, num_labels) 0 and 1; `hashes` (num_rows,); `new_ids` are those of
    `Fixes.new_labels`.
    """
    if not len(fixes.hashes):
        return ids, np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(fixes.hashes, hashes), len(fixes.hashes) - 1)
    matches = fixes.hashes[at] == hashes
    fixed = np.array(ids)
    fixed[matches] = new_ids[at[matches]]
    return fixed, np.bincount(at[matches], minlength=len(fixes.hashes))
