"""One data file -> its table: the valid rows on disk in Arrow's format.

The table is a folder. `rows.arrow` has for each row its cleaned text, of pairs the second text, its label as
an index into the label values, its line in the file, and a hash of its text, to find repeated ones; where
rows have distributions of labels, also the shares above 0 and the indices of their labels.
`table.json` has what is known of the file, and `skipped.jsonl` the rows that were left out.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, printable_path
from .bad_row import bad_row_message, changed_error
from .cache import file_state
from .column_facts import ColumnFacts
from .columns import Columns
from .label_shares import ShareFacts
from .line_breaks import LineBreaks
from .read import DELIMITED, SUFFIXES, ReadOptions
from .row_reader import open_rows
from .rows import RowBatch

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_FILE = "rows.arrow"
META_FILE = "table.json"
SKIPPED_FILE = "skipped.jsonl"
MAX_LISTED_ROWS = 5  # invalid rows that an error message lists
MAX_EMPTY_SHARE = 0.01  # up to this share of rows without a text is skipped, with a message
# Reading one column of small batches would map nearly all pages of the file
BATCH_BYTES = 1 << 23  # of rows that are written together


@dataclass(frozen=True)
class TableMeta:
    """What is known of a data file.

    `source` is its name in messages, `unit` what the number of a row counts, and `columns` are the
    fields of `ColumnFacts`. `names` are the columns of text, text_pair and label, by name, or by number where
    they have no names. `assumed` are settings that follow from its values, for other such
    files. `labels` are the label values, `skipped` is the number of invalid rows, `line_breaks` are the
    fields of `LineBreaks`, and `shares` those of `ShareFacts`.
    """

    source: str
    unit: str
    columns: dict[str, Any]
    names: dict[str, list[int | str]]
    assumed: dict[str, Any]
    labels: list[str]
    skipped: int
    line_breaks: dict[str, Any]
    has_pairs: bool
    shares: dict[str, Any]


def read_meta(folder: Path) -> TableMeta:
    return TableMeta(**json.loads((folder / META_FILE).read_text(encoding="utf-8")))


def build_table(
    folder: Path,
    path: str,
    options: ReadOptions,
    *,
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

    reader = open_rows(
        path,
        options,
        need_label,
        find_pairs=need_label,
        label_names=label_names,
        accept_ids=accept_ids,
        find_shares=need_label,
    )
    line_breaks = LineBreaks()
    num_bad = 0
    num_empty = 0
    first_problems: list[str] = []
    schema = _rows_schema(reader.columns.shares is not None)
    with (
        pa.OSFile(str(folder / ROWS_FILE), "wb") as rows_file,
        pa.ipc.new_file(rows_file, schema) as arrow_writer,
        (folder / SKIPPED_FILE).open("w", encoding="utf-8") as skipped_file,
    ):
        writer = _RowsWriter(arrow_writer, schema)
        for batch in reader.batches():
            line_breaks.add(batch)
            for row in batch.problems.values():
                num_bad += 1
                num_empty += row.is_empty
                if num_bad <= MAX_LISTED_ROWS:
                    first_problems.append(bad_row_message(path, reader.unit, row.line, row.problem))
                skipped_file.write(json.dumps({"line": row.line, "problem": row.problem}) + "\n")
            writer.add(batch)
        writer.flush()
    if state and file_state(Path(path)) != state:
        raise changed_error(path)
    if num_bad:
        are_few_and_empty = num_bad == num_empty <= MAX_EMPTY_SHARE * (writer.num_rows + num_bad)
        if writer.num_rows == 0 or not (skip_bad_rows or are_few_and_empty):
            raise _invalid_rows_error(path, first_problems, num_bad, skip_bad_rows)
    meta = TableMeta(
        source=printable_path(path),
        unit=reader.unit,
        columns=asdict(_with_format(reader.columns.facts, path, options)),
        names={
            "text": reader.columns.names_of(reader.columns.text),
            "text_pair": reader.columns.names_of(reader.columns.pair),
            "label": reader.columns.names_of(reader.columns.label),
        },
        assumed=reader.columns.assumed,
        labels=[label for label in writer.label_codes if label is not None],
        skipped=num_bad,
        line_breaks=asdict(line_breaks),
        has_pairs=bool(reader.columns.pair),
        shares=asdict(_share_facts(reader.columns, writer)),
    )
    meta_text = json.dumps(asdict(meta), ensure_ascii=False, indent=1)
    # A column's name in JSON may be half a surrogate pair, which UTF-8 cannot encode
    (folder / META_FILE).write_text(meta_text, encoding="utf-8", errors="backslashreplace")


def _share_facts(columns: Columns, writer: _RowsWriter) -> ShareFacts:
    """Return what is known of the distributions of labels in a file that was written."""
    if columns.shares is None:
        return ShareFacts()
    return ShareFacts(
        content=columns.shares.content,
        columns=columns.facts.roles[columns.shares.content],
        labels=list(columns.shares.labels or writer.share_codes),
        rows=writer.num_shares,
        follows_label=columns.shares.follows_label,
        label_column=columns.facts.roles.get("label", ""),
    )


def _rows_schema(has_shares: bool) -> pa.Schema:
    import pyarrow as pa

    columns = [
        ("text", pa.string()),
        ("pair", pa.string()),
        ("label", pa.int32()),
        ("line", pa.int64()),
        ("hash", pa.uint64()),
    ]
    if has_shares:
        columns += [("share_labels", pa.list_(pa.int32())), ("shares", pa.list_(pa.float64()))]
    return pa.schema(columns)


class _RowsWriter:
    """Writes valid rows to the Arrow file of a table, many together. `label_codes` has the index of each
    label value, in the order in which they come in the file, and `share_codes` that of each label with a
    share; `num_shares` rows have a distribution."""

    def __init__(self, arrow_writer: pa.RecordBatchWriter, schema: pa.Schema) -> None:
        self.num_rows = 0
        self.num_shares = 0
        self.label_codes: dict[str | None, int] = defaultdict(lambda: len(self.label_codes))
        self.share_codes: dict[str, int] = defaultdict(lambda: len(self.share_codes))
        self._schema = schema
        self._arrow_writer = arrow_writer
        self._batches: list[pa.RecordBatch] = []
        self._num_bytes = 0

    def add(self, rows: RowBatch) -> None:
        """Add the valid ones of some rows."""
        import pyarrow as pa

        texts = rows.valid(rows.texts)
        self.num_rows += len(texts)
        # Python keeps the UTF-8 that Arrow asks for, and the hashes need it too
        text_column = pa.array(texts, pa.string())
        pairs = None
        pair_column = pa.nulls(len(texts), pa.string())
        if rows.pairs is not None:
            pairs = rows.valid(rows.pairs)
            pair_column = pa.array(pairs, pa.string())
        labels = [None] * len(texts)
        if rows.labels is not None:
            labels = rows.valid(rows.labels)
        columns = [
            text_column,
            pair_column,
            np.fromiter(map(self.label_codes.__getitem__, labels), np.int32),
            np.fromiter(rows.valid(rows.lines), np.int64),
            text_hashes(texts, pairs),
        ]
        if rows.shares is not None:
            columns += self._share_columns(rows)
        batch = pa.record_batch(columns, schema=self._schema)
        self._batches.append(batch)
        self._num_bytes += batch.nbytes
        if self._num_bytes > BATCH_BYTES:
            self.flush()

    def _share_columns(self, rows: RowBatch) -> list[pa.Array]:
        """Return the labels with a share above 0, and their shares, of each valid row, as columns of lists;
        None for a row that is trained on its label."""
        import pyarrow as pa

        shares = rows.shares
        codes = np.array([self.share_codes[label] for label in shares.labels], np.int32)
        is_valid = np.ones(len(shares.values), bool)
        is_valid[list(rows.problems)] = False
        is_given = shares.is_given[is_valid]
        self.num_shares += int(is_given.sum())
        values = np.where(is_given[:, None], shares.values[is_valid], 0)
        is_kept = values > 0
        offsets = np.concatenate([[0], np.cumsum(is_kept.sum(axis=1))]).astype(np.int32)
        arrays = []
        for flat_values in (codes[np.nonzero(is_kept)[1]], values[is_kept]):
            arrays.append(
                pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat_values), mask=pa.array(~is_given))
            )
        return arrays

    def flush(self) -> None:
        """Write the rows that were added since the last call as one batch."""
        import pyarrow as pa

        table = pa.Table.from_batches(self._batches, self._schema)
        self._arrow_writer.write_table(table.combine_chunks())
        self._batches = []
        self._num_bytes = 0


def _invalid_rows_error(
    path: str, first_problems: list[str], num_bad: int, skip_bad_rows: bool
) -> InputError:
    """Return the error of a file whose invalid rows are not skipped, or that has no others."""
    if num_bad == 1 and not skip_bad_rows:
        return InputError(f"{first_problems[0]} (or --data.on_bad_row skip)")
    first_line = f"{path}: {num_bad:,} rows are invalid; fix them, or skip them with --data.on_bad_row skip"
    if skip_bad_rows:
        first_line = f"{path}: there are no rows left: all {num_bad:,} are invalid"
    lines = [first_line, *first_problems]
    if num_bad > len(first_problems):
        lines.append(f"... and {num_bad - len(first_problems):,} more")
    return InputError("\n  ".join(lines))


def _with_format(facts: ColumnFacts, path: str, options: ReadOptions) -> ColumnFacts:
    """Return the facts with the format, where the ending of the file's name stands for another separator."""
    named_format = SUFFIXES.get(Path(path).suffix.lower())
    if named_format in DELIMITED and named_format != options.format:
        return replace(facts, format=options.format)
    return facts


def text_hashes(texts: Sequence[str], pairs: Sequence[str] | None = None) -> np.ndarray:
    """Return a hash of each cleaned text together with its second text, if any, (num_texts,) uint64."""
    if pairs is not None:
        texts = map("\0".join, zip(texts, pairs, strict=True))
    # It is faster to copy an empty hash than to make a new one with this size
    empty = hashlib.blake2b(digest_size=8)
    digests = []
    for text in texts:
        digest = empty.copy()
        digest.update(text.encode())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64, copy=False)
