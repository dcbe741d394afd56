"""Data files -> their table: the valid rows, memory-mapped by every process.

Each file has a folder in the cache, see `build_table.py`. Several files are one table, one after the other. A
row's id is its index, from 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np

from ..errors import InputError, listed, printable_path, shorten
from .build_table import ROWS_FILE, SKIPPED_FILE, TableMeta, build_table, read_meta
from .cache import build_once, content_key, file_digest, file_state
from .column_facts import ColumnFacts
from .files import files_of
from .folders import SPLIT_NAMES
from .label_shares import ShareFacts
from .line_breaks import LineBreaks
from .read import ReadOptions, recognised
from .rows import Row

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 14  # of the folder of a table; a change of its content needs another one
SPLIT_NAME = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?![a-zA-Z])")  # at the start of a file's name
COLUMNS = ["text", "pair", "label", "line", "hash"]  # that all tables have
MAX_SOURCE = 200  # characters of the name of several files in messages


@dataclass(frozen=True)
class SkippedRow:
    """An invalid row that was left out. `location` is its line, with its file where a table has several."""

    file: str
    line: int
    problem: str
    location: str


@dataclass(frozen=True)
class TablePart:
    """The rows of one data file, memory-mapped. `source` is the name of the file in messages: the folder in
    the cache may have been made of a file of the same content with another name."""

    folder: Path
    source: str
    meta: TableMeta
    rows: pa.Table


@dataclass(frozen=True)
class RowPlace:
    """Where a row is: its file in messages, and its number there; `unit` is what the number counts."""

    file: str
    unit: str
    number: int


class Table:
    """The rows of one data file, or of several; texts are read from disk when they are asked for.

    `sources` has the name of each file, and `source` that of all in messages. `content` is the format and a
    digest of the files. `key` stands for the rows in the names of cached folders that are made of them.
    """

    def __init__(self, parts: list[TablePart], source: str, content: str = "") -> None:
        import pyarrow as pa

        self.parts = parts
        self.source = source
        self.content = content
        first = parts[0].meta
        self.unit = first.unit
        self.assumed = first.assumed
        self.has_pairs = first.has_pairs
        self.folders: list[Path] = []
        self.sources: list[str] = []
        self.skipped = 0
        folder_names = []
        # Each label once, in the order in which they come
        labels: dict[str, None] = {}
        rows_of_parts = []
        num_rows_of_parts = []
        for part in parts:
            self.folders.append(part.folder)
            self.sources.append(part.source)
            self.skipped += part.meta.skipped
            folder_names.append(part.folder.name)
            labels.update(dict.fromkeys(part.meta.labels))
            rows_of_parts.append(part.rows.select(COLUMNS))
            num_rows_of_parts.append(part.rows.num_rows)
        self.label_values = list(labels)
        self.key: str = folder_names[0]
        if len(parts) > 1:
            self.key = content_key(folder_names)
        self._rows = pa.concat_tables(rows_of_parts)
        self.num_rows: int = self._rows.num_rows
        self.num_bytes: int = self._rows.nbytes
        self._part_ends = np.cumsum(num_rows_of_parts)
        self._chunk_ends = np.cumsum(list(map(len, self._rows.column("line").chunks)))

    @property
    def column_facts(self) -> ColumnFacts:
        """What people are told of the columns of the first file."""
        return ColumnFacts(**self.parts[0].meta.columns)

    @property
    def columns(self) -> str:
        """The columns of the first file in words of the current language."""
        return self.column_facts.described()

    @property
    def column_names(self) -> dict[str, list[int | str]]:
        """The names of the columns of text, text_pair and label in the first file, or their numbers."""
        return self.parts[0].meta.names

    def __reduce__(self) -> tuple:
        """Send the folders of a table, and not its rows, to another process."""
        return open_folders, (self.folders, self.sources, self.source, self.content)

    @property
    def labels(self) -> np.ndarray:
        """The label of each row, (num_rows,) int32, indices into `label_values`."""
        codes = {label: code for code, label in enumerate(self.label_values)}
        labels = []
        for part in self.parts:
            codes_of_part = np.array(list(map(codes.get, part.meta.labels)), np.int32)
            labels.append(codes_of_part[part.rows.column("label").to_numpy()])
        return np.concatenate(labels)

    @property
    def share_facts(self) -> dict[str, ShareFacts]:
        """What is known of the distributions of labels in each file that has columns of them, by its name."""
        facts = {}
        for part in self.parts:
            if part.meta.shares["content"]:
                facts[part.source] = ShareFacts(**part.meta.shares)
        return facts

    def rows_of_file(self, source: str) -> int:
        """Return the number of rows of the file with this name."""
        return sum(part.rows.num_rows for part in self.parts if part.source == source)

    @property
    def share_labels(self) -> list[str]:
        """The labels that have a share in any row."""
        labels: dict[str, None] = {}
        for facts in self.share_facts.values():
            if facts.rows:
                labels.update(dict.fromkeys(facts.labels))
        return list(labels)

    def shares(self, label_ids: dict[str, int], num_labels: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows with a distribution of labels, (num_such_rows,) int64, and their shares,
        (num_such_rows, num_labels) float32; `label_ids` has the id of each label."""
        all_rows = [np.empty(0, np.int64)]
        all_shares = [np.empty((0, num_labels), np.float32)]
        starts = self._part_ends - [part.rows.num_rows for part in self.parts]
        for part, start in zip(self.parts, starts, strict=True):
            facts = ShareFacts(**part.meta.shares)
            if not facts.rows:
                continue
            ids = np.array([label_ids[label] for label in facts.labels], np.int64)
            codes = part.rows.column("share_labels").combine_chunks()
            has_shares = np.asarray(codes.is_valid())
            num_kept = np.asarray(codes.value_lengths().fill_null(0))
            rows = np.flatnonzero(has_shares)
            place_of_row = np.cumsum(has_shares) - 1
            shares = np.zeros((len(rows), num_labels), np.float32)
            place_of_share = np.repeat(place_of_row, num_kept)
            label_of_share = ids[codes.flatten().to_numpy()]
            shares[place_of_share, label_of_share] = (
                part.rows.column("shares").combine_chunks().flatten().to_numpy()
            )
            all_rows.append(start + rows)
            all_shares.append(shares)
        return np.concatenate(all_rows), np.concatenate(all_shares)

    @property
    def hashes(self) -> np.ndarray:
        """64 bits of each text, (num_rows,) uint64."""
        return self._rows.column("hash").to_numpy()

    @property
    def sizes(self) -> np.ndarray:
        """The bytes of the text of each row, or of its two texts, (num_rows,) int32."""
        import pyarrow.compute as pc

        sizes = pc.binary_length(self._rows.column("text")).to_numpy()
        if self.has_pairs:
            sizes = sizes + pc.binary_length(self._rows.column("pair")).to_numpy()
        return sizes

    def column(self, name: str, rows: np.ndarray) -> list:
        """Return line, text or pair (None without one) of rows in any order, (num_rows,) ids."""
        import pyarrow as pa

        rows = np.asarray(rows, np.int64)
        values = np.empty(len(rows), object)
        chunks = self._rows.column(name).chunks
        chunk_of_row = np.searchsorted(self._chunk_ends, rows, side="right")
        # Each chunk of the column by itself: pyarrow would copy all of them
        for number in np.unique(chunk_of_row).tolist():
            chunk = chunks[number]
            start = self._chunk_ends[number] - len(chunk)
            positions = np.flatnonzero(chunk_of_row == number)
            values[positions] = chunk.take(pa.array(rows[positions] - start)).to_pylist()
        return values.tolist()

    def row(self, row_id: int) -> Row:
        """Return one row, without its label."""
        [line] = self.column("line", [row_id])
        [text] = self.column("text", [row_id])
        [pair] = self.column("pair", [row_id])
        return Row(line, text, pair, None)

    def texts(self, rows: np.ndarray) -> list[str] | list[tuple[str, str]]:
        """Return the texts, or the pairs of texts, of rows in any order, (num_rows,) ids."""
        texts = self.column("text", rows)
        if self.has_pairs:
            return list(zip(texts, self.column("pair", rows), strict=True))
        return texts

    def joined_texts(self, rows: np.ndarray) -> list[str]:
        """Return what `texts` does, with the two texts of a pair as two lines of one text."""
        texts = self.texts(rows)
        if self.has_pairs:
            return list(map("\n".join, texts))
        return texts

    def _part_of(self, row_id: int) -> TablePart:
        return self.parts[np.searchsorted(self._part_ends, row_id, side="right")]

    def file_of(self, row_id: int) -> str:
        """Return the name of the file that has a row."""
        return self._part_of(row_id).source

    def location(self, row_id: int) -> str:
        """Return the file and line (or element, or row) of one row, for a message."""
        place = self.place(row_id)
        return f"{place.file}, {place.unit} {place.number}"

    def place(self, row_id: int) -> RowPlace:
        part = self._part_of(row_id)
        [line] = self.column("line", [row_id])
        return RowPlace(file=part.source, unit=part.meta.unit, number=line)

    def short_location(self, row_id: int) -> str:
        """Return the line of one row, with its file where there are several."""
        return self._shortened(self.location(row_id))

    def _shortened(self, location: str) -> str:
        return location.removeprefix(f"{self.source}, ")

    def line_breaks(self) -> dict[str, LineBreaks]:
        """Return what is known of the texts of several lines of each file, by its name."""
        breaks = {}
        for part in self.parts:
            breaks[part.source] = LineBreaks(**part.meta.line_breaks)
        return breaks

    def skipped_rows(self) -> list[SkippedRow]:
        """Return the invalid rows that were left out, in the order of files and lines."""
        skipped = []
        for part in self.parts:
            for text in (part.folder / SKIPPED_FILE).read_text(encoding="utf-8").splitlines():
                row = json.loads(text)
                location = self._shortened(f"{part.source}, {part.meta.unit} {row['line']}")
                skipped.append(SkippedRow(part.source, row["line"], row["problem"], location))
        return skipped


