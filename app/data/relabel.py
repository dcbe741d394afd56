"""Corrected labels by text: a file of fixes -> other class ids for the rows that have these texts. Data files stay as they are.

A fix is a row of a CSV file (or TSV, Excel, JSON Lines) with the column `label`, and `text_hash` as label_issues.csv has it,
or `text` (and `text_pair`). A row without a label is no fix, so a list of label issues may be filled in part by part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.data.excel import NotText
from app.data.formats import file_format, row_unit
from app.data.labels import resolve_label
from app.data.readers import BadRow, ReadOptions, read_records
from app.data.table_builder import text_hash
from app.data.text_files import check_file
from app.errors import InputError, excerpt, listed, nearest, printable_path, shorten

COLUMNS = ("text_hash", "text", "text_pair", "label")
HASH = re.compile(r"h[0-9a-f]{16}")  # the letter keeps spreadsheets from reading it as a number


@dataclass(frozen=True)
class Fixes:
    """The corrected labels of a file: `hashes` (num_fixes,) uint64 of different texts, increasing, and the label of each.

    `lines` says where each fix is, counted in `unit`; `source` is the file's name for messages.
    """

    source: str
    unit: str
    hashes: np.ndarray
    labels: list[str]
    lines: list[int]

    def class_ids(self, names: list[str]) -> np.ndarray:
        """Return the class id of each fix, (num_fixes,); raises InputError for a label that is not one of `names`."""
        ids = np.empty(len(self.labels), np.int64)
        for at, label in enumerate(self.labels):
            found = resolve_label(label, names)
            if found is None:
                raise InputError(
                    f"{self.source}, {self.unit} {self.lines[at]}: a fix must have a label of the data, found "
                    f"{excerpt(label)}{nearest(label, names)} (known: {listed(names)}); correct it, or set --data.labels"
                )
            ids[at] = found
        return ids


def written_hash(value: int) -> str:
    """Return the hash of a text as files have it: the letter h and 16 hexadecimal digits."""
    return f"h{value:016x}"


def read_fixes(path: str | Path, encoding: str = "utf-8", remove_spaces: bool = False) -> Fixes:
    """Read a file of fixes; texts are cleaned as those of the data are.

    Raises InputError, with file and line, for rows that are no fixes and for two different labels of one text.
    """
    file = Path(path)
    options = ReadOptions(encoding=encoding)
    format = file_format(file, "auto", encoding)
    check_file(file, format, encoding)
    unit, source = row_unit(format), printable_path(str(path))
    found: dict[int, tuple[str, int]] = {}
    for line, values in _rows(file, options, format):
        where = f"{source}, {unit} {line}"
        label = _string(where, values.get("label"), "label").strip()
        if not label:
            continue
        key = _key(where, values, remove_spaces)
        before = found.setdefault(key, (label, line))
        if before[0] != label:
            raise InputError(
                f"{where}: a text can have one label only, found {excerpt(label)} here and {excerpt(before[0])} in {unit} "
                f"{before[1]}; keep one of the two"
            )
    hashes = sorted(found)
    labels, lines = ([found[key][at] for key in hashes] for at in (0, 1))
    return Fixes(source, unit, np.array(hashes, np.uint64), labels, lines)


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
            f"{where}: a file of fixes needs a header with the column label, and text_hash or text; found {listed(names)}"
        )
    return names


def _key(where: str, values: dict, remove_spaces: bool) -> int:
    """Return the hash of the text of a row."""
    given = _string(where, values.get("text_hash"), "text_hash").strip()
    if given:
        if not HASH.fullmatch(given):
            raise InputError(
                f"{where}: text_hash must be the letter h and 16 hexadecimal digits, as in label_issues.csv, found "
                f"{excerpt(given)}; copy it whole, or remove the column and use text"
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
    if isinstance(value, (bool, float, dict, list, NotText)) and not (isinstance(value, float) and value.is_integer()):
        raise InputError(f"{where}: {name} must be a string or an integer, found {shorten(str(value))}; fix the row")
    text = str(int(value)) if isinstance(value, float) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where}: {name} has bytes that are not in the encoding; set --data.encoding (gb18030 for most older Chinese "
            "files), or save the file in UTF-8"
        ) from error
    return text


def apply_fixes(
    ids: np.ndarray, hashes: np.ndarray, fixes: Fixes, new_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the class ids of rows after the fixes, and how many rows each fix is about, (num_fixes,).

    `ids` and `hashes` are (num_rows,); `new_ids` (num_fixes,) are those of `Fixes.class_ids`.
    """
    if not len(fixes.hashes):
        return ids, np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(fixes.hashes, hashes), len(fixes.hashes) - 1)
    matches = fixes.hashes[at] == hashes
    return np.where(matches, new_ids[at], ids), np.bincount(at[matches], minlength=len(fixes.hashes))
