"""The data report that is printed before training: rows, classes, lengths, and what may be wrong."""

import re
import unicodedata
from itertools import islice

import numpy as np

from ..errors import excerpt, listed, shorten
from ..words import N_, _
from .dataset import Dataset
from .tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)
MAX_CLASSES, LARGEST = 50, 5  # classes that are all shown; of more, so many of the largest
MANY_CONFLICTS = 0.1  # share of texts with conflicting labels from which these may be meant together
MAX_SHOWN = 10  # skipped rows, and doubtful labels
# How programs write a missing value that became text, in lower case
MISSING_VALUES = {"nan", "none", "na", "n/a", "null", "<na>", "-", "--", "—", "——", "/", "?"}
# The keys are those of a split's statistics
NOTES = {
    "repeated": N_("{count:,} repeated texts"),
    "conflicting": N_("{count:,} texts with conflicting labels"),
    "near_copies": N_("{count:,} rows are near copies of other texts in train"),
}


def render(dataset: Dataset, stores: dict[str, TokenStore]) -> str:
    """Return the data report as text, for people."""
    lines = [_("Data")]
    for table in dataset.tables:
        skipped = _(", {rows:,} skipped").format(rows=table.skipped) if table.skipped else ""
        line = _("{source}: {rows:,} rows{skipped} ({columns})")
        values = {"source": table.source, "rows": table.num_rows, "skipped": skipped}
        lines.append("  " + line.format(**values, columns=table.columns))
        for row in islice(table.skipped_rows(), MAX_SHOWN):
            lines.append("    " + _("skipped {place}: {problem}").format(**row))
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
        if "deviation" in statistics:
            line = _("mean {mean:.4g}, standard deviation {deviation:.4g}, from {least:.4g} to {largest:.4g}")
            lines.append("    " + line.format(**statistics))
        notes = [_(said).format(count=statistics[key]) for key, said in NOTES.items() if statistics.get(key)]
        if statistics.get("conflicting", 0) >= MANY_CONFLICTS * rows:
            notes.append(_("for several labels a text, write one row with all (data.task multi_label)"))
        for other, count in statistics["also_in"].items():
            line = _("{rows:,} rows whose text is also in {split}")
            notes += [line.format(rows=count, split=other)] if count else []
        lines += ["    " + "; ".join(notes)] if notes else []
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


def length_line(store: TokenStore, rows: np.ndarray) -> str:
    """Return the line about the lengths of rows in tokens, and how many are not read whole."""
    lengths = (store.offsets[rows + 1] - store.offsets[rows]).astype(np.int32)
    names = [*(f"{percent} %" for percent in PERCENTILES[:-1]), _("longest")]
    of_percents = np.percentile(lengths, PERCENTILES, method="inverted_cdf").tolist()
    shown = ", ".join(f"{name} {length}" for name, length in zip(names, of_percents, strict=True))
    num_cut = int(store.cut[rows].sum())
    line = _(
        "tokens by percentile: {lengths}; {rows:,} rows ({share:.1%}) not read whole (data.long {way}, "
        "data.max_length {max_length}); {unknown:.1%} of all tokens are unknown"
    )
    values = {"lengths": shown, "rows": num_cut, "share": num_cut / len(rows), "way": store.long.way}
    unknown = store.unknown_tokens / max(1, len(store.tokens))
    return line.format(**values, max_length=store.max_length, unknown=unknown)
