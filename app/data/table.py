"""One data file -> its table: the valid rows on disk, memory-mapped by every process.

A table is a folder: `texts.bin` (UTF-8, end to end) with `text_ends.npy`, the same for second texts, `labels.npy`
(indices into `label_values`), `lines.npy` (the line of each row in the file) and `hashes.npy` (64 bits of each text, to
detect repeated ones). A row's id is its index here, from 0.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from array import array
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np

from app.data.cache import build_once, content_key
from app.data.labels import resolve_label
from app.data.readers import BadRow, ReadOptions, file_format
from app.data.rows import Row, read_rows
from app.data.text_files import check_file
from app.errors import InputError, excerpt, listed, nearest

logger = logging.getLogger(__name__)
VERSION = 2
SHOWN = 5  # invalid rows that an error message lists


class Table:
    """The rows of one data file; texts are read from disk when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        meta = json.loads((folder / "table.json").read_text(encoding="utf-8"))
        self.source: str = meta["source"]
        self.row_unit: str = meta["place"]
        self.columns: str = meta["columns"]
        self.label_values: list[str] = meta["label_values"]
        self.multiline: int = meta["multiline"]
        self.first_multiline: int | None = meta["first_multiline"]
        self.skipped: int = meta["skipped"]
        self.has_pairs: bool = meta["has_pairs"]
        self.num_rows: int = meta["num_rows"]

    def array(self, name: str) -> np.ndarray:
        """Return one of the table's arrays, memory-mapped, of shape (num_rows,)."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    @cached_property
    def _texts(self) -> tuple[np.ndarray, np.ndarray]:
        return np.memmap(self.folder / "texts.bin", np.uint8, "r"), self.array("text_ends")

    @cached_property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        return np.memmap(self.folder / "pairs.bin", np.uint8, "r"), self.array("pair_ends")

    def text(self, row: int) -> str:
        """Return the cleaned text of one row."""
        return _slice(*self._texts, row)

    def pair(self, row: int) -> str | None:
        """Return the cleaned second text of one row, or None if the table has single texts."""
        return _slice(*self._pairs, row) if self.has_pairs else None

    def texts(self, rows: np.ndarray) -> list[str]:
        """Return the cleaned texts of many rows, (num_rows,) ids in increasing order; much faster than one by one."""
        return _slices(*self._texts, rows)

    def pairs(self, rows: np.ndarray) -> list[str]:
        """Return the cleaned second texts of many rows, of a table that has them."""
        return _slices(*self._pairs, rows)

    def where(self, row: int) -> str:
        """Return the file and line (or element, or row) of one row, for a message."""
        return f"{self.source}, {self.row_unit} {int(self.array('lines')[row])}"

    def skipped_rows(self) -> list[dict]:
        """Return the skipped rows: `line` and `problem` of each."""
        with (self.folder / "skipped.jsonl").open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]


def _slice(content: np.ndarray, ends: np.ndarray, row: int) -> str:
    start = int(ends[row - 1]) if row else 0
    return content[start : int(ends[row])].tobytes().decode()


def _slices(content: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> list[str]:
    if not len(rows):
        return []
    starts, stops = np.where(rows > 0, ends[rows - 1], 0), ends[rows]
    first = int(starts[0])
    joined = content[first : int(stops[-1])].tobytes()
    bounds = zip((starts - first).tolist(), (stops - first).tolist(), strict=True)
    return [joined[start:stop].decode() for start, stop in bounds]


def open_table(
    path: str,
    options: ReadOptions,
    skip_bad_rows: bool,
    cache_dir: str,
    label_names: list[str] | None,
    accept_ids: bool = True,
) -> Table:
    """Return the table of a data file, reading the file only if the cache has no table of the same content.

    With `label_names`, a row with any other label is invalid; with `accept_ids`, integers may be the ids of labels.
    Raises InputError for a file that cannot be read, and for invalid rows unless `skip_bad_rows`.
    """
    source = Path(path)
    check_file(source, file_format(source, options.format), options.encoding)
    arguments = (path, options, skip_bad_rows, label_names, accept_ids)
    key = content_key("table", VERSION, str(path), asdict(options), skip_bad_rows, label_names, accept_ids, source)
    return Table(build_once(Path(cache_dir) / f"table-{key}", build_table, *arguments))


def build_table(
    folder: Path,
    path: str,
    options: ReadOptions,
    skip_bad_rows: bool,
    label_names: list[str] | None,
    accept_ids: bool = True,
) -> None:
    """Write the table of `path` into `folder`; needs 28 bytes of memory per row."""
    notes: dict = {}
    shown: list[BadRow] = []
    num_bad = 0
    with _TableWriter(folder) as writer, (folder / "skipped.jsonl").open("w", encoding="utf-8") as skipped:
        for row in read_rows(path, options, notes=notes):
            if isinstance(row, Row) and label_names and row.label not in writer.label_codes:
                row = _check_label(row, label_names, accept_ids)
            if isinstance(row, Row):
                writer.add(row)
                continue
            num_bad += 1
            shown += [row] if len(shown) < SHOWN else []
            skipped.write(json.dumps({"line": row.line, "problem": row.problem}, ensure_ascii=True) + "\n")
    if num_bad and not skip_bad_rows:
        raise InputError(_bad_rows_message(path, notes["place"], shown, num_bad))
    if not writer.arrays["lines"]:
        raise InputError(
            f"{path}: there are no rows left: all {num_bad:,} are invalid\n"
            + _list_bad_rows(path, notes["place"], shown, num_bad)
        )
    for name, values in writer.arrays.items():
        np.save(folder / f"{name}.npy", np.asarray(values))
    meta = {
        "source": os.fsencode(path).decode(errors="replace"),  # a name in another encoding must be printable
        "place": notes["place"],
        "columns": notes["columns"],
        "label_values": list(writer.label_codes),
        "multiline": notes["multiline"],
        "first_multiline": notes.get("first_multiline"),
        "skipped": num_bad,
        "has_pairs": len(writer.arrays["pair_ends"]) > 0,
        "num_rows": len(writer.arrays["lines"]),
    }
    (folder / "table.json").write_text(json.dumps(meta, ensure_ascii=False, indent=1), encoding="utf-8")


class _TableWriter:
    """Writes the texts of rows to files, and collects everything else in `arrays` and `label_codes`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.label_codes: dict[str, int] = {}
        types = {"labels": "i", "lines": "q", "hashes": "Q", "text_ends": "q", "pair_ends": "q"}
        self.arrays = {name: array(type_code) for name, type_code in types.items()}

    def __enter__(self) -> _TableWriter:
        self.texts = (self.folder / "texts.bin").open("wb")
        self.pairs = (self.folder / "pairs.bin").open("wb")
        return self

    def __exit__(self, *error: object) -> None:
        self.texts.close()
        self.pairs.close()

    def add(self, row: Row) -> None:
        """Add one row."""
        text = row.text.encode()
        self.texts.write(text)
        self.arrays["text_ends"].append(self.texts.tell())
        if row.pair is not None:
            pair = row.pair.encode()
            self.pairs.write(pair)
            self.arrays["pair_ends"].append(self.pairs.tell())
            text += b"\0" + pair
        self.arrays["labels"].append(self.label_codes.setdefault(row.label, len(self.label_codes)))
        self.arrays["lines"].append(row.line)
        self.arrays["hashes"].append(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


def _check_label(row: Row, names: list[str], accept_ids: bool) -> Row | BadRow:
    """Return the row, or a `BadRow` if its label is unknown."""
    if resolve_label(row.label, names, accept_ids) is not None:
        return row
    return BadRow(
        row.line,
        f"unknown label {excerpt(row.label)}{nearest(row.label, names)} (known: {listed(names)}); fix the row or set "
        "--data.labels",
    )


def _bad_rows_message(path: str, unit: str, bad: list[BadRow], num_bad: int) -> str:
    if num_bad == 1:
        return f"{path}, {unit} {bad[0].line}: {bad[0].problem} (or --data.on_bad_row skip)"
    return (
        f"{path}: {num_bad:,} rows are invalid; fix them, or skip them with --data.on_bad_row skip\n"
        + _list_bad_rows(path, unit, bad, num_bad)
    )


def _list_bad_rows(path: str, unit: str, bad: list[BadRow], num_bad: int) -> str:
    more = [f"  ... and {num_bad - len(bad):,} more"] if num_bad > len(bad) else []
    return "\n".join([f"  {path}, {unit} {row.line}: {row.problem}" for row in bad] + more)
