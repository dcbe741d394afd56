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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import repeat
from pathlib import Path

import numpy as np

from ..errors import InputError, listed, printable_path, shorten
from ..runtime.processes import num_cores
from ..words import _
from .cache import build_once, content_key, file_digest
from .files import files_of
from .labels import label_form
from .read import DELIMITED, SUFFIXES, BadRow, ReadOptions, bad_row_message, recognised
from .rows import RowReader

VERSION = 7
SPLIT_NAME = re.compile("(train|validation|valid|dev|test)(?![a-zA-Z])")  # at the start of a file's name
ROWS_FILE, META_FILE, SKIPPED_FILE = "rows.arrow", "table.json", "skipped.jsonl"
SHOWN_BAD_ROWS = 5  # invalid rows that an error message lists
EMPTY_SHARE = 0.01  # up to this share of rows without a text is skipped, with a message


class Table:
    """The rows of one data file, or of several; texts are read from disk when they are asked for. `source`
    names the file in messages; where there are several, `sources` has the name of each. `content` is the
    format and a digest of the files. `key` stands for the rows in the names of cached folders that are made
    of them."""

    def __init__(
        self, folders: Path | list[Path], source: str | None = None, content: str = "", sources: Sequence = ()
    ) -> None:
        import pyarrow as pa

        self.folders = [folders] if isinstance(folders, Path) else folders
        self.content, self.sources = content, sources
        self._metas = [json.loads((one / META_FILE).read_text(encoding="utf-8")) for one in self.folders]
        first = self._metas[0]
        self.source: str = first["source"] if source is None else printable_path(source)
        names = [folder.name for folder in self.folders]
        self.key = names[0] if len(names) == 1 else content_key(names)
        self.row_unit, self.columns, self.assumed = first["unit"], first["columns"], first["assumed"]
        self.has_pairs: bool = first["has_pairs"]
        self.multiline, self.skipped = (
            sum(m[what] for m in self._metas) for what in ("multiline", "skipped")
        )
        self.first_multiline = next((m["first_multiline"] for m in self._metas if m["multiline"]), None)
        self.label_values = list(dict.fromkeys(label for meta in self._metas for label in meta["labels"]))
        # The rows stay mapped even if the cache is removed
        self._parts = [
            pa.ipc.open_file(pa.memory_map(str(one / ROWS_FILE))).read_all() for one in self.folders
        ]
        self._rows = pa.concat_tables(self._parts)
        self.num_rows: int = self._rows.num_rows
        self._part_ends = np.cumsum([part.num_rows for part in self._parts])
        self._ends = np.cumsum([len(chunk) for chunk in self._rows.column("line").chunks])

    def __reduce__(self) -> tuple:
        """Send the place of a table, and not its content, to another process."""
        return Table, (self.folders, self.source, self.content, self.sources)

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
        """The bytes of the text of each row, or of its two texts, (num_rows,) int64."""
        import pyarrow.compute as pc

        names = ["text", "pair"] if self.has_pairs else ["text"]
        return sum(pc.binary_length(self._rows.column(name)).to_numpy().astype(np.int64) for name in names)

    @property
    def num_bytes(self) -> int:
        """The bytes of the table."""
        return sum((folder / ROWS_FILE).stat().st_size for folder in self.folders)

    def text(self, row: int) -> str:
        """Return the cleaned text of one row."""
        return self._rows.column("text")[int(row)].as_py()

    def pair(self, row: int) -> str | None:
        """Return the cleaned second text of one row, or None if the table has single texts."""
        return self._rows.column("pair")[int(row)].as_py() if self.has_pairs else None

    def texts(self, rows: np.ndarray) -> list[str] | list[tuple[str, str]]:
        """Return the texts, or the pairs of texts, of rows in any order, (num_rows,) ids."""
        import pyarrow as pa

        order = np.argsort(rows, kind="stable")
        ascending = np.asarray(rows, np.int64)[order]
        of_row = np.searchsorted(self._ends, ascending, side="right")
        columns = []
        for name in ("text", "pair") if self.has_pairs else ("text",):
            # Each chunk of the column by itself: pyarrow would copy all of them
            chunks, values = self._rows.column(name).chunks, []
            for number in np.unique(of_row).tolist():
                start = self._ends[number] - len(chunks[number])
                values += chunks[number].take(pa.array(ascending[of_row == number] - start)).to_pylist()
            columns.append(values)
        found = list(zip(*columns, strict=True)) if self.has_pairs else columns[0]
        return [found[at] for at in np.argsort(order).tolist()]

    def joined_texts(self, rows: np.ndarray) -> list[str]:
        """Return what `texts` does, with the two texts of a pair as two lines of one text."""
        texts = self.texts(rows)
        return ["\n".join(pair) for pair in texts] if self.has_pairs else texts

    def line(self, row: int) -> int:
        """Return the line (or element, or row) of one row in its file."""
        return self._rows.column("line")[int(row)].as_py()

    def where(self, row: int) -> str:
        """Return the file and line (or element, or row) of one row, for a message."""
        unit = self._metas[np.searchsorted(self._part_ends, row, side="right")]["unit"]
        return f"{self.file_of(row)}, {unit} {self.line(row)}"

    def place(self, row: int) -> str:
        """Return the line of one row, with its file where there are several."""
        return self.where(row) if self.sources else f"{self.row_unit} {self.line(row)}"

    def file_of(self, row: int) -> str:
        """Return the name of the file that has a row."""
        files = self.sources or [self.source]
        return files[np.searchsorted(self._part_ends, row, side="right")]

    def skipped_rows(self) -> list[dict]:
        """Return the skipped rows: `line`, `problem` and `file` of each, and its `place` as in `place`."""
        skipped = []
        for at, folder in enumerate(self.folders):
            file, unit = (self.sources or [self.source])[at], self._metas[at]["unit"]
            for row in map(json.loads, (folder / SKIPPED_FILE).read_text(encoding="utf-8").splitlines()):
                place = f"{file}, {unit} {row['line']}" if self.sources else f"{unit} {row['line']}"
                skipped.append(row | {"file": file, "place": place})
        return skipped


