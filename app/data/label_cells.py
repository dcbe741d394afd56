"""The labels of a multi-label row, from a cell of a file or from one 0/1 column for each label. In a table a
set is text, the JSON list of its labels in order of code points: equal sets are equal."""

import json
from collections import Counter
from typing import Any

from ..errors import InputError, excerpt
from .readers.excel import EMPTY

USUAL_SEPARATORS = (",", "|", ";", "，", "；", "、")
ZERO_OR_ONE = {"0": False, "1": True, "0.0": False, "1.0": True, "False": False, "True": True}


def labels_in_cell(value: Any, separator: str | None) -> list:
    """Return the labels in the value of a column, not cleaned: a list, a JSON list, text with separators.

    Nothing (None, an empty cell, an empty list) is no label. Raises ValueError with the problem of this row,
    and InputError where all rows with several labels have it, so that none of them is skipped.
    """
    if value is None or value is EMPTY or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f'a list of labels must be JSON, like ["a", "b"], found {excerpt(value)}; '
                "fix the row, or set --data.label_separator for labels without brackets"
            ) from error
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return [value]
    if separator is not None:
        return [label for label in value.split(separator) if label.strip()]
    usual = next((character for character in USUAL_SEPARATORS if character in value), None)
    if usual is not None:
        raise InputError(
            f"cannot tell whether this is one label or several: found {excerpt(value)}; set "
            f"--data.label_separator '{usual}', or write a JSON list"
        )
    return [value]


def separator_in(labels: list[str]) -> str | None:
    """Return the separator of several labels in one, if half of the parts are labels elsewhere, or None."""
    for separator in USUAL_SEPARATORS:
        joined = [{part.strip() for part in label.split(separator)} for label in labels if separator in label]
        parts = Counter(part for parts in joined for part in parts if part)
        again = sum(count > 1 or part in labels for part, count in parts.items())
        if joined and 2 * again >= len(parts):
            return separator
    return None


def labels_in_columns(values: list, names: list[str]) -> list[str]:
    """Return the `names` of the columns whose value is 1; raises ValueError for one that is not 0 or 1."""
    labels = []
    for value, name in zip(values, names, strict=True):
        is_one = ZERO_OR_ONE.get(str(value).strip())
        if is_one is None:
            shown = value.found if value is EMPTY else excerpt(value)
            raise ValueError(
                f"the column {excerpt(name)} of data.label_columns must be 0 or 1, found {shown}; fix the row"
            )
        labels += [name] if is_one else []
    return labels


def encode_labels(labels: list[str]) -> str:
    """Return the text of a set; a label that is there twice counts once."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def decode_labels(text: str) -> list[str]:
    """Return the labels of a set."""
    return json.loads(text)
