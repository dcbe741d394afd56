"""The data report that is printed before training: rows, classes, lengths in tokens, and what may be wrong with them."""

from __future__ import annotations

import numpy as np

from app.data.dataset import Dataset
from app.data.tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)
CHUNK = 1 << 16  # rows counted at once


def token_statistics(dataset: Dataset, stores: dict[str, TokenStore]) -> dict:
    """Return, for each split: percentiles of the stored lengths in tokens, how many rows were cut at `max_length`, and the
    fraction of unknown tokens in its table."""
    statistics = {}
    for name, split in dataset.splits.items():
        store = stores[name]
        counts, cut = length_counts(split.rows, store)
        reached = np.cumsum(counts) / len(split)
        statistics[name] = {
            "tokens": {str(p): int(np.searchsorted(reached, p / 100 - 1e-12)) for p in PERCENTILES},
            "cut": cut,
            "max_length": store.max_length,
            "unknown_fraction": store.unknown_tokens / max(1, len(store.tokens)),
        }
    return statistics


def length_counts(rows: np.ndarray, store: TokenStore) -> tuple[np.ndarray, int]:
    """Return how many rows have each length, (max_length + 1,), and how many were cut.

    Counts in chunks, to need little memory.
    """
    counts, cut = np.zeros(store.max_length + 1, dtype=np.int64), 0
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        lengths = store.offsets[chunk + 1] - store.offsets[chunk]
        counts += np.bincount(lengths, minlength=len(counts))
        cut += int(store.cut[chunk].sum())
    return counts, cut


def render(dataset: Dataset, stores: dict[str, TokenStore]) -> str:
    """Return the data report as text, for people."""
    tokens = token_statistics(dataset, stores)
    lines = ["Data"]
    for table in dataset.tables:
        skipped = f", {table.skipped:,} skipped" if table.skipped else ""
        lines.append(f"  {table.source}: {table.num_rows:,} rows{skipped} ({table.columns})")
        lines += [f"    skipped {table.row_unit} {row['line']}: {row['problem']}" for row in table.skipped_rows()[:10]]
        if table.skipped > 10:
            lines.append(f"    ... and {table.skipped - 10:,} more, all in skipped_rows.csv of the run folder")
        if table.multiline:
            lines.append(
                f"    {table.multiline:,} rows have several lines, the first from line {table.first_multiline:,}: "
                "are all double quotes paired?"
            )
    for name, statistics in dataset.statistics.items():
        lines += _split_lines(name, statistics, tokens[name])
    return "\n".join(lines)


def _split_lines(name: str, statistics: dict, tokens: dict) -> list[str]:
    rows = statistics["rows"]
    classes = ", ".join(f"{label} {count:,} ({count / rows:.1%})" for label, count in statistics["classes"].items())
    lengths = ", ".join(f"{'longest' if p == '100' else p + ' %'} {length}" for p, length in tokens["tokens"].items())
    lines = [
        f"  {name}: {rows:,} rows; {classes}",
        f"    tokens by percentile: {lengths}; {tokens['cut']:,} rows ({tokens['cut'] / rows:.1%}) cut at {tokens['max_length']}",
    ]
    if tokens["unknown_fraction"] > 0.01:
        lines.append(
            f"    {tokens['unknown_fraction']:.1%} of all tokens are unknown to the vocabulary: is it the right one?"
        )
    notes = [f"{statistics['repeated']:,} repeated texts"] if statistics["repeated"] else []
    notes += [f"{statistics['conflicting']:,} texts with conflicting labels"] if statistics["conflicting"] else []
    notes += [
        f"{count:,} rows whose text is also in {other}" for other, count in statistics["also_in"].items() if count
    ]
    return lines + ([f"    {'; '.join(notes)}"] if notes else [])