def open_folders(
    folders: Sequence[Path],
    sources: Sequence[str] | None = None,
    source: str | None = None,
    content: str = "",
) -> Table:
    """Return the table of folders in the cache. `sources` are the names of the files, and `source` that of
    all of them: those of the files that the folders were made of, and that of the first one, if not given."""
    import pyarrow as pa

    parts = []
    for number, folder in enumerate(folders):
        meta = read_meta(folder)
        # The rows stay mapped even if the cache is removed
        rows = pa.ipc.open_file(pa.memory_map(str(folder / ROWS_FILE))).read_all()
        name = meta.source
        if sources:
            name = sources[number]
        parts.append(TablePart(folder=folder, source=name, meta=meta, rows=rows))
    return Table(parts, source or parts[0].source, content)


def open_table(value: str | list[str], options: ReadOptions, cache_dir: str, **rules: Any) -> Table:
    """Return the table of all files of a setting; a file is read only if the cache has no table of the same
    content. The other files are read as the first one was, as many at a time as there are cores.
    `rules` are those of `build_table`. Raises its errors, and those of `build_once`."""
    files = files_of(value, cache_dir)
    # The user has chosen files that are listed one by one
    if files != value:
        _refuse_several_splits(value, files)
    first = _open_file(files[0], options, cache_dir, rules)
    if len(files) == 1:
        return first
    open_like_first = partial(
        _open_file, options=options.for_other_files(first.assumed), cache_dir=cache_dir, rules=rules
    )
    with ThreadPoolExecutor(joblib.cpu_count()) as pool:
        tables = [first, *pool.map(open_like_first, files[1:])]
    parts = []
    contents = []
    for table in tables:
        parts += table.parts
        contents.append(table.content)
        if table.has_pairs != first.has_pairs:
            raise InputError(
                f"{table.source}: all files must have the same columns, found "
                f"{table.column_facts.in_english()}, and in {first.source} "
                f"{first.column_facts.in_english()}; fix one"
            )
    source = value
    if not isinstance(source, str):
        source = ", ".join(source)
    return Table(
        parts,
        source=shorten(source, MAX_SOURCE),
        content=f"{len(tables)} files {content_key(contents)}",
    )


def _open_file(file: str, options: ReadOptions, cache_dir: str, rules: dict[str, Any]) -> Table:
    """Return the table of one file, which is built if the cache does not have it."""
    path = Path(file)
    options = recognised(path, options, rules.get("need_label", True))
    state = file_state(path)
    digest = file_digest(path)
    key = content_key("table", VERSION, asdict(options), rules, digest)
    folder = Path(cache_dir) / f"table-{key}"
    num_bytes = state[1]
    build = partial(build_table, state=state, **rules)
    build_once(folder, build, file, options, num_bytes=num_bytes)
    source = printable_path(file)
    return open_folders([folder], [source], source, content=f"{options.format} {digest.hex()[:32]}")


def _refuse_several_splits(value: str | list[str], files: list[str]) -> None:
    """Raise InputError where the names of files say that they are train and another split."""
    names = set()
    for file in files:
        match = SPLIT_NAME.match(Path(file).name)
        if match:
            names.add(match[0])
    if "train" in names and len(names) > 1:
        raise InputError(
            f"{value}: the files of one split are needed, found names of {listed(sorted(names))}; give a "
            "pattern for each, such as --data.train 'folder/train*' --data.test 'folder/test*'"
        )
