"""One data file -> its table: the valid rows on disk, memory-mapped by every process.

A table is a folder: `texts.bin` (UTF-8, end to end) with `text_ends.npy`, the same for second texts,
`labels.npy` (indices into `label_values`), `lines.npy` (the line of each row in the file) and `hashes.npy`
(64 bits of each text, to detect repeated ones). A row's id is its index here, from 0.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import printable_path
from .cache import build_once, content_key, file_digest
from .file_encoding import file_encoding
from .formats import file_format
from .readers import ReadOptions
from .table_builder import build_table
from .text_files import check_file

VERSION = 3
ARRAYS = ("labels", "lines", "hashes", "text_ends", "pair_ends")


class Table:
    """The rows of one data file; texts are read from disk when they are asked for.

    `source` names the file in messages; files of the same content share a folder, which has the name of the
    first. `content` is the format and a digest of the file. Of several files, `sources` has the names.
    """

    def __init__(
        self, folder: Path, source: str | None = None, content: str = "", sources: list[str] | None = None
    ) -> None:
        self.folder = folder
        self.content = content
        self.sources = sources
        self._arrays: dict[str, np.ndarray] = {}
        meta = json.loads((folder / "table.json").read_text(encoding="utf-8"))
        self.source: str = meta["source"] if source is None else printable_path(source)
        self.row_unit: str = meta["place"]
        self.columns: str = meta["columns"]
        self.assumed: dict = meta["assumed"]
        self.label_values: list[str] = meta["label_values"]
        self.multiline: int = meta["multiline"]
        self.first_multiline: int | None = meta["first_multiline"]
        self.skipped: int = meta["skipped"]
        self.has_pairs: bool = meta["has_pairs"]
        self.num_rows: int = meta["num_rows"]
        # Of several files: what the rows of each are counted by, and the row after its last one
        self._units: list[str] = meta.get("units", [self.row_unit])
        self._ends: list[int] = meta.get("ends", [self.num_rows])

    def __reduce__(self) -> tuple:
        """Send the place of a table, and not its content, to another process."""
        return Table, (self.folder, self.source, self.content, self.sources)

    def keep_open(self) -> None:
        """Map all files, so that the report can be written after the cache was removed."""
        _ = self._texts, self.has_pairs and self._pairs
        for name in ARRAYS:
            self.array(name)

    def array(self, name: str) -> np.ndarray:
        """Return one of the table's arrays, memory-mapped, of shape (num_rows,)."""
        if name not in self._arrays:
            self._arrays[name] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return self._arrays[name]

    @property
    def num_bytes(self) -> int:
        """The bytes of all texts."""
        names = ["texts.bin", *["pairs.bin"] * self.has_pairs]
        return sum((self.folder / name).stat().st_size for name in names)

    @property
    def lines(self) -> np.ndarray:
        """The line (or element, or row) of each row in the file, (num_rows,) int64."""
        return self.array("lines")

    @cached_property
    def _texts(self) -> tuple[np.ndarray, np.ndarray]:
        return np.memmap(self.folder / "texts.bin", np.uint8, "r"), self.array("text_ends")

    @cached_property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        return np.memmap(self.folder / "pairs.bin", np.uint8, "r"), self.array("pair_ends")

    def text(self, row: int) -> str:
        """Return the cleaned text of one row."""
        return _slices(*self._texts, np.array([row]))[0]

    def pair(self, row: int) -> str | None:
        """Return the cleaned second text of one row, or None if the table has single texts."""
        return _slices(*self._pairs, np.array([row]))[0] if self.has_pairs else None

    def texts(self, rows: np.ndarray) -> list[str]:
        """Return the cleaned texts of many rows, (num_rows,) increasing ids; faster than one by one."""
        return _slices(*self._texts, rows)

    def pairs(self, rows: np.ndarray) -> list[str]:
        """Return the cleaned second texts of many rows, of a table that has them."""
        return _slices(*self._pairs, rows)

    def texts_or_pairs(self, rows: np.ndarray) -> list[str] | list[tuple[str, str]]:
        """Return the texts, or the pairs of texts, of rows in any order, (num_rows,) ids."""
        order = np.argsort(rows, kind="stable")
        texts = self.texts(rows[order])
        if self.has_pairs:
            texts = list(zip(texts, self.pairs(rows[order]), strict=True))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return [texts[place] for place in places]

    def joined_texts(self, rows: np.ndarray) -> list[str]:
        """Return what `texts_or_pairs` does, the two texts of a pair as one."""
        texts = self.texts_or_pairs(rows)
        return ["\n".join(pair) for pair in texts] if self.has_pairs else texts

    def where(self, row: int) -> str:
        """Return the file and line (or element, or row) of one row, for a message."""
        unit = self._units[bisect_right(self._ends, row)]
        return f"{self.file_of(row)}, {unit} {self.lines[row]}"

    def place(self, row: int) -> str:
        """Return the line of one row, with its file where there are several."""
        return self.where(row) if self.sources else f"{self.row_unit} {self.lines[row]}"

    def file_of(self, row: int) -> str:
        """Return the name of the file that has a row."""
        return self.sources[bisect_right(self._ends, row)] if self.sources else self.source

    def skipped_rows(self) -> list[dict]:
        """Return the skipped rows: `line`, `problem` and `file` of each, and its `place` as in `place`."""
        with (self.folder / "skipped.jsonl").open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        for row in rows:
            part = row.pop("part", 0)
            row["file"] = self.sources[part] if self.sources else self.source
            row["place"] = f"{row['file']}, " * bool(self.sources) + f"{self._units[part]} {row['line']}"
        return rows


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
    need_label: bool = True,
) -> Table:
    """Return the table of a data file, reading the file only if the cache has no table of the same content.

    With `label_names`, a row with any other label is invalid; with `accept_ids`, integers may be the ids of
    labels. Without `need_label` only texts are read, and no row has a label. Raises InputError for a file
    that cannot be read, and for invalid rows unless `skip_bad_rows`.
    """
    source = Path(path)
    encoding = file_encoding(source, options.encoding)
    format = file_format(source, options.format, encoding)
    check_file(source, format, encoding)
    options = replace(options, format=format, encoding=encoding)
    digest = file_digest(source)
    rules = (skip_bad_rows, label_names, accept_ids)
    key = content_key("table" if need_label else "texts", VERSION, asdict(options), *rules, digest)
    folder = Path(cache_dir) / f"table-{key}"
    arguments = (path, options, *rules, digest, need_label)
    build_once(folder, build_table, *arguments, num_bytes=source.stat().st_size)
    return Table(folder, str(path), f"{format} {digest.hex()[:32]}")
