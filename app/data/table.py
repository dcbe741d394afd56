"""Data files -> their table: the valid rows on disk in Arrow's format, memory-mapped by every process.

A file's table is a folder: `rows.arrow` has the cleaned text of each row, of pairs the second text, its label
as an index into the label values, its line in the file and a hash of its text, to detect repeated ones;
`table.json` what is known of the file; `skipped.jsonl` the rows that were left out. A row's id is its index,
from 0. Several files are one table, one after the other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from ..errors import InputError, listed, printable_path, shorten
from ..words import _
from .bad_row import bad_row_message
from .cache import build_once, content_key, file_digest, file_state
from .files import files_of
from .read import DELIMITED, SUFFIXES, ReadOptions, recognised
from .row_reader import open_rows
from .rows import Row

VERSION = 10
SPLIT_NAME = re.compile("(train|validation|valid|dev|test)(?![a-zA-Z])")  # at the start of a file's name
ROWS_FILE, META_FILE, SKIPPED_FILE = "rows.arrow", "table.json", "skipped.jsonl"
SHOWN_BAD_ROWS = 5  # invalid rows that an error message lists
# Reading one column of small batches would map nearly all pages of the file
BATCH_BYTES = 1 << 23  # of rows that are written together
EMPTY_SHARE = 0.01  # up to this share of rows without a text is skipped, with a message


class Table:
    """The rows of one data file, or of several; texts are read from disk when they are asked for. `sources`
    has the name of each file, and `source` that of all in messages. `content` is the format and a digest of
    the files. `key` stands for the rows in the names of cached folders that are made of them."""

    def __init__(
        self, folders: Path | list[Path], sources: Sequence[str] = (), source: str = "", content: str = ""
    ) -> None:
        import pyarrow as pa

        self.folders, self.content = [folders] if isinstance(folders, Path) else folders, content
        self._metas = [json.loads((one / META_FILE).read_text(encoding="utf-8")) for one in self.folders]
        first, names = self._metas[0], [folder.name for folder in self.folders]
        self.sources = sources or [meta["source"] for meta in self._metas]
        self.source: str = source or self.sources[0]
        self.key = names[0] if len(names) == 1 else content_key(names)
        self.row_unit, self.columns, self.assumed = first["unit"], first["columns"], first["assumed"]
        self.has_pairs: bool = first["has_pairs"]
        self.skipped: int = sum(meta["skipped"] for meta in self._metas)
        self.label_values = list(dict.fromkeys(label for meta in self._metas for label in meta["labels"]))
        # The rows stay mapped even if the cache is removed
        files = (pa.memory_map(str(folder / ROWS_FILE)) for folder in self.folders)
        self._parts = [pa.ipc.open_file(file).read_all() for file in files]
        self._rows = pa.concat_tables(self._parts)
        self.num_rows, self.num_bytes = self._rows.num_rows, self._rows.nbytes
        self._part_ends = np.cumsum([part.num_rows for part in self._parts])
        self._ends = np.cumsum([len(chunk) for chunk in self._rows.column("line").chunks])

    def __reduce__(self) -> tuple:
        """Send the place of a table, and not its content, to another process."""
        return Table, (self.folders, self.sources, self.source, self.content)

    @property
    def labels(self) -> np.ndarray:
        """The label of each row, (num_rows,) int32, indices into `label_values`."""
        codes = {label: code for code, label in enumerate(self.label_values)}
        own = [np.array([codes[label] for label in meta["labels"]], np.int32) for meta in self._metas]
        parts = zip(own, self._parts, strict=True)
        return np.concatenate([codes[part.column("label").to_numpy()] for codes, part in parts])

    @property
    def hashes(self) -> np.ndarray:
        """64 bits of each text, (num_rows,) uint64."""
        return self._rows.column("hash").to_numpy()

    @property
    def sizes(self) -> np.ndarray:
        """The bytes of the text of each row, or of its two texts, (num_rows,) int32."""
        import pyarrow.compute as pc

        names = ["text", "pair"] if self.has_pairs else ["text"]
        return sum(pc.binary_length(self._rows.column(name)).to_numpy() for name in names)

    def column(self, name: str, rows: np.ndarray) -> list:
        """Return line, text or pair (None without one) of rows in any order, (num_rows,) ids."""
        import pyarrow as pa

        rows, found = np.asarray(rows, np.int64), np.empty(len(rows), object)
        # Each chunk of the column by itself: pyarrow would copy all of them
        chunks, of_row = self._rows.column(name).chunks, np.searchsorted(self._ends, rows, side="right")
        for number in np.unique(of_row).tolist():
            at = np.flatnonzero(of_row == number)
            start = self._ends[number] - len(chunks[number])
            found[at] = chunks[number].take(pa.array(rows[at] - start)).to_pylist()
        return found.tolist()

    def row(self, row: int) -> Row:
        """Return one row, without its label."""
        return Row(*(self.column(name, [row])[0] for name in ("line", "text", "pair")), None)

    def texts(self, rows: np.ndarray) -> list[str] | list[tuple[str, str]]:
        """Return the texts, or the pairs of texts, of rows in any order, (num_rows,) ids."""
        texts = self.column("text", rows)
        return list(zip(texts, self.column("pair", rows), strict=True)) if self.has_pairs else texts

    def joined_texts(self, rows: np.ndarray) -> list[str]:
        """Return what `texts` does, with the two texts of a pair as two lines of one text."""
        texts = self.texts(rows)
        return ["\n".join(pair) for pair in texts] if self.has_pairs else texts

    def file_of(self, row: int) -> str:
        return self.sources[np.searchsorted(self._part_ends, row, side="right")]

    def where(self, row: int) -> str:
        """Return the file and line (or element, or row) of one row, for a message."""
        unit = self._metas[np.searchsorted(self._part_ends, row, side="right")]["unit"]
        return f"{self.file_of(row)}, {unit} {self.row(row).line}"

    def place(self, row: int) -> str:
        """Return the line of one row, with its file where there are several."""
        return self.where(row).removeprefix(f"{self.source}, ")

    def skipped_rows(self) -> list[dict]:
        """Return the skipped rows: `line`, `problem` and `file` of each, and its `place` as in `place`."""
        skipped = []
        for file, folder, meta in zip(self.sources, self.folders, self._metas, strict=True):
            for row in map(json.loads, (folder / SKIPPED_FILE).read_text(encoding="utf-8").splitlines()):
                place = f"{file}, {meta['unit']} {row['line']}".removeprefix(f"{self.source}, ")
                skipped.append(row | {"file": file, "place": place})
        return skipped


def open_table(value: str | list[str], options: ReadOptions, cache_dir: str, **rules: Any) -> Table:
    """Return the table of all files of a setting; a file is read only if the cache has no table of the same
    content. The other files are read as the first one was, as many at a time as there are cores.
    `rules` are those of `build_table`. Raises its errors, and those of `build_once`."""

    def open_one(file: str, options: ReadOptions) -> Table:
        path, known = Path(file), recognised(Path(file), options, rules.get("need_label", True))
        state, digest = file_state(path), file_digest(path)
        folder = Path(cache_dir) / f"table-{content_key('table', VERSION, asdict(known), rules, digest)}"
        build = partial(build_table, state=state, **rules)
        build_once(folder, build, file, known, num_bytes=state[1])
        return Table(folder, [printable_path(file)], content=f"{known.format} {digest.hex()[:32]}")

    files = files_of(value, cache_dir)
    named = {found[0] for file in files if (found := SPLIT_NAME.match(Path(file).name))}
    # Files that are listed one by one are meant so
    if "train" in named and len(named) > 1 and files != value:
        raise InputError(
            f"{value}: the files of one split are needed, found names of {listed(sorted(named))}; give a "
            "pattern for each, such as --data.train 'folder/train*' --data.test 'folder/test*'"
        )
    first = open_one(files[0], options)
    if len(files) == 1:
        return first
    tables, later = [first], replace(options, **first.assumed)
    with ThreadPoolExecutor(joblib.cpu_count()) as pool:
        tables += pool.map(open_one, files[1:], repeat(later))
    for table in tables:
        if table.has_pairs != first.has_pairs:
            found = f"found {table.columns}, and in {first.source} {first.columns}"
            raise InputError(f"{table.source}: all files must have the same columns, {found}; fix one")
    source = shorten(value if isinstance(value, str) else ", ".join(value), 200)
    content = f"{len(tables)} files {content_key([table.content for table in tables])}"
    return Table([table.folders[0] for table in tables], [one.source for one in tables], source, content)


def build_table(
    folder: Path,
    path: str,
    options: ReadOptions,
    skip_bad_rows: bool = False,
    label_names: list[str] | None = None,
    accept_ids: bool = True,
    need_label: bool = True,
    state: list[int] | None = None,
) -> None:
    """Write the table of `path` into `folder`. With `label_names`, a row with any other label is invalid;
    with `accept_ids`, integers may be the ids of labels. Without `need_label` only texts are read. Raises
    InputError: for invalid rows unless `skip_bad_rows`, and if the file is not in this `state` in the end."""
    import pyarrow as pa

    reader = open_rows(path, options, need_label, need_label, label_names, accept_ids)
    codes: dict[str | None, int] = defaultdict(lambda: len(codes))
    shown: list[str] = []
    batches: list[pa.RecordBatch] = []
    num_rows = num_bad = num_empty = num_bytes = 0
    fields = [("text", pa.string()), ("pair", pa.string()), ("label", pa.int32())]
    schema = pa.schema([*fields, ("line", pa.int64()), ("hash", pa.uint64())])
    with (
        pa.OSFile(str(folder / ROWS_FILE), "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
        (folder / SKIPPED_FILE).open("w", encoding="utf-8") as skipped,
    ):
        for batch in reader.batches():
            for row in batch.problems.values():
                num_bad += 1
                num_empty += row.is_empty
                if num_bad <= SHOWN_BAD_ROWS:
                    shown.append(bad_row_message(path, reader.unit, row.line, row.problem))
                skipped.write(json.dumps({"line": row.line, "problem": row.problem}) + "\n")
            texts = batch.valid(batch.texts)
            pairs = None
            if batch.pairs is not None:
                pairs = batch.valid(batch.pairs)
            num_rows += len(texts)
            # Python keeps the UTF-8 that Arrow asks for, and the hashes need it too
            labels = [None] * len(texts)
            if batch.labels is not None:
                labels = batch.valid(batch.labels)
            columns = [
                pa.array(texts, pa.string()),
                pa.array(pairs or [None] * len(texts), pa.string()),
                np.fromiter(map(codes.__getitem__, labels), np.int32),
                np.fromiter(batch.valid(batch.lines), np.int64),
                text_hashes(texts, pairs),
            ]
            batches.append(pa.record_batch(columns, schema=schema))
            num_bytes += batches[-1].nbytes
            if num_bytes > BATCH_BYTES:
                writer.write_table(pa.Table.from_batches(batches).combine_chunks())
                batches, num_bytes = [], 0
        writer.write_table(pa.Table.from_batches(batches, schema).combine_chunks())
    if state and file_state(Path(path)) != state:
        remedy = "start again once it is written to its end"
        raise InputError(f"{path}: a data file must not change while it is read, but this one did; {remedy}")
    is_few = num_bad == num_empty <= EMPTY_SHARE * (num_rows + num_bad)
    if num_bad and not (num_rows and (skip_bad_rows or is_few)):
        said = _("{path}: {rows:,} rows are invalid; fix them, or skip them with --data.on_bad_row skip")
        if skip_bad_rows:
            said = _("{path}: there are no rows left: all {rows:,} are invalid")
        elif num_bad == 1:
            raise InputError(_("{problem} (or --data.on_bad_row skip)").format(problem=shown[0]))
        if num_bad > len(shown):
            shown.append(_("... and {rows:,} more").format(rows=num_bad - len(shown)))
        raise InputError("\n  ".join([said.format(path=path, rows=num_bad), *shown]))
    # The format is shown where the name of the file stands for another separator
    is_other = SUFFIXES.get(Path(path).suffix.lower()) in {*DELIMITED} - {options.format}
    meta = {
        "source": printable_path(path),
        "unit": reader.unit,
        "columns": reader.columns.described + (_("; read as ") + options.format if is_other else ""),
        "assumed": reader.columns.assumed,
        "labels": [label for label in codes if label is not None],
        "skipped": num_bad,
        "has_pairs": bool(reader.columns.pair),
    }
    # A column's name from JSON may have half of a character, which no file can hold
    text = json.dumps(meta, ensure_ascii=False, indent=1)
    (folder / META_FILE).write_text(text, encoding="utf-8", errors="backslashreplace")


def text_hashes(texts: Sequence[str], pairs: Sequence[str] | None = None) -> np.ndarray:
    """Return a hash of each cleaned text together with its second text, if any, (num_texts,) uint64."""
    if pairs is not None:
        texts = map("\0".join, zip(texts, pairs, strict=True))
    # It is faster to copy an empty hash than to make a new one with this size
    empty, digests = hashlib.blake2b(digest_size=8), []
    for text in texts:
        digest = empty.copy()
        digest.update(text.encode())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64, copy=False)
