"""Corrected labels by text: a file of fixes -> other labels for rows with these texts. No file changes.

A fix is a row of a table with the column `label`, and `text_hash` as label_issues.csv has it, or `text` (and
`text_pair`). A row without a label is no fix, so a list of label issues may be filled in part by part. With
several labels a row, `label` is the set as the data has them; the list [] is no label. The column `choice`
stands before `label`: Label Studio's export has a decision there, beside the empty `label` of the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import InputError, excerpt, printable_path
from .columns import clean_text, value_of
from .labels import LabelForm, label_form
from .read import FORMATS, BadRow, ReadOptions, read_records, recognised
from .table import text_hashes

# The letter h keeps spreadsheets from reading a hash as a number
HASH = re.compile(r"h[0-9a-f]{16}")


@dataclass(frozen=True)
class Fixes:
    """The corrected labels of a file: `hashes` (num_fixes,) uint64 of texts, increasing, and `labels`, texts
    of the `form`. `lines`, counted in `unit`, say where each fix is in the file `source`."""

    source: str
    unit: str
    hashes: np.ndarray
    labels: list[str]
    lines: list[int]
    form: LabelForm = label_form(None)

    def new_labels(self, names: list[str]) -> np.ndarray:
        """Return the labels of the fixes, (num_fixes, ...) as their form has them; raises InputError for a
        label that is not one of `names`."""
        for line, text in zip(self.lines, self.labels, strict=True):
            if (unknown := self.form.unknown(text, names)) is not None:
                rule = f"a fix must have a label of the data, found {unknown}"
                remedy = "correct it, or set --data.labels"
                raise InputError(f"{self.source}, {self.unit} {line}: {rule}; {remedy}")
        return self.form.of_texts(self.labels, names)


def written_hash(value: int) -> str:
    """Return the hash of a text as files have it: the letter h and 16 hexadecimal digits."""
    return f"h{value:016x}"


def read_fixes(path: str | Path, data: ReadOptions) -> Fixes:
    """Read a file of fixes; texts are cleaned, and labels written, as those of `data` are. Raises InputError,
    with file and line, for rows that are no fixes, and for two labels of one text."""
    file, form, source = Path(path), label_form(data.task), printable_path(str(path))
    options, data = recognised(file, ReadOptions()), replace(data, label_columns=None)
    unit, names = FORMATS[options.format].row_unit, None
    label_and_line: dict[int, tuple[str, int]] = {}
    for line, record in read_records(file, options):
        if names is None and isinstance(record, list):
            names = [str(name).strip() for name in record]
            continue
        try:
            if isinstance(record, list) and len(record) == len(names):
                record = dict(zip(names, record, strict=True))
            if isinstance(record, BadRow):
                raise ValueError(record.problem)
            columns = record.keys() if isinstance(record, dict) else set()
            if not (columns & {"label", "choice"} and columns & {"text", "text_hash"}):
                raise ValueError(
                    f"a row needs the columns label (or choice) and text (or text_hash), and as many fields "
                    f"as the header, found {excerpt(record)}; correct it"
                )
            label = record.get("choice") or record.get("label")
            if label is None or (isinstance(label, str) and not label.strip()):
                continue
            label = form.text(value_of(label), data)
            before = label_and_line.setdefault(_key(record, data.remove_spaces), (label, line))
            if before[0] != label:
                raise ValueError(
                    f"a text can have one {form.what} only, found {excerpt(label)} here and "
                    f"{excerpt(before[0])} in {unit} {before[1]}; keep one of the two"
                )
        except ValueError as error:
            raise InputError(f"{source}, {unit} {line}: {error}") from error
    hashes = sorted(label_and_line)
    labels, lines = ([label_and_line[key][at] for key in hashes] for at in (0, 1))
    return Fixes(source, unit, np.array(hashes, np.uint64), labels, lines, form)


def _key(values: dict, remove_spaces: bool) -> int:
    if given := str(values.get("text_hash") or "").strip():
        if not HASH.fullmatch(given):
            rule = f"text_hash must be the letter h and 16 hexadecimal digits, found {excerpt(given)}"
            raise ValueError(f"{rule}; copy it whole, or remove the column and use text")
        return int(given[1:], 16)
    text, pair = clean_text(values.get("text"), remove_spaces, "text"), values.get("text_pair")
    return int(text_hashes([text], [clean_text(pair, remove_spaces, "second text")] if pair else None)[0])


def apply_fixes(
    labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], fixes: Fixes, names: list[str]
) -> tuple[dict[str, np.ndarray], dict]:
    """Return the labels of the rows of each file after the fixes, and what these did; `labels` are of their
    form, (num_rows, ...), `hashes` (num_rows,). Raises InputError as `Fixes.new_labels`."""
    new, uses = fixes.new_labels(names), np.zeros(len(fixes.hashes), np.int64)
    after, changed = {}, 0
    for name, before in labels.items():
        matches = np.flatnonzero(np.isin(hashes[name], fixes.hashes))
        at = np.searchsorted(fixes.hashes, hashes[name][matches])
        uses += np.bincount(at, minlength=len(uses))
        after[name] = np.array(before)
        after[name][matches] = new[at]
        changed += int((new[at] != before[matches]).any(axis=tuple(range(1, before.ndim))).sum())
    unused = np.flatnonzero(uses == 0)
    first = f"{fixes.unit} {fixes.lines[unused[0]]}" if len(unused) else None
    counts = {"fixes": len(uses), "rows": int(uses.sum()), "changed": changed, "unused": len(unused)}
    return after, {**counts, "first_unused": first}
