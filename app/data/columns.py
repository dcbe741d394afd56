"""Which columns of a file hold the text, the second text and the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import InputError, excerpt, listed, nearest, shorten
from .json_values import RepeatedKeys
from .readers import MultiLabelOptions, ReadOptions

TEXT_NAMES = (
    "text",
    "text_a",
    "sentence",
    "sentence1",
    "review",
    "content",
    "title",
    "comment",
    "query",
    "文本",
    "内容",
    "评论",
    "标题",
    "句子",
)
LABEL_NAMES = (
    "label",
    "labels",
    "label_id",
    "class",
    "category",
    "target",
    "sentiment",
    "emotion",
    "标签",
    "类别",
    "情感",
    "分类",
)

SETTING = {"text": "text_column", "second text": "text_pair_column", "label": "label_column"}


@dataclass
class Columns:
    """The columns of text, second text and label: names in JSON objects, numbers from 0 in everything else.

    The label may be one 0/1 column for each label, a tuple.
    `width` is the number of columns that every row has (None for objects), `described` the columns in words.
    """

    text: int | str
    pair: int | str | None
    label: int | str | tuple | None
    width: int | None
    described: str

    def pick(self, record: list | dict) -> tuple[Any, Any, Any]:
        """Return (text, pair, label); raises LookupError where a column is missing, ValueError where a key is
        repeated."""
        if isinstance(record, RepeatedKeys):
            for key in (self.text, self.pair, *self.labels):
                if key in record.repeated:
                    raise ValueError(
                        f"each key must be in an object once, found {excerpt(key)} again; fix the row"
                    )
        pair = None if self.pair is None else record[self.pair]
        if isinstance(self.label, tuple):
            return record[self.text], pair, [record[column] for column in self.label]
        return record[self.text], pair, None if self.label is None else record[self.label]

    @property
    def labels(self) -> tuple:
        """The columns of labels, none or more."""
        return self.label if isinstance(self.label, tuple) else () if self.label is None else (self.label,)


def _find_column(
    chosen: int | str | None,
    names: list[str] | None,
    usual_names: tuple[str, ...],
    width: int | None,
    what: str,
    where: str,
) -> int | str | None:
    """Return the number of a column, from the setting `chosen` or by a usual name; None if neither gives
    it."""
    if isinstance(chosen, str) and names is not None:
        if chosen not in names:
            raise InputError(
                f"{where}: there is no {what} column '{chosen}'{nearest(chosen, names)} (found: "
                f"{listed(names)})"
            )
        _check_once(where, what, chosen, names, names)
        return names.index(chosen)
    if isinstance(chosen, str):
        raise InputError(
            f"{where}: the {what} column '{chosen}' is chosen by name, but the columns have no names; choose "
            "it by number (0 is the first)"
        )
    if chosen is not None:
        if width is not None and not -width <= chosen < width:
            raise InputError(
                f"{where}: there is no {what} column {chosen}; the rows have {width} columns, numbered from 0"
            )
        return chosen % width if width else chosen
    lowered = [str(name).strip().lower() for name in names or []]
    usual = next((name for name in usual_names if name in lowered), None)
    if usual is None:
        return None
    _check_once(where, what, usual, lowered, names)
    return lowered.index(usual)


def _find_label(
    options: ReadOptions, names: list[str] | None, width: int, where: str
) -> int | str | tuple[int | str, ...] | None:
    """Return the number of the label's column; with `data.label_columns`, of the column of each label."""
    chosen = options.label_columns if isinstance(options, MultiLabelOptions) else None
    if chosen is None:
        return _find_column(options.label_column, names, LABEL_NAMES, width, "label", where)
    return tuple(_find_column(name, names, (), width, "label", where) for name in chosen)


def _check_once(where: str, what: str, name: str, compared: list[str], names: list[str]) -> None:
    """Raise InputError if a column that is used by its name has the name of another one; others may share
    theirs."""
    numbers = [index for index, other in enumerate(compared) if other == name]
    if len(numbers) > 1:
        raise InputError(
            f"{where}: cannot tell which column is the {what}: found {len(numbers)} columns named "
            f"'{shorten(name)}', numbers {listed(numbers)} of {listed(names)}; rename them, or set "
            f"--data.{SETTING[what]} to a number"
        )