def open_table(
    value: str | list[str],
    options: ReadOptions,
    cache_dir: str,
    label_names: list[str] | None = None,
    skip_bad_rows: bool = False,
    accept_ids: bool = True,
    need_label: bool = True,
    workers: int | None = None,
) -> Table:
    """Return the table of all files of a setting; a file is read only if the cache has no table of the same
    content. The other files are read as the first one was, `workers` at a time (None: as many as cores).

    With `label_names`, a row with any other label is invalid; with `accept_ids`, integers may be the ids of
    labels. Without `need_label` only texts are read. Raises InputError, for invalid rows unless
    `skip_bad_rows`, and the errors of `build_once`.
    """

    def open_one(file: str, options: ReadOptions) -> Table:
        path, known = Path(file), recognised(Path(file), options, need_label)
        digest = file_digest(path)
        rules = (skip_bad_rows, label_names, accept_ids, need_label, digest)
        folder = Path(cache_dir) / f"table-{content_key('table', VERSION, asdict(known), *rules)}"
        build_once(folder, build_table, file, known, *rules, num_bytes=path.stat().st_size)
        return Table(folder, file, f"{known.format} {digest.hex()[:32]}")

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
    if options.limit is None:
        with ThreadPoolExecutor(workers or num_cores()) as pool:
            tables += pool.map(open_one, files[1:], repeat(later))
    for file in files[1:] if options.limit is not None else ():
        left = options.limit - sum(table.num_rows + table.skipped for table in tables)
        tables += [open_one(file, replace(later, limit=left))] if left > 0 else []
    for table in tables:
        if table.has_pairs != first.has_pairs:
            found = f"found {table.columns}, and in {first.source} {first.columns}"
            raise InputError(f"{table.source}: all files must have the same columns, {found}; fix one")
    source = shorten(value if isinstance(value, str) else ", ".join(value), 200)
    content = f"{len(tables)} files {content_key([table.content for table in tables])}"
    return Table([table.folders[0] for table in tables], source, content, [one.source for one in tables])


