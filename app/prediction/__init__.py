"""Classifying text with a checkpoint; and what the command line says of it, quickly, without NumPy."""

from typing import NamedTuple

# A file that is written has the format of its name's ending
SUFFIXES = {
    ".csv": "csv",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".ndjson": "jsonl",
}
# Settings of the labels in a file, which only a report reads
OF_LABELS = ("label_column", "label_separator", "label_columns")
# An invalid row is kept with a reason and no label, or it is left out, or it is an error
ON_BAD_ROW = ("keep", "skip", "error")
# How `suggest` chooses rows. The names are those of the library small-text, but for the last one.
STRATEGIES = ("random", "least_confidence", "breaking_ties", "highest_confidence")


class WantedPrecision(NamedTuple):
    """Stands for the lowest threshold with this share of right decisions."""

    precision: float
