"""Corrected labels: a file of fixes replaces the labels of texts, and no data file changes.

A fix is a row with the column `label`, and `text_hash` as label_issues.csv has it, or `text` (and
`text_pair`). A row without a label is no fix, so a list of label issues may be filled in part by part. With
several labels a row, `label` is the set as the data has them; the list [] is no label. The column `choice`
counts before `label`: Label Studio's export has a decision there, beside the empty `label` of the list.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, excerpt, printable_path
from .bad_row import bad_row_message
from .build_table import text_hashes
from .cells import clean_text, value_of
from .labels import LabelForm, label_form
from .read import ReadOptions
from .row_reader import open_records
from .rows import RowBatch
from .table import Table

TEXT_HASH = re.compile("h[0-9a-f]{16}")


def read_fixes(
    path: str | Path, data_options: ReadOptions, label_names: list[str], accept_ids: bool
) -> dict[int, str]:
    """Return the label text for each hash of a text in a file of fixes, sorted by the hashes.

    `data_options` say how texts are cleaned and labels read; with `accept_ids`, integers may be ids of
    labels. Raises InputError, with file and line, for rows that are no fixes, for two labels of one text, and
    for a label that is not one of `label_names`.
    """
    reader = open_records(path, ReadOptions(encoding=data_options.encoding))
    # Fixes have one column of labels, also where the data has a column for each label
    data_options = replace(data_options, label_columns=None)
    fixes: dict[int, str] = {}
    first_lines: dict[int, int] = {}
    for batch in reader.batches():
        for index, line in enumerate(batch.lines):
            try:
                cells = _cells_of(batch, index)
                label = _label_of(cells, data_options, label_names, accept_ids)
                if label is None:
                    continue
                text_hash = _hash_of(cells, data_options)
                first_label = fixes.setdefault(text_hash, label)
                first_line = first_lines.setdefault(text_hash, line)
                if label != first_label:
                    raise ValueError(
                        f"all fixes of a text must have the same label, found {excerpt(label)} here and "
                        f"{excerpt(first_label)} in {reader.unit} {first_line}; keep one"
                    )
            except ValueError as error:
                message = bad_row_message(printable_path(str(path)), reader.unit, line, error)
                raise InputError(message) from error
    return dict(sorted(fixes.items()))


def _cells_of(batch: RowBatch, index: int) -> dict[str, Any]:
    """Return the cells of a row by the names of columns; raises ValueError for one that is no fix."""
    rule = "a row needs label (or choice) and text (or text_hash), and the fields of the header"
    if index in batch.problems:
        raise ValueError(f"{rule}: {batch.problems[index].problem}")
    cells = {name.strip(): value for name, value in batch.records[index].items()}
    has_label = "label" in cells or "choice" in cells
    has_text = "text" in cells or "text_hash" in cells
    if has_label and has_text:
        return cells
    raise ValueError(f"{rule}, found {excerpt(batch.records[index])}; correct it")


def _label_of(
    cells: dict[str, Any], data_options: ReadOptions, label_names: list[str], accept_ids: bool
) -> str | None:
    """Return the label text of a fix, None where its cell is empty."""
    value = cells.get("choice") or cells.get("label")
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    form = label_form(data_options.task)
    label = form.text(value_of(value), data_options)
    unknown = form.unknown(label, label_names, accept_ids)
    if unknown:
        raise ValueError(
            f"a fix must have a label of the data, found {unknown}; correct it, or set --data.labels"
        )
    return label


def _hash_of(cells: dict[str, Any], data_options: ReadOptions) -> int:
    """Return the hash of the text of a fix."""
    written = str(cells.get("text_hash") or "").strip()
    if written:
        if not TEXT_HASH.fullmatch(written):
            raise ValueError(
                f"text_hash must be the letter h and 16 hexadecimal digits, found {excerpt(written)}; "
                "copy it whole, or remove the column and use text"
            )
        return int(written[1:], 16)
    text = clean_text(cells.get("text"), data_options.remove_spaces, "text")
    pairs = None
    if cells.get("text_pair"):
        pairs = [clean_text(cells["text_pair"], data_options.remove_spaces, "second text")]
    return int(text_hashes([text], pairs)[0])


def apply_fixes(
    fixes: dict[int, str],
    form: LabelForm,
    label_names: list[str],
    tables: dict[str, Table],
    labels: dict[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the labels of each table after the fixes, and how many of `fixes` there are, the `rows` they are
    for, those of them with another label before (`changed`), and fixes of texts that no table has (`unused`).
    """
    hashes = np.array(list(fixes), np.uint64)
    fixed_labels = form.encode_labels(list(fixes.values()), label_names)
    rows_of_fix = np.zeros(len(fixes), np.int64)
    num_changed = 0
    corrected = {}
    for name, table in tables.items():
        table_hashes = table.hashes
        rows = np.flatnonzero(np.isin(table_hashes, hashes))
        # The hashes of fixes are sorted
        fix_of_row = np.searchsorted(hashes, table_hashes[rows])
        rows_of_fix += np.bincount(fix_of_row, minlength=len(fixes))
        before = labels[name]
        after = fixed_labels[fix_of_row]
        differs = after != before[rows]
        # A row may have several labels
        num_changed += int(differs.any(axis=tuple(range(1, after.ndim))).sum())
        corrected[name] = before.copy()
        corrected[name][rows] = after
    counts = {
        "fixes": len(fixes),
        "rows": int(rows_of_fix.sum()),
        "changed": num_changed,
        "unused": int((rows_of_fix == 0).sum()),
    }
    return corrected, counts
