"""The labels of a file: which class each one is."""

from __future__ import annotations

import re


def is_integer(label: str) -> bool:
    """Return whether a label is an integer in ASCII digits."""
    return re.fullmatch("-?[0-9]{1,18}", label) is not None


def resolve_label(label: str, names: list[str], accept_ids: bool = True) -> int | None:
    """Return the id of a label, its index in `names`; None for an unknown label.

    With `accept_ids`, a label that is an integer is the id itself, unless any of `names` is an integer too.
    """
    if label in names:
        return names.index(label)
    is_id = accept_ids and is_integer(label) and 0 <= int(label) < len(names)
    return int(label) if is_id and not any(map(is_integer, names)) else None


def sort_labels(values: list[str]) -> list[str]:
    """Return the labels of a file in the order of their ids: by number if all are integers, else by code
    point."""
    return sorted(values, key=int) if all(map(is_integer, values)) else sorted(values)
