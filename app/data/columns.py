"""Which columns of a file hold the text, the second text and the label: by settings, names, values, order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, listed, nearest, shorten
from ..words import N_, _
from .read import ReadOptions

# In the order in which they are taken
TEXT_NAMES = (
    *("text", "text_a", "sentence", "sentence1", "review", "content", "title", "comment", "query"),
    *("文本", "内容", "评论", "标题", "句子", "正文", "评论内容", "评价内容", "文本内容", "微博内容", "评价"),
    *("微博", "反馈", "留言", "弹幕", "原文", "语句", "新闻标题", "reviews", "comments", "tweet", "message"),
    *("text1", "sentence_a", "question1", "premise", "句子1", "文本1", "问题1", "前提"),
)
# Of two of the others it is not clear which one is meant
LABEL_NAMES = ("label", "labels", "label_id", "class", "category", "target", "sentiment", "emotion")
LABEL_NAMES += ("标签", "类别", "情感", "分类")
OTHER_LABEL_NAMES = (
    *("rating", "stars", "star", "score", "polarity", "intent", "topic", "label_name", "tag", "tags"),
    *("评分", "星级", "情绪", "极性", "情感倾向", "情感极性", "情感分类", "情感类别", "情感标签", "倾向"),
    *("意图", "主题", "类型", "打分", "分数", "等级", "标记"),
)
ALL_LABEL_NAMES = frozenset((*LABEL_NAMES, *OTHER_LABEL_NAMES))
# The first and the second text of a pair
PAIR_NAMES = (
    *(("text_a", "text_b"), ("sentence1", "sentence2"), ("sentence_a", "sentence_b"), ("text1", "text2")),
    *(("question1", "question2"), ("premise", "hypothesis"), ("前提", "假设"), ("句子1", "句子2")),
    *(("文本1", "文本2"), ("问题1", "问题2")),
)
SETTING = {
    N_("text"): "text_column",
    N_("second text"): "text_pair_column",
    N_("label"): "label_column",
}
MAX_COLUMNS = 16_384  # of a row without names, as in Excel; a long line of separators must not take minutes
LONGEST_NAME = 20  # characters of a name of a column
LONGEST_LABEL = 40  # characters
ROWS_BELOW = 5  # rows that show what a first row is
MIN_ROWS = 10  # rows whose values show what a column is
DIFFERENT = 0.6  # share of different values in a column of texts
# How much more two texts of a row have in common than two of different rows, from 0 to 1. Question pairs
# (AFQMC) have 0.5, STS-B 0.4 to 0.8, names with reviews 0.0, two reviews without relation up to 0.06.
ALIKE = 0.15
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?%?")
# A character of a language without spaces, or two words
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]|[^\W\d]\s+[^\W\d]")


@dataclass
class Columns:
    """The columns of text, second text and label: names in JSON objects, numbers from 0 in everything else.

    The text may be several columns, and the label one column for each label, tuples. `width` is the number of
    columns that every row has (None for objects), `described` the columns in words, also those that are not
    used. `assumed` are settings that follow from the values, for other such files.
    """

    text: int | str | tuple
    pair: int | str | None
    label: int | str | tuple | None
    width: int | None
    described: str = ""
    assumed: dict[str, Any] = field(default_factory=dict)

    @property
    def used(self) -> list:
        """All columns that are in use."""
        return [column for role in (self.text, self.pair, self.label) for column in _each(role)]


def _each(role: Any) -> tuple:
    return role if isinstance(role, tuple) else () if role is None else (role,)


def names_columns(options: ReadOptions) -> bool:
    """Return whether the settings choose a column by its name."""
    chosen = (options.text_column, options.text_pair_column, options.label_column)
    flat = [name for column in chosen for name in (column if isinstance(column, list) else [column])]
    return any(isinstance(name, str) for name in flat) or bool(options.label_columns)


def is_header(where: str, record: list, options: ReadOptions, need_label: bool, below: list) -> bool:
    """Return whether the first record of a table is a header; `below` are the records after it. Raises
    InputError where it has a usual name and may yet be a row."""
    if options.header is not None or names_columns(options):
        return options.header is not False
    cells = [_stripped(value) for value in record]
    lowered = {cell.lower() for cell in cells}
    if not need_label:
        # The header may have only the name of the text column
        return bool(lowered & set(TEXT_NAMES))
    if lowered & set(TEXT_NAMES) and lowered & ALL_LABEL_NAMES:
        return True
    usual = [cell for cell in cells if cell.lower() in {*TEXT_NAMES, *ALL_LABEL_NAMES}]
    rows = [[_stripped(value) for value in row] for row in below if len(row) == len(cells)]
    columns = list(zip(*rows, strict=True)) if len(rows) >= ROWS_BELOW else []
    if any(cell in column and label_like(column) for cell, column in zip(cells, columns, strict=False)):
        return False
    are_names = [0 < len(cell) <= LONGEST_NAME and not _is_number(cell) for cell in cells]
    # The column of row numbers that pandas writes has no name
    are_names[0] |= bool(columns) and not cells[0] and all(map(_is_number, columns[0]))
    if columns and all(are_names) and len(set(cells)) == len(cells):
        above_numbers = any(all(map(_is_number, column)) for column in columns)
        if above_numbers or (
            usual and not any(cell in column for cell, column in zip(cells, columns, strict=True))
        ):
            return True
    if usual:
        raise InputError(
            _(
                "{where}: cannot tell whether this is a header: found '{name}', a usual column name, in "
                "{cells}; set --data.header true or false"
            ).format(where=where, name=usual[0], cells=listed(cells))
        )
    return False


class Chooser:
    """Chooses the columns of a file, by their numbers. `names` are those of the `width` columns, None without
    names, and `rows` the first rows, as far as they are known. With `find_pairs`, rows may be pairs of texts
    although no setting says so."""

    def __init__(
        self,
        where: str,
        options: ReadOptions,
        names: list | None,
        width: int,
        need_label: bool,
        rows: Sequence[list] = (),
        find_pairs: bool = False,
    ) -> None:
        self.where, self.options, self.names, self.width = where, options, names, width
        self.need_label, self.rows, self.find_pairs = need_label, rows, find_pairs
        self.text: int | tuple | None = None
        self.pair: int | None = None
        self.label: int | tuple | None = None

    def choose(self, are_labels: Callable[[Sequence], bool]) -> Columns:
        """Return the columns. Raises InputError if a chosen column is missing, if a column that is used has
        the name of another, or if it is not clear which column is the text or the label."""
        options, names = self.options, self.names
        if isinstance(options.text_column, list):
            self.text = tuple(self._chosen(column, "text") for column in options.text_column)
        else:
            self.text = self._column(options.text_column, TEXT_NAMES, "text")
        self.pair = self._column(options.text_pair_column, (), "second text")
        self.label = self._label_column() if self.need_label else None
        before = self.text, self.pair, self.label
        if self.find_pairs and (options.text_column, options.text_pair_column) == (None, None):
            lowered = [_stripped(name).lower() for name in names or []]
            known = next((two for two in PAIR_NAMES if set(two) <= set(lowered)), None)
            if known:
                self.text, self.pair = map(lowered.index, known)
        if self.need_label:
            self._choose_by_values(are_labels)
        if (names, self.text, self.pair, self.label) == (None, 0, None, 1):
            # The usual order needs no settings
            before = self.text, self.pair, self.label
        self._choose_by_order()
        settings = "--data.text_column" + (" and --data.label_column" if self.need_label else "")
        if self.text is None or (self.need_label and self.label is None):
            what = "text" if self.text is None else "label"
            raise InputError(_unclear_message(self.where, names, self.rows, self.width, what, settings))
        columns = Columns(self.text, self.pair, self.label, self.width)
        if twice := [column for column in columns.used if columns.used.count(column) > 1]:
            raise InputError(
                f"{self.where}: text, second text and label must be different columns, found column "
                f"{self._shown(twice[0])} chosen twice; set {settings}"
            )
        new = {"text_column": self.text, "text_pair_column": self.pair}
        new = new if (self.text, self.pair) != before[:2] else {}
        new |= {"label_column": self.label} if self.label not in (before[2], None) else {}
        columns.assumed = {key: names[at] if names else at for key, at in new.items() if at is not None}
        columns.described = self._described()
        return columns

    def _left(self) -> dict[int, list]:
        """Return the values of the columns that are not chosen."""
        used = {column for role in (self.text, self.pair, self.label) for column in _each(role)}
        return {
            column: [row[column] for row in self.rows] for column in range(self.width) if column not in used
        }

    def _choose_by_values(self, are_labels: Callable[[Sequence], bool]) -> None:
        if self.text is not None and self.label is not None:
            return
        values = self._left()
        texts = [column for column, shown in values.items() if text_like(shown)]
        labels = [column for column, shown in values.items() if are_labels(shown)]
        if self.label is None and len(labels) == 1:
            self.label = labels[0]
        elif self.label is None and len(values) == 2 and len(texts) == 1:
            # In a file in the order of its labels, they are the same for long
            self.label = next(column for column in values if column not in texts)
        if self.text is None and len(texts) == 1:
            self.text = texts[0]
        may_be_pairs = self.find_pairs and len(texts) == 2 and self.label is not None
        if may_be_pairs and self.text is self.pair is None and are_pairs(*map(values.get, texts)):
            self.text, self.pair = texts

    def _choose_by_order(self) -> None:
        """Choose the only column that is left; else the text is the first one if columns have an order,
        unless several are texts."""
        left = self._left() if self.text is None or (self.need_label and self.label is None) else {}
        order = list(left)
        # Without a label the first of several columns may be anything: numbers of rows, dates, labels.
        has_order = self.names is None and self.need_label
        has_order = has_order and (self.width == 2 or sum(map(text_like, left.values())) < 2)
        if self.text is None and order and (len(order) == 1 or has_order):
            self.text = order.pop(0)
        if self.need_label and self.label is None and len(order) == 1:
            self.label = order[0]

    def _shown(self, column: int) -> str:
        return f"'{shorten(str(self.names[column])) if self.names else column}'"

    def _described(self) -> str:
        """Return the columns in words, also those that are not used, of which one may be the second text."""
        parts = [f"text {', '.join(map(self._shown, _each(self.text)))}"]
        if isinstance(self.label, tuple):
            content = "one level" if self.options.label_hierarchy else "0 or 1"
            more = f"{len(self.label) - 1} more, {content} in each"
            parts.append(f"label {self._shown(self.label[0])} and {more}: {self._shown(self.label[-1])}")
        elif self.label is not None:
            parts.append(f"label {self._shown(self.label)}")
        parts += [f"second text {self._shown(self.pair)}"] if self.pair is not None else []
        described = ", ".join(parts)
        unused = self._left() if self.need_label else {}
        if unused:
            described += f"; not used: {listed(map(self._shown, unused))}"
        if self.pair is None and isinstance(self.text, int) and len(self.rows) >= MIN_ROWS:
            texts = [row[self.text] for row in self.rows]
            for column, values in unused.items():
                if text_like(values) and are_pairs(texts, values):
                    setting = self._shown(column)[1:-1]
                    return f"{described}; for pairs of texts set --data.text_pair_column {setting}"
        return described

    def _column(self, setting: int | str | None, usual_names: Sequence[str], what: str) -> int | None:
        """Return the number of a column, by its setting or by a usual name, or None."""
        if setting is not None:
            return self._chosen(setting, what)
        lowered = [_stripped(name).lower() for name in self.names or []]
        usual = next((name for name in usual_names if name in lowered), None)
        return None if usual is None else self._only(usual, lowered, what)

    def _chosen(self, setting: int | str, what: str) -> int:
        where, names = self.where, self.names
        if isinstance(setting, int):
            if not -self.width <= setting < self.width:
                raise InputError(
                    _(
                        "{where}: there is no {what} column {number}; the rows have {width} columns, "
                        "numbered from 0"
                    ).format(where=where, what=_(what), number=setting, width=self.width)
                )
            return setting % self.width
        if names is None:
            raise InputError(
                f"{where}: the {what} column '{setting}' is chosen by name, but the columns have no names; "
                "choose it by number (0 is the first)"
            )
        if setting not in names:
            near = nearest(setting, names)
            raise InputError(
                _("{where}: there is no {what} column '{name}'{near} (found: {names})").format(
                    where=where, what=_(what), name=setting, near=near, names=listed(names)
                )
            )
        return self._only(setting, names, what)

    def _only(self, name: str, compared: list, what: str) -> int:
        """Return the number of the column with a name that no other one may have."""
        numbers = [number for number, other in enumerate(compared) if other == name]
        if len(numbers) > 1:
            raise InputError(
                f"{self.where}: cannot tell which column is the {what}: found {len(numbers)} columns named "
                f"'{shorten(name)}', numbers {listed(numbers)} of {listed(self.names)}; rename them, or set "
                f"--data.{SETTING[what]} to a number"
            )
        return numbers[0]

    def _label_column(self) -> int | tuple[int, ...] | None:
        """Return the number of the label's column; with `data.label_columns`, of the column of each label."""
        if self.options.label_columns is not None:
            return tuple(self._chosen(name, "label") for name in self.options.label_columns)
        usual = self._column(self.options.label_column, LABEL_NAMES, "label")
        if usual is not None:
            return usual
        others = [name for name in self.names or [] if _stripped(name).lower() in OTHER_LABEL_NAMES]
        if len(others) > 1:
            raise InputError(
                _(
                    "{where}: cannot tell which column is the label: found {names}; set --data.label_column "
                    "to one of them"
                ).format(where=self.where, names=listed(others))
            )
        return self._column(None, OTHER_LABEL_NAMES, "label")


