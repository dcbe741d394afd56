"""Which columns of a file hold the text, the second text and the label."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, listed, shorten
from ..words import _
from .column_values import MIN_ROWS, are_pairs, text_like, zero_one_columns
from .headers import PAIR_NAMES, TEXT_NAMES, find_column, find_label
from .readers import ReadOptions


@dataclass
class Columns:
    """The columns of text, second text and label: names in JSON objects, numbers from 0 in everything else.

    The label may be one 0/1 column for each label, a tuple. `width` is the number of columns that every row
    has (None for objects), `described` the columns in words, also those that are not used. `assumed` are
    settings that follow from the values, for other such files.
    """

    text: int | str
    pair: int | str | None
    label: int | str | tuple | None
    width: int | None
    described: str
    assumed: dict[str, int | str] = field(default_factory=dict)

    def pick(self, record: list | dict) -> tuple[Any, Any, Any]:
        """Return (text, pair, label); raises LookupError without a column."""
        pair = None if self.pair is None else record[self.pair]
        if isinstance(self.label, tuple):
            return record[self.text], pair, [record[column] for column in self.label]
        return record[self.text], pair, None if self.label is None else record[self.label]

    @property
    def labels(self) -> tuple:
        """The columns of labels, none or more."""
        return self.label if isinstance(self.label, tuple) else () if self.label is None else (self.label,)


def resolve_columns(
    where: str,
    options: ReadOptions,
    names: list[str] | None,
    width: int,
    need_label: bool = True,
    rows: Sequence[list] = (),
    find_pairs: bool = False,
) -> Columns:
    """Return which columns have text, second text and label: from settings, names, values, or their order.

    `rows` are the first rows, as far as they are known; `find_pairs` is whether they may be pairs of texts
    although no setting says so. Raises InputError if a chosen column is missing, if a column that is used has
    the name of another, or if it is not clear which column is the text or the label.
    """
    text = find_column(options.text_column, names, TEXT_NAMES, width, "text", where)
    pair = find_column(options.text_pair_column, names, (), width, "second text", where)
    label = find_label(options, names, width, where) if need_label else None
    before = text, pair, label
    if find_pairs and (options.text_column, options.text_pair_column) == (None, None):
        text, pair = _named_pair(names) or before[:2]
    # It imports NumPy, which predict --help does without
    from .label_forms import label_form

    form = label_form(options.task)
    text, pair, label = _by_values(text, pair, label, rows, width, need_label, find_pairs, form.are_labels)
    if (names, text, pair, label) == (None, 0, None, 1):
        # The usual order needs no settings
        before = text, pair, label
    text, label = _by_order(text, pair, label, names is None and need_label, rows, width, need_label)
    labels = label if isinstance(label, tuple) else (label,)
    settings = "--data.text_column" + (" and --data.label_column" if need_label else "")
    if text is None or (need_label and label is None):
        what = "text" if text is None else "label"
        raise InputError(_unclear_message(where, names, rows, width, what, settings))
    chosen = [index for index in (text, *labels, pair) if index is not None]
    if len(set(chosen)) != len(chosen):
        same = pair if pair in (text, *labels) else text
        raise InputError(
            f"{where}: text, second text and label must be different columns, found column "
            f"'{shorten(names[same]) if names else same}' chosen twice; set {settings}"
        )
    roles = {"text": text, "label": labels[0], "second text": pair}
    shown = {role: shorten(names[i]) if names else i for role, i in roles.items() if i is not None}
    if isinstance(label, tuple):
        content = "0 or 1" if form.has_several else "one level"
        shown["label"] = (
            f"{shown['label']}' and {len(label) - 1} more, {content} in each: '{shorten(names[label[-1]])}"
        )
    described = ", ".join(f"{role} '{name}'" for role, name in shown.items())
    if need_label:
        described += _unused(names, rows, _others(width, text, pair, label), text if pair is None else None)
    new = {"text_column": text, "text_pair_column": pair} if (text, pair) != before[:2] else {}
    new |= {"label_column": label} if label not in (before[2], None) else {}
    assumed = {key: names[at] if names else at for key, at in new.items() if at is not None}
    return Columns(text, pair, label, width, described, assumed)


def _others(width: int, text: int | None, pair: int | None, label: int | tuple | None) -> list[int]:
    labels = label if isinstance(label, tuple) else (label,)
    return [index for index in range(width) if index not in (text, pair, *labels)]


def _columns_of(rows: Sequence[list], columns: list[int]) -> dict[int, list]:
    return {column: [row[column] for row in rows] for column in columns}


def _named_pair(names: list[str] | None) -> tuple[int, int] | None:
    """Return the columns whose names are those of the two texts of a pair."""
    lowered = [str(name).strip().lower() for name in names or []]
    known = next((two for two in PAIR_NAMES if set(two) <= set(lowered)), None)
    return known and (lowered.index(known[0]), lowered.index(known[1]))


def _by_values(
    text: int | None,
    pair: int | None,
    label: int | tuple | None,
    rows: Sequence[list],
    width: int,
    need_label: bool,
    find_pairs: bool,
    are_labels: Callable[[Sequence], bool],
) -> tuple[int | None, int | None, int | tuple | None]:
    """Return text, second text and label with what the values show: columns of texts, one of labels."""
    if not need_label or (text is not None and label is not None):
        return text, pair, label
    values = _columns_of(rows, _others(width, text, pair, label))
    texts = [column for column, shown in values.items() if text_like(shown)]
    labels = [column for column, shown in values.items() if are_labels(shown)]
    if label is None and len(labels) == 1:
        label = labels[0]
    elif label is None and len(values) == 2 and len(texts) == 1:
        # In a file in the order of its labels, they are the same for long
        label = next(column for column in values if column not in texts)
    if text is None and len(texts) == 1:
        text = texts[0]
    elif (text, pair, len(texts)) == (None, None, 2) and label is not None and find_pairs:
        text, pair = texts if are_pairs(*(values[column] for column in texts)) else (None, None)
    return text, pair, label


def _by_order(
    text: int | None,
    pair: int | None,
    label: int | tuple | None,
    has_order: bool,
    rows: Sequence[list],
    width: int,
    need_label: bool,
) -> tuple[int | None, int | tuple | None]:
    """Return text and label: where only one column is left, that; else the text is the first one that is left
    if columns have an order, unless several are texts."""
    remaining = _others(width, text, pair, label)
    # Without a label the first of several columns may be anything: numbers of rows, dates, labels.
    is_first = has_order and (width == 2 or sum(map(text_like, _columns_of(rows, remaining).values())) < 2)
    if text is None and remaining and (len(remaining) == 1 or is_first):
        text = remaining.pop(0)
    if need_label and label is None and len(remaining) == 1:
        label = remaining.pop(0)
    return text, label


def _unused(names: list[str] | None, rows: Sequence[list], unused: list[int], text: int | None) -> str:
    """Return which columns are not used, and that one may be the second text of `text`."""
    if not unused:
        return ""
    shown = listed(repr(shorten(str(names[column]))) if names else f"'{column}'" for column in unused)
    if text is None or len(rows) < MIN_ROWS:
        return f"; not used: {shown}"
    texts = _columns_of(rows, [text])[text]
    for column, values in _columns_of(rows, unused).items():
        if text_like(values) and are_pairs(texts, values):
            name = names[column] if names else column
            return f"; not used: {shown}; for pairs of texts set --data.text_pair_column {shorten(str(name))}"
    return f"; not used: {shown}"


def _unclear_message(
    where: str, names: list[str] | None, rows: Sequence[list], width: int, what: str, settings: str
) -> str:
    columns = f"the columns {listed(names)}" if names else f"{width} columns without a header"
    first = rows[0] if rows and not names else []
    if first:
        columns += f", the first values are {listed(first)}"
    zero_one = zero_one_columns(rows, range(width)) if names else []
    said = _(
        "{where}: cannot tell which column is the {what}: found {columns}; set {settings} to a name or a "
        "number (0 is the first)"
    )
    if what == "label" and len(zero_one) > 1:
        said = _(
            "{where}: cannot tell which column is the {what}: found {columns}; for a column of 0 and 1 for "
            "each label, set --data.task multi_label --data.label_columns '[{zero_one}]'"
        )
    elif "label" in settings and width > 2:
        said = _(
            "{where}: cannot tell which column is the {what}: found {columns}; set {settings} to a name or a "
            "number (0 is the first); for pairs of texts also --data.text_pair_column"
        )
    if width == 1:
        columns = f", {shorten(names[0])}" if names else ""
        said = _(
            "{where}: cannot tell which column is the {what}: found only one column{columns}; add a label to "
            "each text; columns are separated by commas in CSV, by tabs in TSV (--data.format); in an Excel "
            "sheet, remove what is above the column names"
        )
        if any("\t" in str(value) for value in names or first or []):
            said = _(
                "{where}: cannot tell which column is the {what}: found only one column{columns}; there are "
                "tabs in it: set --data.format tsv"
            )
    return said.format(
        where=where,
        what=_(what),
        columns=columns,
        settings=settings,
        zero_one=", ".join(names[column] for column in zero_one),
    )


def columns_of_first(
    where: str,
    options: ReadOptions,
    record: Any,
    need_label: bool,
    following: Sequence = (),
    find_pairs: bool = False,
) -> Columns | None:
    """Return the columns of a file without a header, from its first records; None without columns."""
    if isinstance(record, dict):
        names = list(record)
        rows = [[row.get(name) for name in names] for row in (record, *following) if isinstance(row, dict)]
        columns = resolve_columns(where, options, names, len(names), need_label, rows, find_pairs)
        by_name, label = {None: None, **dict(enumerate(names))}, columns.label
        label = tuple(by_name[index] for index in label) if isinstance(label, tuple) else by_name[label]
        roles = by_name[columns.text], by_name[columns.pair], label
        return Columns(*roles, None, columns.described, columns.assumed)
    if isinstance(record, list):
        rows = [row for row in (record, *following) if isinstance(row, list) and len(row) == len(record)]
        return resolve_columns(where, options, None, len(record), need_label, rows, find_pairs)
    # JSON Lines of plain strings, for prediction
    if isinstance(record, str) and not need_label:
        return Columns(0, None, None, 1, "text '0'")
    return None
