"""The data report that is printed before training: rows, classes, lengths, and what may be wrong."""

import re
import unicodedata
from itertools import islice
from typing import Any

import numpy as np

from ..errors import excerpt, listed, shorten
from ..words import _, joined, ngettext, rows_in_words
from .dataset import Dataset
from .label_cells import number_of
from .label_shares import PROBABILITIES, ShareFacts
from .line_breaks import LineBreaks
from .share_changes import ShareChange, share_changes
from .table import Table
from .tokens import TokenStore

PERCENTILES = (5, 50, 95, 99, 100)  # the last one is called the longest
MAX_CLASSES = 50  # classes of a split that are all listed
NUM_LARGEST = 5  # classes that are listed where there are more
MANY_CONFLICTS = 0.1  # share of texts with conflicting labels from which these may be meant together
# Share of tokens. An unknown one takes the place of a whole word, so even more of the texts is lost
MANY_UNKNOWN = 0.2
MAX_CHANGED = 3  # classes with another share than in train
MAX_LISTED = 10  # skipped rows, and doubtful labels
# How programs write a missing value that became text, in lower case
MISSING_VALUES = {"nan", "none", "na", "n/a", "null", "<na>", "-", "--", "—", "——", "/", "?"}


def render(dataset: Dataset, stores: dict[str, TokenStore], is_task_chosen: bool = False) -> str:
    """Return the data report as text, for people. `stores` has the token store of each split. Whether labels
    that are numbers are classes is asked, unless `is_task_chosen`: the user has set the task or the labels.
    """
    lines = [_("Data")]
    for table in dataset.tables:
        lines += _table_lines(table)
    if dataset.relabelled:
        lines.append("  " + _relabelled_line(dataset.relabelled))
    labels = doubtful_labels(dataset.label_names)
    if labels:
        message = _(
            "warning: labels that look alike, or like a missing value, are separate classes: {labels}"
        )
        lines.append("  " + message.format(labels=listed(labels, MAX_LISTED)))
    if are_many_numbers(dataset.label_names) and not is_task_chosen:
        message = _(
            "note: the {count:,} labels are numbers, and are trained as classes without an order; for scores "
            "set --data.task regression, for ordered labels such as stars --data.task ordinal"
        )
        lines.append("  " + message.format(count=len(dataset.label_names)))
    for name, statistics in dataset.statistics.items():
        message = _("{split}: {rows}{classes}")
        rows = rows_in_words(statistics["rows"])
        classes = _classes_text(statistics)
        lines.append("  " + message.format(split=name, rows=rows, classes=classes))
        store = stores[name]
        lines.append("    " + length_line(store, dataset.splits[name].rows))
        if name == "train" and store.unknown_share > MANY_UNKNOWN:
            message = _(
                "warning: {share:.0%} of the tokens are unknown, and the model cannot tell them apart; "
                "choose a model with a vocabulary for this language"
            )
            lines.append("    " + message.format(share=store.unknown_share))
        if "deviation" in statistics:
            message = _(
                "mean {mean:.4g}, standard deviation {deviation:.4g}, from {least:.4g} to {largest:.4g}"
            )
            lines.append("    " + message.format(**statistics))
        if name != "train":
            lines += _share_lines(name, share_changes(dataset.statistics["train"], statistics))
        notes = _notes(statistics)
        if notes:
            lines.append("    " + "; ".join(notes))
    return "\n".join(lines)


def _relabelled_line(relabelled: dict[str, Any]) -> str:
    """Return the line about the corrected labels of data.relabel."""
    num_fixes = relabelled["fixes"]
    fixes = ngettext("{number:,} corrected label", "{number:,} corrected labels", num_fixes)
    message = _(
        "{source}: {fixes}, for {rows}, {changed:,} of them had another label; {unused:,} of texts that are "
        "not in the data"
    )
    return message.format(
        source=relabelled["source"],
        fixes=fixes.format(number=num_fixes),
        rows=rows_in_words(relabelled["rows"]),
        changed=relabelled["changed"],
        unused=relabelled["unused"],
    )


