"""The data report: what the rows are like, printed before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from app.data.dataset import Dataset
    from app.data.tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)
CHUNK = 1 << 16  # rows looked at at once


def dataset_figures(labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], label_names: list[str]) -> dict:
    """Return the figures that need no tokens, by split: rows, rows of each class, repeated and conflicting texts, overlaps.

    `labels` and `hashes`: for each split, (num_rows,) class ids and hashes of the texts. *Repeated* counts rows whose
    text stands in an earlier row of the same split, *conflicting* counts texts that have more than one label, and
    *also in X* counts rows whose text is in split X too.
    """
    figures = {}
    for name, split_labels in labels.items():
        if not len(split_labels):
            continue
        unique, inverse = np.unique(hashes[name], return_inverse=True)
        text_labels = np.unique(np.stack([inverse, split_labels]), axis=1)
        figures[name] = {
            "rows": len(split_labels),
            "classes": dict(
                zip(label_names, np.bincount(split_labels, minlength=len(label_names)).tolist(), strict=True)
            ),
            "repeated": len(split_labels) - len(unique),
            "conflicting": int((np.bincount(text_labels[0], minlength=len(unique)) > 1).sum()),
            "also_in": {other: int(np.isin(hashes[name], hashes[other]).sum()) for other in figures},
        }
    return figures


def token_figures(dataset: Dataset, stores: dict[str, TokenStore]) -> dict:
    """Return, by split: percentiles of the stored length in tokens, and the number of rows that were cut at max_length."""
    figures = {}
    for name, split in dataset.splits.items():
        store = stores[name]
        counts, cut = length_counts(split.rows, store)
        reached = np.cumsum(counts) / len(split)
        figures[name] = {
            "tokens": {str(p): int(np.searchsorted(reached, p / 100 - 1e-12)) for p in PERCENTILES},
            "cut": cut,
            "max_length": store.max_length,
            "unknown_share": store.unknown_tokens / max(1, len(store.tokens)),
        }
    return figures


def length_counts(rows: np.ndarray, store: TokenStore) -> tuple[np.ndarray, int]:
    """Return how many rows have each length, (max_length + 1,), and how many were cut; in chunks, to hold little memory."""
    counts, cut = np.zeros(store.max_length + 1, dtype=np.int64), 0
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        lengths = store.offsets[chunk + 1] - store.offsets[chunk]
        counts += np.bincount(lengths, minlength=len(counts))
        cut += int(store.cut[chunk].sum())
    return counts, cut


def render(dataset: Dataset, stores: dict[str, TokenStore]) -> str:
    """Return the data report as text, for people."""
    tokens = token_figures(dataset, stores)
    lines = ["Data"]
    for table in dataset.tables:
        skipped = f", {table.skipped:,} skipped" if table.skipped else ""
        lines.append(f"  {table.source}: {table.num_rows:,} rows{skipped} ({table.columns})")
        lines += [f"    skipped {table.place} {row['line']}: {row['problem']}" for row in table.skipped_rows()[:10]]
        if table.skipped > 10:
            lines.append(f"    ... and {table.skipped - 10:,} more, all in skipped_rows.csv of the run folder")
        if table.multiline:
            lines.append(
                f"    {table.multiline:,} rows go over several lines, the first from line {table.first_multiline:,}: "
                "are all double quotes paired?"
            )
    for name, figures in dataset.figures.items():
        lines += _split_lines(name, figures, tokens[name])
    return "\n".join(lines)


def _split_lines(name: str, figures: dict, tokens: dict) -> list[str]:
    rows = figures["rows"]
    shares = ", ".join(f"{label} {count:,} ({count / rows:.1%})" for label, count in figures["classes"].items())
    lengths = ", ".join(f"{'longest' if p == '100' else p + ' %'} {length}" for p, length in tokens["tokens"].items())
    lines = [
        f"  {name}: {rows:,} rows; {shares}",
        f"    tokens by percentile: {lengths}; {tokens['cut']:,} rows ({tokens['cut'] / rows:.1%}) cut at {tokens['max_length']}",
    ]
    if tokens["unknown_share"] > 0.01:
        lines.append(
            f"    {tokens['unknown_share']:.1%} of all tokens are unknown to the vocabulary: is it the right one?"
        )
    notes = [f"{figures['repeated']:,} repeated texts"] if figures["repeated"] else []
    notes += [f"{figures['conflicting']:,} texts with conflicting labels"] if figures["conflicting"] else []
    notes += [f"{count:,} rows whose text is also in {other}" for other, count in figures["also_in"].items() if count]
    return lines + ([f"    {'; '.join(notes)}"] if notes else [])
