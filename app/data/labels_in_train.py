"""The check that every label has rows to train on."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError, listed, shorten


def check_labels_in_train(
    form: Any,
    labels: dict[str, np.ndarray],
    rows: dict[str, np.ndarray],
    tables: dict[str, Any],
    label_names: list[str],
) -> None:
    """Raise InputError unless each of two or more labels has a row in train.

    `labels` of the `form` and `rows` hold, for each split, the labels and the row ids of its rows; `tables`
    have the table of each file.
    """
    for label in np.flatnonzero(form.counts(labels["train"], len(label_names)) == 0):
        raise InputError(
            f"every label needs rows in train; label '{shorten(label_names[label])}' is absent from train "
            f"({_first_row_of(form, label, labels, rows, tables)}); add training rows of it, or remove it "
            "from the data and from data.labels"
        )
    if len(label_names) < 2:
        raise InputError(
            f"{tables['train'].source}: at least two different labels are needed, found "
            f"{listed(label_names)}; is data.label_column the right column?"
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