def _unclear_message(
    where: str, names: list | None, rows: Sequence[list], width: int, what: str, settings: str
) -> str:
    columns = f"the columns {listed(names)}" if names else f"{width} columns without a header"
    first = rows[0] if rows and not names else []
    if first:
        columns += f", the first values are {listed(first)}"
    zero_one = [
        str(name)
        for column, name in enumerate(names or [])
        if len(rows) >= MIN_ROWS and {_stripped(row[column]) for row in rows} <= {"0", "1"}
    ]
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
        columns = f", {shorten(str(names[0]))}" if names else ""
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
    values = {"columns": columns, "settings": settings, "zero_one": ", ".join(zero_one)}
    return said.format(where=where, what=_(what), **values)


def _stripped(value: Any) -> str:
    return str(value).strip()


def _is_number(value: str) -> bool:
    return NUMBER.fullmatch(value) is not None


def label_like(values: Sequence) -> bool:
    """Return whether the values of a column, two or more different ones, come again and again."""
    shown = list(map(_stripped, values))
    different = set(shown)
    is_short = all(len(value) <= LONGEST_LABEL for value in different)
    return is_short and len(shown) >= MIN_ROWS and 2 <= len(different) <= len(shown) / 2


def text_like(values: Sequence) -> bool:
    """Return whether most values of a column are different, and are words."""
    shown = [value.strip() for value in values if isinstance(value, str)]
    if len(shown) < MIN_ROWS or label_like(shown):
        return False
    words = sum(WORDS.search(value) is not None for value in shown)
    return len(set(shown)) >= DIFFERENT * len(shown) and words >= DIFFERENT * len(values)


def are_pairs(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether the texts of two columns are pairs: in a row they share more characters than across."""

    def shared(pairs: Any) -> float:
        sets = [(set(str(one)), set(str(other))) for one, other in pairs]
        return sum(len(a & b) / max(1, min(len(a), len(b))) for a, b in sets) / len(sets)

    shift = len(first) // 2
    across = shared(zip(first, [*second[shift:], *second[:shift]], strict=True))
    return shared(zip(first, second, strict=True)) - across >= ALIKE * (1 - across)
