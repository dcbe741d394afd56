"""The data report that is printed before training: rows, classes, lengths, and what may be wrong."""

import numpy as np

from ..errors import excerpt, listed, shorten
from ..words import N_, _, pgettext
from .dataset import Dataset
from .labels import look_alikes, missing_values
from .long_texts import CUT
from .table import Table
from .tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)
MAX_CLASSES = 50  # that are all shown
ENDS = 5  # largest and smallest of more classes
FEW_ROWS = 20  # of a class in train, below which the report warns
MAX_GROUPS = 5  # of labels that look alike
MAX_SKIPPED = 10  # skipped rows that are shown
# What `Columns.described` is made of, which is kept with the table in English
COLUMNS = (
    *(N_("second text '"), N_("text '"), N_("label '"), N_("; not used: "), N_("; read as ")),
    *(N_("; encoding "), N_("; one label in each list")),
)


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
        lines += _table_lines(table)
    if effect := dataset.relabelled:
        line = _(
            "{source}: {fixes:,} corrected labels, for {rows:,} rows, {changed:,} of them had another label"
        )
        if effect["unused"]:
            line += _("; {unused:,} of texts that are not in the data, the first in {first_unused}")
        lines.append("  " + line.format(**effect))
    lines += _label_lines(dataset.label_names)
    if len(dataset.tables) == 1 and len(dataset.splits) > 1:
        sizes = {name: len(split) for name, split in dataset.splits.items()}
        rows = ", ".join(_("{rows:,} {split}").format(rows=size, split=name) for name, size in sizes.items())
        line = _("the {rows:,} rows were split: {splits}")
        lines.append("  " + line.format(rows=dataset.tables[0].num_rows, splits=rows))
    lines += _few_lines(dataset.statistics)
    for name, statistics in dataset.statistics.items():
        lines += _split_lines(name, statistics, tokens[name])
    return "\n".join(lines)


def _table_lines(table: Table) -> list[str]:
    columns = table.columns
    for english in COLUMNS:
        columns = columns.replace(english, _(english))
    skipped = _(", {rows:,} skipped").format(rows=table.skipped) if table.skipped else ""
    line = _("{source}: {rows:,} rows{skipped} ({columns})")
    values = {"source": table.source, "rows": table.num_rows, "skipped": skipped, "columns": columns}
    lines = ["  " + line.format(**values)]
    line = _("skipped {place}: {problem}")
    lines += ["    " + line.format(**row) for row in table.skipped_rows()[:MAX_SKIPPED]]
    if table.skipped > MAX_SKIPPED:
        line = _("... and {rows:,} more, all in skipped_rows.csv of the run folder")
        lines.append("    " + line.format(rows=table.skipped - MAX_SKIPPED))
    if table.multiline:
        line = _(
            "{rows:,} rows have several lines, the first from line {first:,}: are all double quotes paired?"
        )
        lines.append("    " + line.format(rows=table.multiline, first=table.first_multiline))
    return lines


def _label_lines(label_names: list[str]) -> list[str]:
    """Return a warning about labels that look alike, and one about labels that are no labels."""
    lines = []
    if groups := look_alikes(label_names):
        joined = pgettext("labels", " and ").join
        shown = "; ".join(joined(map(excerpt, group)) for group in groups[:MAX_GROUPS])
        if len(groups) > MAX_GROUPS:
            shown += _("; and {groups:,} more groups").format(groups=len(groups) - MAX_GROUPS)
        line = _("warning: labels that look alike are different classes: {labels}")
        lines.append("  " + line.format(labels=shown))
    if missing := missing_values(label_names):
        line = _("warning: the class {labels} looks like a missing label")
        lines.append("  " + line.format(labels=listed(map(repr, missing))))
    return lines


def _few_lines(statistics: dict) -> list[str]:
    """Return warnings about classes with few rows in train, and classes that dev or test does not have."""
    lines = []
    few = {name: count for name, count in statistics["train"]["classes"].items() if count < FEW_ROWS}
    if few:
        smallest = min(few, key=few.get)
        line = _(
            "warning: {classes:,} classes have fewer than {limit} rows in train, the smallest {smallest} "
            "{rows:,}: a model learns little of them, and figures on dev and test vary by chance"
        )
        values = {"classes": len(few), "limit": FEW_ROWS, "rows": few[smallest]}
        lines.append("  " + line.format(smallest=shorten(smallest), **values))
    for name in ("dev", "test"):
        classes = statistics.get(name, {}).get("classes", {})
        if absent := [label for label, count in classes.items() if not count]:
            line = _("warning: {split} has no row of {labels}: nothing is measured there")
            lines.append("  " + line.format(split=name, labels=listed(absent, ENDS)))
    return lines


def _classes(counts: dict[str, int], rows: int) -> str:
    """Return the rows of each class; of many classes, the largest and the smallest."""
    shown = {label: f"{shorten(label)} {count:,} ({count / rows:.1%})" for label, count in counts.items()}
    if len(shown) <= MAX_CLASSES:
        return ", ".join(shown.values())
    by_size = [shown[label] for label in sorted(counts, key=counts.get, reverse=True)]
    line = _("{classes:,} classes, the largest {largest}; the smallest {smallest}")
    ends = {"largest": ", ".join(by_size[:ENDS]), "smallest": ", ".join(by_size[-ENDS:])}
    return line.format(classes=len(shown), **ends)


def _split_lines(name: str, statistics: dict, tokens: dict) -> list[str]:
    rows, classes = statistics["rows"], ""
    if statistics["classes"]:
        classes = _("; {classes}").format(classes=_classes(statistics["classes"], rows))
    lines = ["  " + _("{split}: {rows:,} rows{classes}").format(split=name, rows=rows, classes=classes)]
    names = {str(p): f"{p} %" for p in PERCENTILES} | {"100": _("longest")}
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
    lines.append("    " + line.format(lengths=lengths, long=long.format(**tokens | {"cut": cut})))
    if tokens["unknown_fraction"] > 0.01:
        line = _("{share:.1%} of all tokens are unknown to the vocabulary: is it the right one?")
        lines.append("    " + line.format(share=tokens["unknown_fraction"]))
    if "deviation" in statistics:
        line = _("mean {mean:.4g}, standard deviation {deviation:.4g}, from {least:.4g} to {largest:.4g}")
        lines.append("    " + line.format(**statistics))
    if "unlabelled" in statistics:
        line = _("{labels:.2f} labels a row; {rows:,} rows ({share:.1%}) have none")
        none = statistics["unlabelled"]
        lines.append("    " + line.format(labels=statistics["labels_per_row"], rows=none, share=none / rows))
    notes = []
    if statistics["repeated"]:
        notes.append(_("{texts:,} repeated texts").format(texts=statistics["repeated"]))
    if statistics["conflicting"]:
        notes.append(_("{texts:,} texts with conflicting labels").format(texts=statistics["conflicting"]))
    for other, count in statistics["also_in"].items():
        line = _("{rows:,} rows whose text is also in {split}")
        notes += [line.format(rows=count, split=other)] if count else []
    lines += ["    " + "; ".join(notes)] if notes else []
    copies = statistics.get("near_copies", {"rows": 0})
    if copies["rows"]:
        pair = _("{row} of {original}")
        pairs = "; ".join(pair.format(row=one, original=other) for one, other in copies["examples"])
        line = _("{rows:,} rows are near copies of other texts in train: {pairs}")
        lines.append("    " + line.format(rows=copies["rows"], pairs=pairs))
    return lines