def _table_lines(table: Table) -> list[str]:
    """Return the line about a table, and one for each of the first skipped rows."""
    skipped = ""
    if table.skipped:
        skipped = _(", {rows:,} skipped").format(rows=table.skipped)
    message = _("{source}: {rows}{skipped} ({columns})")
    rows = rows_in_words(table.num_rows)
    line = message.format(source=table.source, rows=rows, skipped=skipped, columns=table.columns)
    lines = ["  " + line]
    for source, facts in table.share_facts.items():
        lines.append("    " + _shares_line(source, facts, table.rows_of_file(source)))
    for row in islice(table.skipped_rows(), MAX_LISTED):
        message = _("skipped {place}: {problem}")
        lines.append("    " + message.format(place=row.location, problem=row.problem))
    for file, line_breaks in table.line_breaks().items():
        for line in line_break_lines(file, line_breaks):
            lines.append("    " + line)
    return lines


def _shares_line(source: str, facts: ShareFacts, num_rows: int) -> str:
    """Return the line about the distributions of labels in a file."""
    if facts.content == PROBABILITIES:
        message = _("{source}: {rows} with probabilities as the target ({columns})")
    else:
        message = _("{source}: {rows} with the shares of votes as the target ({columns})")
    line = message.format(source=source, rows=rows_in_words(facts.rows), columns=facts.columns)
    num_others = num_rows - facts.rows
    if num_others and facts.label_column:
        message = _(", {rows} with the label ({column})")
        line += message.format(rows=rows_in_words(num_others), column=facts.label_column)
    line += _("; the most probable label counts in splits and figures")
    if facts.label_column and facts.follows_label:
        line += _(". A row with a label is trained on that")
    elif facts.label_column:
        message = _(
            ". {column} is taken for the answer of the model; it counts where it is another label, or "
            "without probabilities"
        )
        line += message.format(column=facts.label_column)
    return line


def _classes_text(statistics: dict[str, Any]) -> str:
    """Return the classes of a split with their rows, or the largest ones, for the end of a line."""
    counts: dict[str, int] = statistics["classes"]
    if not counts:
        return ""
    listed_labels = list(counts)
    if len(counts) > MAX_CLASSES:
        listed_labels = sorted(counts, key=counts.get, reverse=True)[:NUM_LARGEST]
    parts = []
    for label in listed_labels:
        share = counts[label] / statistics["rows"]
        part = _("{label} {rows:,} ({share:.1%})")
        parts.append(part.format(label=shorten(label), rows=counts[label], share=share))
    classes = joined(parts)
    if len(counts) > MAX_CLASSES:
        return _("; {classes:,} classes, the largest {largest}").format(classes=len(counts), largest=classes)
    return _("; {classes}").format(classes=classes)


def _share_lines(split: str, changes: list[ShareChange]) -> list[str]:
    """Return the line about classes whose shares differ from those in train; none where none does."""
    if not changes:
        return []
    named_classes = []
    for change in changes[:MAX_CHANGED]:
        named_class = _("{label} {share:.1%} (train {train_share:.1%})")
        named_class = named_class.format(
            label=shorten(change.label), share=change.share, train_share=change.train_share
        )
        named_classes.append(named_class)
    message = _(
        "note: classes with another share than in train, beyond chance: {classes}; figures on {split} hold "
        "for texts with these shares"
    )
    return ["    " + message.format(classes=joined(named_classes), split=split)]


def _notes(statistics: dict[str, Any]) -> list[str]:
    """Return what may be wrong with the rows of a split."""
    num_repeated = statistics.get("repeated", 0)
    num_conflicting = statistics.get("conflicting", 0)
    num_near_copies = statistics.get("near_copies", 0)
    repeated = ngettext("{count:,} repeated text", "{count:,} repeated texts", num_repeated)
    conflicting = ngettext(
        "{count:,} text with conflicting labels",
        "{count:,} texts with conflicting labels",
        num_conflicting,
    )
    near_copies = ngettext(
        "{count:,} row is a near copy of another text in train",
        "{count:,} rows are near copies of other texts in train",
        num_near_copies,
    )
    messages = {repeated: num_repeated, conflicting: num_conflicting, near_copies: num_near_copies}
    notes = [message.format(count=count) for message, count in messages.items() if count]
    if num_conflicting >= MANY_CONFLICTS * statistics["rows"]:
        notes.append(_("for several labels a text, write one row with all (data.task multi_label)"))
    for other_split, count in statistics["also_in"].items():
        if count:
            message = _("{rows} whose text is also in {split}")
            notes.append(message.format(rows=rows_in_words(count), split=other_split))
    return notes


