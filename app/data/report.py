"""The data report that is printed before training: rows, classes, lengths, and what may be wrong."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from ..errors import excerpt, listed, shorten
from ..words import N_, _, pgettext
from .dataset import Dataset
from .labels import look_alikes, missing_values
from .long_texts import CUT
from .table import Table
from .tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)
MAX_CLASSES, LARGEST = 50, 5  # classes that are all shown; of more, so many of the largest
MAX_SHOWN = 10  # skipped rows, and groups of labels that look alike
# `Columns.described` is made of these, and is kept with the table in English.
COLUMNS = (N_("second text '"), N_("text '"), N_("label '"), N_("; not used: "), N_("; encoding "))


def token_statistics(dataset: Dataset, stores: dict[str, TokenStore]) -> dict:
    """Return for each split percentiles of the stored lengths in tokens, the rows with tokens left out, the
    fraction of unknown tokens, and where rows have windows, how many have more than one."""
    statistics = {}
    for name, split in dataset.splits.items():
        store, rows = stores[name], split.rows
        lengths = (store.offsets[rows + 1] - store.offsets[rows]).astype(np.int32)
        of_percents = np.percentile(lengths, PERCENTILES, method="inverted_cdf").tolist()
        statistics[name] = {
            "tokens": dict(zip(map(str, PERCENTILES), of_percents, strict=True)),
            "cut": int(store.cut[rows].sum()),
            "max_length": store.max_length,
            "unknown_fraction": store.unknown_tokens / max(1, len(store.tokens)),
        }
        if store.long != CUT:
            statistics[name]["long"] = store.long.way
        if store.has_windows:
            several = int((store.first_windows[rows + 1] - store.first_windows[rows] > 1).sum())
            statistics[name] |= {"in_several_windows": several, "max_windows": store.long.max_windows}
    return statistics


def render(dataset: Dataset, stores: dict[str, TokenStore]) -> str:
    """Return the data report as text, for people."""
    tokens = token_statistics(dataset, stores)
    lines = [_("Data")]
    for table in dataset.tables:
        lines += table_lines(table)
    lines += map("  {}".format, _notes(dataset))
    for name, statistics in dataset.statistics.items():
        rows, classes = statistics["rows"], _classes(statistics["classes"], statistics["rows"])
        lines.append(
            "  " + _("{split}: {rows:,} rows{classes}").format(split=name, rows=rows, classes=classes)
        )
        lines += map("    {}".format, _split_notes(statistics, tokens[name]))
    return "\n".join(lines)


def table_lines(table: Table) -> Iterator[str]:
    """Yield what the report says of a data file: its rows, columns and invalid rows."""
    columns = table.columns
    for english in COLUMNS:
        columns = columns.replace(english, _(english))
    skipped = _(", {rows:,} skipped").format(rows=table.skipped) if table.skipped else ""
    values = {"source": table.source, "rows": table.num_rows, "skipped": skipped, "columns": columns}
    yield "  " + _("{source}: {rows:,} rows{skipped} ({columns})").format(**values)
    for row in islice(table.skipped_rows(), MAX_SHOWN):
        yield "    " + _("skipped {place}: {problem}").format(**row)


def _notes(dataset: Dataset) -> Iterator[str]:
    """Yield what corrected labels did, and warnings about labels."""
    if effect := dataset.relabelled:
        line = _(
            "{source}: {fixes:,} corrected labels, for {rows:,} rows, {changed:,} of them had another label"
        )
        if effect["unused"]:
            line += _("; {unused:,} of texts that are not in the data, the first in {first_unused}")
        yield line.format(**effect)
    if groups := look_alikes(dataset.label_names):
        joined = pgettext("labels", " and ").join
        shown = [joined(map(excerpt, group)) for group in groups[:MAX_SHOWN]]
        line = _("warning: labels that look alike are different classes: {labels}")
        yield line.format(labels="; ".join(shown + ["..."] * (len(groups) > MAX_SHOWN)))
    if missing := missing_values(dataset.label_names):
        line = _("warning: the class {labels} looks like a missing label")
        yield line.format(labels=listed(map(repr, missing)))


def _classes(counts: dict[str, int], rows: int) -> str:
    shown = {label: f"{shorten(label)} {count:,} ({count / rows:.1%})" for label, count in counts.items()}
    if len(shown) <= MAX_CLASSES:
        return _("; {classes}").format(classes=", ".join(shown.values())) if shown else ""
    largest = [shown[label] for label in sorted(counts, key=counts.get, reverse=True)[:LARGEST]]
    return _("; {classes:,} classes, the largest {largest}").format(
        classes=len(shown), largest=", ".join(largest)
    )


def _split_notes(statistics: dict, tokens: dict) -> Iterator[str]:
    rows, names = statistics["rows"], {str(p): f"{p} %" for p in PERCENTILES} | {"100": _("longest")}
    lengths = ", ".join(f"{names[p]} {length}" for p, length in tokens["tokens"].items())
    cut = _("{rows:,} rows ({share:.1%})").format(rows=tokens["cut"], share=tokens["cut"] / rows)
    long = _("{cut} cut at {max_length}")
    if "long" in tokens:
        long = _("{cut} read as head and tail of {max_length}")
    if "in_several_windows" in tokens:
        long = _(
            "{in_several_windows:,} rows in several windows of {max_length}; {cut} cut after {max_windows} "
            "windows (data.max_windows)"
        )
    line = _("tokens by percentile: {lengths}; {long}")
    yield line.format(lengths=lengths, long=long.format(**tokens | {"cut": cut}))
    if tokens["unknown_fraction"] > 0.01:
        line = _("{share:.1%} of all tokens are unknown to the vocabulary: is it the right one?")
        yield line.format(share=tokens["unknown_fraction"])
    if "deviation" in statistics:
        line = _("mean {mean:.4g}, standard deviation {deviation:.4g}, from {least:.4g} to {largest:.4g}")
        yield line.format(**statistics)
    if "unlabelled" in statistics:
        line = _("{labels:.2f} labels a row; {rows:,} rows ({share:.1%}) have none")
        none = statistics["unlabelled"]
        yield line.format(labels=statistics["labels_per_row"], rows=none, share=none / rows)
    notes = []
    if statistics["repeated"]:
        notes.append(_("{texts:,} repeated texts").format(texts=statistics["repeated"]))
    if statistics["conflicting"]:
        notes.append(_("{texts:,} texts with conflicting labels").format(texts=statistics["conflicting"]))
    for other, count in statistics["also_in"].items():
        line = _("{rows:,} rows whose text is also in {split}")
        notes += [line.format(rows=count, split=other)] if count else []
    if notes:
        yield "; ".join(notes)
    copies = statistics.get("near_copies", {"rows": 0})
    if copies["rows"]:
        pair = _("{row} of {original}")
        pairs = "; ".join(pair.format(row=one, original=other) for one, other in copies["examples"])
        line = _("{rows:,} rows are near copies of other texts in train: {pairs}")
        yield line.format(rows=copies["rows"], pairs=pairs)
