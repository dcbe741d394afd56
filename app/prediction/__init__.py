"""Classifying text with a finished checkpoint; and what the command line says of it, without NumPy, so that
`--help` is quick."""

from typing import NamedTuple

# The endings of names of files to write, and their formats
SUFFIXES = {f".{name}": name for name in ("csv", "xlsx", "jsonl", "parquet")} | {".ndjson": "jsonl"}
# What is done with an invalid row: it has no label but a reason; it is left out; it ends the reading
ON_BAD_ROW = ("keep", "skip", "error")


class WantedPrecision(NamedTuple):
    """Stands for the lowest threshold with this share of right decisions."""

    precision: float