def build_table(
    folder: Path,
    path: str,
    options: ReadOptions,
    skip_bad_rows: bool,
    label_names: list[str] | None,
    accept_ids: bool = True,
    need_label: bool = True,
    digest: bytes | None = None,
) -> None:
    """Write the table of `path` into `folder`. Raises InputError for invalid rows as `open_table`, and where
    the file has another digest than `digest` after it was read."""
    import pyarrow as pa

    reader, form = RowReader(path, options, need_label, find_pairs=need_label), label_form(options.task)
    codes: dict[str | None, int] = {}
    unknown: dict[str, str] = {}
    shown: list[BadRow] = []
    num_rows = num_bad = num_empty = 0
    fields = [("text", pa.string()), ("pair", pa.string()), ("label", pa.int32())]
    schema = pa.schema([*fields, ("line", pa.int64()), ("hash", pa.uint64())])
    with (
        pa.OSFile(str(folder / ROWS_FILE), "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
        (folder / SKIPPED_FILE).open("w", encoding="utf-8") as skipped,
    ):
        for chunk in reader.chunks():
            labels, bad = chunk.labels or [None] * len(chunk.texts), chunk.bad
            for label in set(labels) - codes.keys() - unknown.keys() - {None} if label_names else ():
                if (described := form.unknown(label, label_names, accept_ids)) is not None:
                    said = _("unknown label {label}; fix the row or set --data.labels")
                    unknown[label] = said.format(label=described)
            if unknown:
                wrong = [at for at, label in enumerate(labels) if label in unknown]
                bad = {at: BadRow(chunk.numbers[at], unknown[labels[at]]) for at in wrong} | bad
            columns = [chunk.numbers, chunk.texts, chunk.pairs, labels]
            if bad:
                kept = [at for at in range(len(labels)) if at not in bad]
                columns = [one and [one[at] for at in kept] for one in columns]
            numbers, texts, pairs, labels = columns
            if texts:
                for label in dict.fromkeys(labels):
                    codes.setdefault(label, len(codes))
                num_rows += len(texts)
                pairs_column = pa.nulls(len(texts), pa.string()) if pairs is None else pairs
                of_rows = [codes[label] for label in labels], numbers, text_hashes(texts, pairs)
                writer.write_batch(pa.record_batch([texts, pairs_column, *of_rows], schema=schema))
            for _at, row in sorted(bad.items()):
                num_bad += 1
                num_empty += row.is_empty
                shown += [row] if len(shown) < SHOWN_BAD_ROWS else []
                skipped.write(json.dumps({"line": row.line, "problem": row.problem}) + "\n")
    if digest and file_digest(Path(path)) != digest:
        remedy = "start again once it is written to its end"
        raise InputError(f"{path}: a data file must not change while it is read, but this one did; {remedy}")
    is_few = num_bad == num_empty <= EMPTY_SHARE * (num_rows + num_bad)
    if num_bad and not (num_rows and (skip_bad_rows or is_few)):
        lines = [bad_row_message(path, reader.unit, row.line, row.problem) for row in shown]
        raise _bad_rows(path, lines, num_bad, skip_bad_rows)
    # The format is shown where the name of the file stands for another separator
    named = SUFFIXES.get(Path(path).suffix.lower())
    is_other = named in DELIMITED and options.format in DELIMITED and named != options.format
    meta = {
        "source": printable_path(path),
        "unit": reader.unit,
        "columns": reader.columns + (f"; read as {options.format}" if is_other else ""),
        "assumed": reader.used.assumed if reader.used else {},
        "labels": [label for label in codes if label is not None],
        "multiline": reader.multiline,
        "first_multiline": reader.first_multiline,
        "skipped": num_bad,
        "has_pairs": reader.used is not None and bool(reader.used.pair) and num_rows > 0,
    }
    # A column's name from JSON may have half of a character, which no file can hold
    text = json.dumps(meta, ensure_ascii=False, indent=1)
    (folder / META_FILE).write_text(text, encoding="utf-8", errors="backslashreplace")


def text_hashes(texts: list[str], pairs: list[str] | None = None) -> np.ndarray:
    """Return a hash of each cleaned text together with its second text, if any, (num_texts,) uint64."""
    if pairs is not None:
        texts = map("\0".join, zip(texts, pairs, strict=True))
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(text.encode(), digest_size=8).digest() for text in texts])
    return np.frombuffer(digests, "<u8").astype(np.uint64, copy=False)


def _bad_rows(path: str, lines: list[str], num_bad: int, skip_bad_rows: bool) -> InputError:
    if num_bad == 1 and not skip_bad_rows:
        return InputError(_("{problem} (or --data.on_bad_row skip)").format(problem=lines[0]))
    said = _("{path}: {rows:,} rows are invalid; fix them, or skip them with --data.on_bad_row skip")
    if skip_bad_rows:
        said = _("{path}: there are no rows left: all {rows:,} are invalid")
    if num_bad > len(lines):
        lines.append(_("... and {rows:,} more").format(rows=num_bad - len(lines)))
    return InputError("\n  ".join([said.format(path=path, rows=num_bad), *lines]))
