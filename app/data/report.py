"""The data report that is printed before training: rows, classes, lengths in tokens, and what may be wrong
with them."""

from __future__ import annotations

import numpy as np

from ..errors import listed, shorten
from .dataset import Dataset
from .labels import look_alikes, missing_values, with_code_points
from .long_texts import CUT
from .tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)
# That are all shown
MAX_CLASSES = 50
# Largest and smallest of more classes
ENDS = 5
# Of a class in train, below which the report warns
FEW_ROWS = 20
# Of labels that look alike
MAX_GROUPS = 5
# Rows counted at once
CHUNK = 1 << 16


def token_statistics(dataset: Dataset, stores: dict[str, TokenStore]) -> dict:
    """Return, for each split: percentiles of the stored lengths in tokens, how many rows have not all tokens
    of their text, and the fraction of unknown tokens in its table; where rows have windows, also how many
    have more than one.
    """
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
        if store.long != CUT:
            statistics[name]["long"] = store.long.way
        if store.has_windows:
            rows = split.rows
            several = int((store.first_windows[rows + 1] - store.first_windows[rows] > 1).sum())
            statistics[name] |= {"in_several_windows": several, "max_windows": store.long.max_windows}
    return statistics


def length_counts(rows: np.ndarray, store: TokenStore) -> tuple[np.ndarray, int]:
    """Return how many rows have each length, (store.most_tokens + 1,), and how many were cut.

    Counts in chunks, to need little memory.
    """
    counts, cut = np.zeros(store.most_tokens + 1, dtype=np.int64), 0
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
        lines += [f"    skipped {row['place']}: {row['problem']}" for row in table.skipped_rows()[:10]]
        if table.skipped > 10:
            lines.append(
                f"    ... and {table.skipped - 10:,} more, all in skipped_rows.csv of the run folder"
            )
        if table.multiline:
            lines.append(
                f"    {table.multiline:,} rows have several lines, the first from line "
                f"{table.first_multiline:,}: are all double quotes paired?"
            )
    if dataset.relabelled:
        lines += _relabelled_lines(dataset.relabelled)
    lines += _label_lines(dataset.label_names)
    if len(dataset.tables) == 1 and len(dataset.splits) > 1:
        rows = {name: f"{len(split):,} {name}" for name, split in dataset.splits.items()}
        lines.append(f"  the {dataset.tables[0].num_rows:,} rows were split: {', '.join(rows.values())}")
    lines += _few_lines(dataset.statistics)
    for name, statistics in dataset.statistics.items():
        lines += _split_lines(name, statistics, tokens[name])
    return "\n".join(lines)


def _relabelled_lines(effect: dict) -> list[str]:
    """Return what the corrected labels of data.relabel did."""
    unused = (
        f"; {effect['unused']:,} of texts that are not in the data, the first in {effect['first_unused']}"
    )
    return [
        f"  {effect['source']}: {effect['fixes']:,} corrected labels, for {effect['rows']:,} rows, "
        f"{effect['changed']:,} of them had another label{unused if effect['unused'] else ''}"
    ]


def _label_lines(label_names: list[str]) -> list[str]:
    """Return a warning about labels that look alike, and one about labels that are no labels."""
    lines = []
    if groups := look_alikes(label_names):
        shown = [" and ".join(map(with_code_points, group)) for group in groups[:MAX_GROUPS]]
        more = f"; and {len(groups) - MAX_GROUPS:,} more groups" if len(groups) > MAX_GROUPS else ""
        lines.append(f"  warning: labels that look alike are different classes: {'; '.join(shown)}{more}")
    if missing := missing_values(label_names):
        lines.append(f"  warning: the class {listed(map(repr, missing))} looks like a missing label")
    return lines


def _few_lines(statistics: dict) -> list[str]:
    """Return warnings about classes with few rows in train, and classes that dev or test does not have."""
    lines = []
    few = {name: count for name, count in statistics["train"]["classes"].items() if count < FEW_ROWS}
    if few:
        smallest = min(few, key=few.get)
        lines.append(
            f"  warning: {len(few):,} classes have fewer than {FEW_ROWS} rows in train, the smallest "
            f"{shorten(smallest)} {few[smallest]:,}: a model learns little of them, and figures on dev and "
            "test vary by chance"
        )
    for name in ("dev", "test"):
        classes = statistics.get(name, {}).get("classes", {})
        absent = [label for label, count in classes.items() if not count]
        if absent:
            lines.append(f"  warning: {name} has no row of {listed(absent, ENDS)}: nothing is measured there")
    return lines


def _classes(counts: dict[str, int], rows: int) -> str:
    """Return the rows of each class; of many classes, the largest and the smallest."""
    shown = [f"{shorten(label)} {count:,} ({count / rows:.1%})" for label, count in counts.items()]
    if len(shown) <= MAX_CLASSES:
        return ", ".join(shown)
    by_size = [shown[index] for index in np.argsort([-count for count in counts.values()], kind="stable")]
    largest, smallest = ", ".join(by_size[:ENDS]), ", ".join(by_size[-ENDS:])
    return f"{len(shown):,} classes, the largest {largest}; the smallest {smallest}"


def _long(tokens: dict, rows: int) -> str:
    """Return what is read of long texts, for one line of the report."""
    cut, length = f"{tokens['cut']:,} rows ({tokens['cut'] / rows:.1%})", tokens["max_length"]
    if "in_several_windows" in tokens:
        several = f"{tokens['in_several_windows']:,} rows in several windows of {length}"
        return f"{several}; {cut} cut after {tokens['max_windows']} windows (data.max_windows)"
    return f"{cut} read as head and tail of {length}" if "long" in tokens else f"{cut} cut at {length}"


def _split_lines(name: str, statistics: dict, tokens: dict) -> list[str]:
    rows = statistics["rows"]
    lengths = ", ".join(
        f"{'longest' if p == '100' else p + ' %'} {length}" for p, length in tokens["tokens"].items()
    )
    lines = [
        f"  {name}: {rows:,} "
        f"rows{'; ' if statistics['classes'] else ''}{_classes(statistics['classes'], rows)}",
        f"    tokens by percentile: {lengths}; {_long(tokens, rows)}",
    ]
    if tokens["unknown_fraction"] > 0.01:
        lines.append(
            f"    {tokens['unknown_fraction']:.1%} of all tokens are unknown to the vocabulary: is it the "
            "right one?"
        )
    if "deviation" in statistics:
        shown = "    mean {mean:.4g}, standard deviation {deviation:.4g}, from {least:.4g} to {largest:.4g}"
        lines.append(shown.format(**statistics))
    if "unlabelled" in statistics:
        unlabelled = statistics["unlabelled"]
        lines.append(
            f"    {statistics['labels_per_row']:.2f} labels a row; {unlabelled:,} rows "
            f"({unlabelled / rows:.1%}) have none"
        )
    notes = [f"{statistics['repeated']:,} repeated texts"] if statistics["repeated"] else []
    notes += (
        [f"{statistics['conflicting']:,} texts with conflicting labels"] if statistics["conflicting"] else []
    )
    notes += [
        f"{count:,} rows whose text is also in {other}"
        for other, count in statistics["also_in"].items()
        if count
    ]
    lines += [f"    {'; '.join(notes)}"] if notes else []
    copies = statistics.get("near_copies", {"rows": 0})
    if copies["rows"]:
        pairs = "; ".join(f"{one} of {other}" for one, other in copies["examples"])
        lines.append(f"    {copies['rows']:,} rows are near copies of other texts in train: {pairs}")
    return lines