def line_break_lines(file: str, line_breaks: LineBreaks) -> list[str]:
    """Return the lines about the texts of a file that have several lines."""
    if not line_breaks.num_texts:
        return []
    message = ngettext(
        "{file}: {texts:,} text has line breaks; it has {lines:,} lines, in the row of line {row}",
        "{file}: {texts:,} texts have line breaks; the longest has {lines:,} lines, in the row of line {row}",
        line_breaks.num_texts,
    )
    lines = [
        message.format(
            file=file,
            texts=line_breaks.num_texts,
            lines=line_breaks.most_lines,
            row=line_breaks.longest_row,
        )
    ]
    if line_breaks.num_joined:
        message = ngettext(
            "warning: {file}: {rows:,} row of several lines has as many fields in each line as the file "
            "has columns; stray quotes may have joined rows: line {numbers}; double these quotes, or set "
            "--data.quoting never",
            "warning: {file}: {rows:,} rows of several lines have as many fields in each line as the file "
            "has columns; stray quotes may have joined rows: lines {numbers}; double these quotes, or set "
            "--data.quoting never",
            line_breaks.num_joined,
        )
        numbers = listed(line_breaks.joined_rows, MAX_LISTED)
        lines.append(message.format(file=file, rows=line_breaks.num_joined, numbers=numbers))
    return lines


def are_many_numbers(label_names: list[str]) -> bool:
    """Return whether labels are three or more numbers, which may be scores or have an order. Two numbers,
    such as 0 and 1, mean no and yes."""
    return len(label_names) > 2 and all(number_of(name) is not None for name in label_names)


def doubtful_labels(names: list[str]) -> list[str]:
    """Return the labels that a person cannot tell apart, or hardly: by hidden characters, width of letters
    and digits, case, white space, quotes, a full stop or leading zeros; and those that are a missing value.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_without_details(name), []).append(name)
    doubtful = []
    for text, group in groups.items():
        if len(group) > 1 or text in MISSING_VALUES:
            doubtful += map(excerpt, group)
    return doubtful


def is_missing(label: str) -> bool:
    """Return whether a label is how programs and people write a missing value."""
    return _without_details(label) in MISSING_VALUES


def _without_details(label: str) -> str:
    """Return what a person sees of a label at a quick look."""
    text = unicodedata.normalize("NFKC", label)
    text = "".join(character for character in text if unicodedata.category(character) != "Cf")
    return re.sub("[\\s\ufe0f\"'“”‘’「」]|[.。]$|^0+(?=[0-9]+$)", "", text.casefold())


def length_line(store: TokenStore, rows: np.ndarray) -> str:
    """Return the line about the lengths of rows in tokens, and how many are not read whole."""
    lengths = (store.offsets[rows + 1] - store.offsets[rows]).astype(np.int32)
    lengths_by_percentile = np.percentile(lengths, PERCENTILES, method="inverted_cdf").tolist()
    parts = []
    for percent, length in zip(PERCENTILES, lengths_by_percentile, strict=True):
        name = f"{percent} %"
        if percent == 100:
            name = _("longest")
        parts.append(f"{name} {length}")
    num_cut = int(store.cut[rows].sum())
    message = _(
        "tokens by percentile: {lengths}; {rows} ({share:.1%}) not read whole (data.long {way}, "
        "data.max_length {max_length}); {unknown:.1%} of all tokens are unknown"
    )
    return message.format(
        lengths=joined(parts),
        rows=rows_in_words(num_cut),
        share=num_cut / len(rows),
        way=store.long.way,
        max_length=store.max_length,
        unknown=store.unknown_share,
    )
