"""The labels that a person has filled into label_issues.csv: they stay when the list is written again."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path

logger = logging.getLogger(__name__)


def filled_rows(path: Path, header: list[str]) -> dict[str, list[str]]:
    """Return the rows of a list of issues whose last column is filled in, by text_hash.

    A file in another form, as a spreadsheet may have saved it, cannot be carried over: it is renamed, with a
    warning.
    """
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            is_ours = next(reader, None) == header
            rows = list(reader)
        if not is_ours or any(len(row) != len(header) for row in rows if row):
            raise ValueError("its columns are others than those of a list of label issues")
        place = header.index("text_hash")
        filled = [row for row in rows if row and row[-1].strip()]
        if len({row[place] for row in filled}) < len({(row[place], row[-1]) for row in filled}):
            raise ValueError("one text has two labels")
    except (ValueError, csv.Error) as error:
        kept = next(name for name in map(path.with_name, names(path)) if not name.exists())
        path.rename(kept)
        logger.warning("%s is kept as %s: %s", path, kept.name, error)
        return {}
    return {row[place]: row for row in filled}


def names(path: Path) -> Iterator[str]:
    """Yield names for a file that is kept: label_issues.kept-1.csv, ..."""
    return (f"{path.stem}.kept-{number}{path.suffix}" for number in count(1))
