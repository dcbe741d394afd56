"""The labels that a program gives, in lists, arrays or columns, and the labels that it gets back."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..data.label_cells import label_text
from ..data.labels import label_ids
from ..errors import InputError, excerpt, shorten
from .texts import check_ordered


def labels_of(values: Iterable) -> list[str] | list[int] | list[bool]:
    """Return the labels of rows as values of Python. Raises InputError for what is no list, and for labels
    that are not all strings, all integers or all truth values: 1 and true would be the same label."""
    check_ordered(values, "labels")
    if hasattr(values, "tolist"):
        values = values.tolist()
    labels = []
    # The first label of each type
    examples: dict[type, Any] = {}
    for value in values:
        # Strings and numbers of NumPy become those of Python
        if isinstance(value, str):
            label = str(value)
        elif isinstance(value, (bool, np.bool_)):
            label = bool(value)
        elif isinstance(value, (int, np.integer)):
            label = int(value)
        else:
            raise InputError(f"labels must be all strings or all integers, found {excerpt(value)}")
        labels.append(label)
        examples.setdefault(type(label), label)
    if len(examples) > 1:
        both = " and ".join(map(repr, examples.values()))
        raise InputError(f"labels must be all strings or all integers, found both: {both}")
    return labels


def check_names(names: list[str]) -> None:
    """Raise InputError for labels, all different, that the training could not tell apart, or could not read
    again, and for fewer than two."""
    ids = label_ids(tuple(names), accept_ids=False)
    for label_id, name in enumerate(names):
        if name != name.strip() or not name:
            raise InputError(
                f"labels must be names without white space around them, not empty, found '{shorten(name)}'"
            )
        try:
            text = label_text(name)
        except ValueError as error:
            raise InputError(f"the label {excerpt(name)} cannot be used: {error}") from error
        if not text or ids.get(text) != label_id:
            raise InputError(
                f"the label {excerpt(name)} is read as {excerpt(text)}, as in a file (without __label__ and "
                ".0), so it would be another label; rename it"
            )
    if len(names) < 2:
        raise InputError(f"at least two different labels are needed, found {names}")


def label_array(labels: Sequence[str] | Sequence[int] | Sequence[bool]) -> np.ndarray:
    """Return labels of one type as an array, (num_labels,), that gives each of them back as it is: of objects
    where NumPy has no type for them, as for strings that end with zero characters and very large integers."""
    if not labels:
        return np.empty(0, dtype=str)
    array = np.array(labels)
    back = array.tolist()
    if back != list(labels) or type(back[0]) is not type(labels[0]):
        array = np.array(labels, dtype=object)
    return array
