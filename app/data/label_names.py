"""The labels of a file: which class each one is, and which of them may be mistakes."""

import re
import unicodedata
from typing import Any

import numpy as np

from ..errors import InputError, excerpt, listed, shorten
from ..words import _

# How programs write a missing value that became text, in lower case
MISSING_VALUES = {"nan", "none", "na", "n/a", "null", "<na>"}
# Characters of a label whose code points a message has
MAX_CODE_POINTS = 8


def is_integer(label: str) -> bool:
    """Return whether a label is an integer in ASCII digits."""
    return re.fullmatch("-?[0-9]{1,18}", label) is not None


def resolve_label(label: str, names: list[str], accept_ids: bool = True) -> int | None:
    """Return the id of a label, its index in `names`; None for an unknown label. With `accept_ids`, a label
    that is an integer is the id itself, unless any of `names` is an integer too."""
    if label in names:
        return names.index(label)
    is_id = accept_ids and is_integer(label) and 0 <= int(label) < len(names)
    return int(label) if is_id and not any(map(is_integer, names)) else None


def sort_labels(values: list[str]) -> list[str]:
    """Return labels in the order of their ids: by number if all are integers, else by code point."""
    return sorted(values, key=int) if all(map(is_integer, values)) else sorted(values)


def missing_values(names: list[str]) -> list[str]:
    """Return the labels that are probably missing values which another program wrote as text."""
    return [name for name in names if name.strip().lower() in MISSING_VALUES]


def look_alikes(names: list[str]) -> list[list[str]]:
    """Return the groups of labels that a person cannot tell apart, or hardly: by hidden characters, width of
    letters and digits, white space, leading zeros, or how an accent is written."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_appearance(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _appearance(label: str) -> str:
    text = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    text = " ".join(text.replace("\ufe0f", "").split())
    return str(int(text)) if is_integer(text) else text


def with_code_points(label: str) -> str:
    """Return a label for a message, with the code points of its first characters."""
    points = " ".join(f"U+{ord(character):04X}" for character in label[:MAX_CODE_POINTS])
    return f"{excerpt(label)} ({points}{' ...' if len(label) > MAX_CODE_POINTS else ''})"


def check_labels_in_train(
    form: Any,
    labels: dict[str, np.ndarray],
    rows: dict[str, np.ndarray],
    tables: dict[str, Any],
    label_names: list[str],
) -> None:
    """Raise InputError unless each of two or more labels has a row in train. `labels` of the `form` and row
    ids, `rows`, are by split; `tables` have the table of each file."""
    for label in np.flatnonzero(form.counts(labels["train"], len(label_names)) == 0):
        raise InputError(
            _(
                "every label needs rows in train; label '{label}' is absent from train ({where}); add "
                "training rows of it, or remove it from the data and from data.labels"
            ).format(
                label=shorten(label_names[label]), where=_first_row_of(form, label, labels, rows, tables)
            )
        )
    if len(label_names) < 2:
        raise InputError(
            _(
                "{path}: at least two different labels are needed, found {labels}; is data.label_column the "
                "right column?"
            ).format(path=tables["train"].source, labels=listed(label_names))
        )


def _first_row_of(
    form: Any, label: int, labels: dict[str, np.ndarray], rows: dict[str, np.ndarray], tables: dict[str, Any]
) -> str:
    """Return where the first dev or test row of a label is, for a message."""
    for name in ("dev", "test"):
        matches = form.rows_with(labels[name], label)
        if len(matches):
            first_row = int(rows[name][matches[0]])
            where = tables.get(name, tables["train"]).where(first_row)
            return f"the first of its {len(matches):,} {name} rows is {where}"
    return "it has no rows at all"