def resolve_columns(
    where: str,
    options: ReadOptions,
    names: list[str] | None,
    width: int,
    need_label: bool = True,
    first: list | None = None,
) -> Columns:
    """Return which columns have text, second text and label, from the settings, the column names or their
    order.

    `first` is the first record of a file whose columns have no names. Raises InputError if a chosen column is
    missing, if a column that is used has the name of another, or if it is not clear which column is the text
    or the label.
    """
    text = _find_column(options.text_column, names, TEXT_NAMES, width, "text", where)
    pair = _find_column(options.text_pair_column, names, (), width, "second text", where)
    label = _find_label(options, names, width, where) if need_label else None
    labels = label if isinstance(label, tuple) else (label,)
    remaining = [index for index in range(width) if index not in (text, pair, *labels)]
    # Without a label the first of several columns may be anything: numbers of rows, dates, labels.
    if text is None and remaining and (len(remaining) == 1 or (names is None and need_label)):
        text = remaining.pop(0)
    if need_label and label is None and len(remaining) == 1:
        label = remaining.pop(0)
        labels = (label,)
    settings = "--data.text_column" + (" and --data.label_column" if need_label else "")
    if text is None or (need_label and label is None):
        what = "text" if text is None else "label"
        raise InputError(_unclear_message(where, names, first, width, what, settings))
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
        shown["label"] = (
            f"{shown['label']}' and {len(label) - 1} more, 0 or 1 in each: '{shorten(names[label[-1]])}"
        )
    return Columns(text, pair, label, width, ", ".join(f"{role} '{name}'" for role, name in shown.items()))


def _unclear_message(
    where: str, names: list[str] | None, first: list | None, width: int, what: str, settings: str
) -> str:
    columns = f"the columns {listed(names)}" if names else f"{width} columns without a header"
    if first:
        columns += f", the first values are {listed(first)}"
    remedy = f"set {settings} to a name or a number"
    if width == 1:
        columns = f"only one column{f', {shorten(names[0])}' if names else ''}"
        remedy = (
            "add a label to each text; columns are separated by commas in CSV, by tabs in TSV "
            "(--data.format); in an Excel sheet, remove what is above the column names"
        )
        if any("\t" in str(value) for value in names or first or []):
            remedy = "there are tabs in it: set --data.format tsv"
    return f"{where}: cannot tell which column is the {what}: found {columns}; {remedy}"


def _stripped(value: Any) -> str:
    return str(value).strip()


def has_header(record: list, options: ReadOptions) -> bool:
    """Return whether the first record of a CSV, TSV or Excel file is a header."""
    if options.header is not None:
        return options.header
    if any(isinstance(c, str) for c in (options.text_column, options.text_pair_column, options.label_column)):
        return True
    if isinstance(options, MultiLabelOptions) and options.label_columns:
        return True
    lowered = {_stripped(value).lower() for value in record}
    return bool(lowered & set(TEXT_NAMES)) and bool(lowered & set(LABEL_NAMES))


def check_first_line(where: str, options: ReadOptions, record: list) -> None:
    """Raise InputError for a first line that is not read as a header but has a usual column name."""
    usual_names = {*TEXT_NAMES, *LABEL_NAMES}
    name = next((name for name in map(_stripped, record) if name.lower() in usual_names), None)
    if options.header is None and name is not None:
        raise InputError(
            f"{where}: cannot tell whether this is a header: found '{name}', a usual column name, next to "
            "other values; set --data.header true or false"
        )


def columns_of_first(where: str, options: ReadOptions, record: Any, need_label: bool) -> Columns | None:
    """Return the columns from the first record of a file without a header; None for a record that has no
    columns."""
    if isinstance(record, dict):
        names = list(record)
        columns = resolve_columns(where, options, names, len(names), need_label)
        by_name = [None if index is None else names[index] for index in (columns.text, columns.pair)]
        label = columns.label
        by_name.append(
            tuple(names[index] for index in label)
            if isinstance(label, tuple)
            else None
            if label is None
            else names[label]
        )
        return Columns(*by_name, width=None, described=columns.described)
    if isinstance(record, list):
        return resolve_columns(where, options, None, len(record), need_label, first=record)
    # JSON Lines of plain strings, for prediction
    if isinstance(record, str) and not need_label:
        return Columns(0, None, None, 1, "text '0'")
    return None
