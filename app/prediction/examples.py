"""Texts to try a model with: rows of the test split of its run."""

import csv
from itertools import islice
from pathlib import Path

from ..checkpoints.run_folder import PREDICTIONS

# Longer texts are no quick examples
MAX_CHARACTERS = 120
# Rows that are looked at
MAX_ROWS = 500


def example_inputs(folder: Path, count: int) -> list[str | list[str]]:
    """Return up to `count` texts, or pairs, of a run's test rows, as requests have them: the first row of
    each label, right or wrong, then others; none without the file of a run."""
    if not count:
        return []
    try:
        with (folder / PREDICTIONS).open(encoding="utf-8", newline="") as file:
            header, *rows = islice(csv.reader(file), MAX_ROWS + 1)
            first, last = header.index("text"), header.index("predicted") - 1
    # No such file, an empty one, or one of another program
    except (OSError, ValueError, csv.Error):
        return []
    short = [
        row for row in rows if len(row) == len(header) and sum(map(len, row[first:last])) <= MAX_CHARACTERS
    ]
    of_label: dict[str, list[str]] = {}
    for row in short:
        of_label.setdefault(row[last], row)
    chosen = [*of_label.values()]
    chosen += [row for row in short if row not in chosen]
    return [row[first] if last - first == 1 else row[first:last] for row in chosen[:count]]
