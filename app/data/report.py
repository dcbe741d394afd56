"""The data report that is printed before training: rows, classes, lengths, and what may be wrong."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

import numpy as np

from ..errors import excerpt, listed, shorten
from ..words import N_, _
from .dataset import Dataset
from .table import Table
from .tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)
MAX_CLASSES, LARGEST = 50, 5  # classes that are all shown; of more, so many of the largest
MAX_SHOWN = 10  # skipped rows, and doubtful labels
# How programs write a missing value that became text, in lower case
MISSING_VALUES = {"nan", "none", "na", "n/a", "null", "<na>"}
# `Columns.described` is made of these, and is kept with the table in English.
COLUMNS = (N_("second text '"), N_("text '"), N_("label '"), N_("; not used: "), N_("; encoding "))
COLUMNS += (N_("; read as "),)


def render(dataset: Dataset, stores: dict[str, TokenStore]) -> str:
    """Return the data report as text, for people."""
    lines = [_("Data")]
    for table in dataset.tables:
        lines += table_lines(table)
    if effect := dataset.relabelled:
        line = _(
            "{source}: {fixes:,} corrected labels, for {rows:,} rows, {changed:,} of them had another label; "
            "{unused:,} of texts that are not in the data"
        )
        lines.append("  " + line.format(**effect))
    if labels := doubtful_labels(dataset.label_names):
        line = _("warning: labels that look alike, or like a missing value, are separate classes: {labels}")
        lines.append("  " + line.format(labels=listed(labels, MAX_SHOWN)))
    for name, statistics in dataset.statistics.items():
        rows, counts = statistics["rows"], statistics["classes"]
        shown = {one: f"{shorten(one)} {count:,} ({count / rows:.1%})" for one, count in counts.items()}
        classes = _("; {classes}").format(classes=", ".join(shown.values())) if shown else ""
        if len(shown) > MAX_CLASSES:
            largest = [shown[label] for label in sorted(counts, key=counts.get, reverse=True)[:LARGEST]]
            line = _("; {classes:,} classes, the largest {largest}")
            classes = line.format(classes=len(shown), largest=", ".join(largest))
        line = _("{split}: {rows:,} rows{classes}")
        lines.append("  " + line.format(split=name, rows=rows, classes=classes))
        lines.append("    " + length_line(stores[name], dataset.splits[name].rows))
        lines += map("    {}".format, _split_notes(statistics))
    return "\n".join(lines)


def doubtful_labels(names: list[str]) -> list[str]:
    """Return the labels that a person cannot tell apart, or hardly: by hidden characters, width of letters
    and digits, case, white space, quotes, a full stop or leading zeros; and those that are a missing value.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        text = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
        text = re.sub("[\\s\ufe0f\"'“”‘’「」]|[.。]$|^0+(?=[0-9]+$)", "", text.casefold())
        groups.setdefault(text, []).append(name)
    doubtful = [group for text, group in groups.items() if len(group) > 1 or text in MISSING_VALUES]
    return [excerpt(name) for group in doubtful for name in group]


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


def length_line(store: TokenStore, rows: np.ndarray) -> str:
    """Return the line about the lengths of rows in tokens, and what is read of long ones."""
    lengths = (store.offsets[rows + 1] - store.offsets[rows]).astype(np.int32)
    names = [*(f"{percent} %" for percent in PERCENTILES[:-1]), _("longest")]
    of_percents = np.percentile(lengths, PERCENTILES, method="inverted_cdf").tolist()
    shown = ", ".join(f"{name} {length}" for name, length in zip(names, of_percents, strict=True))
    num_cut = int(store.cut[rows].sum())
    cut = _("{rows:,} rows ({share:.1%})").format(rows=num_cut, share=num_cut / len(rows))
    values = {"cut": cut, "max_length": store.max_length, "max_windows": store.long.max_windows}
    long = _("{cut} cut at {max_length}")
    if store.long.way == "head_tail":
        long = _("{cut} read as head and tail of {max_length}")
    elif store.has_windows:
        values["several"] = int((store.first_windows[rows + 1] - store.first_windows[rows] > 1).sum())
        long = _(
            "{several:,} rows in several windows of {max_length}; {cut} cut after {max_windows} windows "
            "(data.max_windows)"
        )
    unknown = store.unknown_tokens / max(1, len(store.tokens))
    line = _("tokens by percentile: {lengths}; {long}; {share:.1%} of all tokens are unknown")
    return line.format(lengths=shown, long=long.format(**values), share=unknown)


def _split_notes(statistics: dict) -> Iterator[str]:
    if "deviation" in statistics:
        line = _("mean {mean:.4g}, standard deviation {deviation:.4g}, from {least:.4g} to {largest:.4g}")
        yield line.format(**statistics)
    notes = []
    if statistics["repeated"]:
        notes.append(_("{texts:,} repeated texts").format(texts=statistics["repeated"]))
    if statistics["conflicting"]:
        notes.append(_("{texts:,} texts with conflicting labels").format(texts=statistics["conflicting"]))
    for other, count in statistics["also_in"].items():
        line = _("{rows:,} rows whose text is also in {split}")
        notes += [line.format(rows=count, split=other)] if count else []
    if copies := statistics.get("near_copies"):
        notes.append(_("{rows:,} rows are near copies of other texts in train").format(rows=copies))
    if notes:
        yield "; ".join(notes)
