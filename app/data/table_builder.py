"""Building a table: the valid rows of a data file are written to its folder, others reported or listed."""

from __future__ import annotations

import hashlib
import json
from array import array
from pathlib import Path

import numpy as np

from ..config.file_formats import FORMATS, SUFFIXES
from ..errors import InputError, excerpt, printable_path
from ..words import _
from .cache import file_digest
from .label_form import LabelForm
from .label_forms import label_form
from .readers import BadRow, ReadOptions, bad_row_message
from .rows import Row, read_rows

# Invalid rows that an error message lists
SHOWN = 5
# Rows without a text up to this share are skipped, and said to be
EMPTY_SHARE = 0.01
# Too few to see a header by its label
FEW_ROWS = 10


def text_hash(text: bytes, pair: bytes | None) -> int:
    """Return the hash, below 2**64, of a cleaned text, and its second text if it has one, both in UTF-8."""
    content = text if pair is None else text + b"\0" + pair
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def build_table(
    folder: Path,
    path: str,
    options: ReadOptions,
    skip_bad_rows: bool,
    label_names: list[str] | None,
    accept_ids: bool = True,
    digest: bytes | None = None,
    need_label: bool = True,
) -> None:
    """Write the table of `path` into `folder`; needs 28 bytes of memory per row. Raises InputError where the
    file has not had the content of `digest` all the time."""
    notes: dict = {}
    shown: list[BadRow] = []
    num_bad = num_empty = 0
    form = label_form(options.task)
    with _TableWriter(folder) as writer, (folder / "skipped.jsonl").open("w", encoding="utf-8") as skipped:
        for row in read_rows(path, options, need_label, notes, find_pairs=need_label):
            if isinstance(row, Row) and label_names and row.label not in writer.label_codes:
                row = _check_label(row, label_names, accept_ids, form, options)
            if isinstance(row, Row):
                writer.add(row)
                continue
            num_bad += 1
            num_empty += row.is_empty
            shown += [row] if len(shown) < SHOWN else []
            skipped.write(json.dumps({"line": row.line, "problem": row.problem}, ensure_ascii=True) + "\n")
    if digest and file_digest(Path(path)) != digest:
        raise InputError(
            f"{path}: a data file must not change while it is read, but this one did; start again once it is "
            "written to its end"
        )
    num_rows = len(writer.arrays["lines"])
    is_few = num_bad == num_empty <= EMPTY_SHARE * (num_rows + num_bad)
    if num_bad and not (num_rows and (skip_bad_rows or is_few)):
        all_bad = skip_bad_rows and not num_rows
        raise InputError(_bad_rows_message(path, notes["place"], shown, num_bad, all_bad))
    if notes["is_first_row"] and label_names is None and need_label:
        _check_first_row(path, writer, form)
    for name, values in writer.arrays.items():
        np.save(folder / f"{name}.npy", np.asarray(values))
    meta = {
        "source": printable_path(path),
        "place": notes["place"],
        "columns": notes["columns"] + _other_separator(path, options.format),
        "assumed": notes["used"].assumed if notes["used"] else {},
        "label_values": list(writer.label_codes),
        "multiline": notes["multiline"],
        "first_multiline": notes.get("first_multiline"),
        "skipped": num_bad,
        "has_pairs": len(writer.arrays["pair_ends"]) > 0,
        "num_rows": num_rows,
    }
    # A column's name from JSON may have half of a character, which no file can hold
    text = json.dumps(meta, ensure_ascii=False, indent=1)
    (folder / "table.json").write_text(text, encoding="utf-8", errors="backslashreplace")


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
        text, pair = row.text.encode(), None
        self.texts.write(text)
        self.arrays["text_ends"].append(self.texts.tell())
        if row.pair is not None:
            pair = row.pair.encode()
            self.pairs.write(pair)
            self.arrays["pair_ends"].append(self.pairs.tell())
        self.arrays["labels"].append(self.label_codes.setdefault(row.label, len(self.label_codes)))
        self.arrays["lines"].append(row.line)
        self.arrays["hashes"].append(text_hash(text, pair))


def _check_first_row(path: str, writer: _TableWriter, form: LabelForm) -> None:
    """Raise InputError where the first line may be a header: of many rows, no other has its label."""
    labels = list(writer.label_codes)
    first = form.labels_in(labels[0]) if labels else []
    codes = writer.arrays["labels"]
    # Where most labels are there once, something else is wrong
    if len(codes) < max(FEW_ROWS, 2 * len(labels)) or codes.count(0) > 1 or not first:
        return
    others = {label for text in labels[1:] for label in form.labels_in(text)}
    if not others & set(first):
        raise InputError(
            _(
                "{path}, line {line}: cannot tell whether this is a header: no other row has the label "
                "{label}; set --data.header true, or false where it is a row"
            ).format(path=path, line=writer.arrays["lines"][0], label=excerpt(labels[0]))
        )


def _check_label(
    row: Row, names: list[str], accept_ids: bool, form: LabelForm, options: ReadOptions
) -> Row | BadRow:
    """Return the row, or a `BadRow` if its label, or a label of its set, is unknown."""
    unknown = form.unknown(row.label, names, accept_ids)
    if unknown is None:
        return row
    shown = form.describe_unknown(unknown, names, options)
    said = _("unknown label {label}; fix the row or set --data.labels")
    return BadRow(row.line, said.format(label=shown))


def _other_separator(path: str, format: str) -> str:
    """Return what format a table was read as, in words, where its name stands for another separator."""
    named = SUFFIXES.get(Path(path).suffix.lower())
    delimited = [name for name, known in FORMATS.items() if known.is_delimited]
    return f"; read as {format}" if named in delimited and format in delimited and named != format else ""


def _bad_rows_message(path: str, unit: str, bad: list[BadRow], num_bad: int, all_bad: bool) -> str:
    lines = [bad_row_message(path, unit, row.line, row.problem) for row in bad]
    if num_bad == 1 and not all_bad:
        return _("{problem} (or --data.on_bad_row skip)").format(problem=lines[0])
    first = _("{path}: {rows:,} rows are invalid; fix them, or skip them with --data.on_bad_row skip")
    if all_bad:
        first = _("{path}: there are no rows left: all {rows:,} are invalid")
    if num_bad > len(bad):
        lines.append(_("... and {rows:,} more").format(rows=num_bad - len(bad)))
    return "\n  ".join([first.format(path=path, rows=num_bad), *lines])
