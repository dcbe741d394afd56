"""The texts that are to be labelled: each different text of a data file once, with all columns of its row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.bad_row import BadRow
from ..data.cells import valid_text
from ..data.read import ReadOptions
from ..data.row_reader import RowReader, open_rows
from ..errors import InputError, counted, say
from ..vectors.store import text_key

MAX_TEXTS = 100_000  # in a pool; of more, a random part is taken
PLAIN_TEXT_NAMES = ["line", "text"]  # the columns of a file of plain text


@dataclass(frozen=True)
class Pool:
    """`texts` are single texts, (text,), or pairs, (text, second text); `cells` are all cells of their rows,
    as text, in the order of `columns`. The `text_columns` hold the text, several are read as one; the
    `pair_column` the second text."""

    name: str
    columns: list[str]
    text_columns: list[str]
    pair_column: str | None
    texts: list[tuple[str, ...]]
    cells: list[list[str]]

    def __len__(self) -> int:
        return len(self.texts)

    def random_order(self) -> np.ndarray:
        """Return all rows in a random order, (num_rows,), which follows from their texts alone: rows that
        are added to the file do not change the order of the others."""
        keys = [text_key(parts) for parts in self.texts]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def open_pool(path: str | Path, options: ReadOptions | None = None) -> Pool:
    """Return the texts of a data file, and say what was left out: invalid rows, repeated texts, and of more
    than 100,000 texts a random part. Raises InputError for a file that cannot be read or has no text."""
    reader = open_rows(path, options or ReadOptions(), need_label=False, find_pairs=True)
    records: dict[tuple[str, ...], dict] = {}
    names = dict.fromkeys(reader.names or PLAIN_TEXT_NAMES)
    first_problem: BadRow | None = None
    num_invalid = 0
    num_repeated = 0
    for row in reader.rows(with_records=True):
        if isinstance(row, BadRow):
            first_problem = first_problem or row
            num_invalid += 1
            continue
        names.update(dict.fromkeys(row.record))
        if row.texts in records:
            num_repeated += 1
        else:
            records[row.texts] = row.record
    left_out = f"{num_repeated:,} repeated, {num_invalid:,} invalid"
    message = f"{path}: {counted(len(records), 'text')}; left out: {left_out}"
    if first_problem is not None:
        message += f" (the first one: {reader.unit} {first_problem.line}: {first_problem.problem})"
    if not records:
        raise InputError(f"texts to label are needed; {message}; name another file")
    texts = list(records)
    if len(texts) > MAX_TEXTS:
        texts.sort(key=text_key)
        texts = texts[:MAX_TEXTS]
        message += f"; {MAX_TEXTS:,} of them are taken at random"
    say(message)
    columns = list(names)
    cells = []
    for parts in texts:
        record = records[parts]
        cells.append([valid_text(record.get(name)) for name in columns])
    text_columns, pair_column = _text_columns(reader)
    return Pool(str(path), columns, text_columns, pair_column, texts, cells)


def _text_columns(reader: RowReader) -> tuple[list[str], str | None]:
    """Return the names of the columns of the text, and that of the second text."""
    if reader.names is None:
        return ["text"], None
    names = {}
    for key in (*reader.columns.text, *reader.columns.pair):
        names[key] = str(key) if reader.columns.are_keys else reader.names[key]
    pair_names = [names[key] for key in reader.columns.pair]
    pair_column = pair_names[0] if pair_names else None
    return [names[key] for key in reader.columns.text], pair_column
