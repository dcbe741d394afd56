"""Which columns of a file hold the text, the second text and the label: by settings, names, values, order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, listed, nearest, shorten
from ..words import N_, _
from .file_formats import FORMATS, SUFFIXES
from .files import BadRow, ReadOptions

# In the order in which they are taken
TEXT_NAMES = (
    *("text", "text_a", "sentence", "sentence1", "review", "content", "title", "comment", "query"),
    *("文本", "内容", "评论", "标题", "句子", "正文", "评论内容", "评价内容", "文本内容", "微博内容", "评价"),
    *("微博", "反馈", "留言", "弹幕", "原文", "语句", "新闻标题", "reviews", "comments", "tweet", "message"),
    *("text1", "sentence_a", "question1", "premise", "句子1", "文本1", "问题1", "前提"),
)
# Where two of the others are there, it is not clear which one is meant
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
# In lower case
ZERO_OR_ONE = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
REPLACE_IT = N_("the lines have '{between}' between columns: replace it by tabs, and save the file as .tsv")
# Characters that may be between columns
RUN = re.compile(r"[!-/:-@[-`{-~]{2,}| [^\w\s] |[^\w\s]| ")
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

    The text may be several columns, which are read as one, and the label a column for each label. `width` is
    the number of columns that every row has (None for objects), `described` the columns in words, also those
    that are not used. `assumed` are settings that follow from the values, for other such files.
    """

    text: tuple[int | str, ...]
    pair: tuple[int | str, ...]
    label: tuple[int | str, ...]
    width: int | None
    described: str = ""
    assumed: dict[str, Any] = field(default_factory=dict)

    @property
    def used(self) -> tuple[int | str, ...]:
        """All columns that are in use."""
        return self.text + self.pair + self.label


def is_header(where: str, record: Any, options: ReadOptions, need_label: bool, below: list) -> bool:
    """Return whether the first record of a table is a header; `below` are the records after it. Raises
    InputError where it has a usual name and may yet be a row."""
    chosen = [options.text_column, options.text_pair_column, options.label_column, options.label_columns]
    by_name = any(isinstance(one, str) for setting in chosen for one in _each(setting))
    if isinstance(record, BadRow):
        # Otherwise the next line would be read as the header.
        if options.header or by_name:
            raise InputError(f"{where}: the header cannot be read: {record.problem}")
        return False
    if options.header is not None or by_name:
        return options.header is not False
    cells = [_stripped(value) for value in record]
    lowered = [cell.lower() for cell in cells]
    has_text = not set(TEXT_NAMES).isdisjoint(lowered)
    if not need_label:
        # The header may have only the name of the text column
        return has_text
    if has_text and not ALL_LABEL_NAMES.isdisjoint(lowered):
        return True
    usual = [cell for cell in cells if cell.lower() in {*TEXT_NAMES, *ALL_LABEL_NAMES}]
    rows = [list(map(_stripped, row)) for row in below if isinstance(row, list) and len(row) == len(cells)]
    columns = list(zip(*rows, strict=True)) if len(rows) >= ROWS_BELOW else []
    comes_again = [cell in column for cell, column in zip(cells, columns, strict=False)]
    if any(again and label_like(column) for again, column in zip(comes_again, columns, strict=True)):
        return False
    are_names = [0 < len(cell) <= LONGEST_NAME and not _is_number(cell) for cell in cells]
    are_numbers = [all(map(_is_number, column)) for column in columns]
    # The column of row numbers that pandas writes has no name
    are_names[0] |= not cells[0] and are_numbers[:1] == [True]
    is_above_others = any(are_numbers) or (columns and usual and not any(comes_again))
    if is_above_others and all(are_names) and len(set(cells)) == len(cells):
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
    names, and `rows` the first rows, as far as they are known."""

    def __init__(
        self, where: str, options: ReadOptions, names: list | None, width: int, rows: Sequence[list] = ()
    ) -> None:
        self.where, self.options, self.names, self.width, self.rows = where, options, names, width, rows
        self.lowered = [_stripped(name).lower() for name in names or []]
        self.text: tuple[int, ...] = ()
        self.pair: tuple[int, ...] = ()
        self.label: tuple[int, ...] = ()

    def choose(self, need_label: bool, find_pairs: bool, are_labels: Callable[[Sequence], bool]) -> Columns:
        """Return the columns; with `find_pairs`, rows may be pairs of texts although no setting says so.

        Raises InputError if a chosen column is missing, if a column that is used has the name of another, or
        if it is not clear which column is the text or the label.
        """
        options = self.options
        find_pairs &= options.text_column is None and options.text_pair_column is None
        self.text = self._column(options.text_column, "text", TEXT_NAMES)
        self.pair = self._column(options.text_pair_column, "second text")
        if need_label:
            self.label = self._label_column()
        before = self.text, self.pair, self.label
        known = [two for two in PAIR_NAMES if set(two) <= set(self.lowered)] if find_pairs else []
        if known:
            self.text, self.pair = ((self.lowered.index(name),) for name in known[0])
        if need_label and not (self.text and self.label):
            self._choose_by_values(find_pairs, are_labels)
        if (self.names, self.text, self.pair, self.label) == (None, (0,), (), (1,)):
            # The usual order needs no settings
            before = self.text, self.pair, self.label
        self._choose_by_order(need_label)
        if not self.text or (need_label and not self.label):
            raise self._unclear(need_label)
        columns = Columns(self.text, self.pair, self.label, self.width, self._described(need_label))
        if twice := [column for column in columns.used if columns.used.count(column) > 1]:
            raise InputError(
                f"{self.where}: text, second text and label must be different columns, found column "
                f"{self._shown(twice[0])} chosen twice; set {_settings(need_label)}"
            )
        new = {"label_column": self.label} if self.label != before[2] else {}
        if (self.text, self.pair) != before[:2]:
            new = {"text_column": self.text, "text_pair_column": self.pair, **new}
        names = self.names or range(self.width)
        columns.assumed = {key: names[role[0]] for key, role in new.items() if role}
        return columns

    def _left(self) -> dict[int, list]:
        """Return the values of the columns that are not chosen."""
        left = set(range(self.width)).difference(self.text, self.pair, self.label)
        return {column: [row[column] for row in self.rows] for column in sorted(left)}

    def _choose_by_values(self, find_pairs: bool, are_labels: Callable[[Sequence], bool]) -> None:
        values = self._left()
        texts = [column for column, shown in values.items() if text_like(shown)]
        labels = [column for column, shown in values.items() if are_labels(shown)]
        if not self.label and len(labels) == 1:
            self.label = (labels[0],)
        elif not self.label and len(values) == 2 and len(texts) == 1:
            # In a file in the order of its labels, they are the same for long
            self.label = tuple(column for column in values if column not in texts)
        if not self.text and len(texts) == 1:
            self.text = (texts[0],)
        may_be_pairs = find_pairs and len(texts) == 2 and self.label and not self.text
        if may_be_pairs and are_pairs(*map(values.get, texts)):
            self.text, self.pair = ((column,) for column in texts)

    def _choose_by_order(self, need_label: bool) -> None:
        """Choose the only column that is left; else the text is the first one if columns have an order,
        unless several are texts."""
        if self.text and (self.label or not need_label):
            return
        left = self._left()
        order = list(left)
        # Without a label the first of several columns may be anything: numbers of rows, dates, labels.
        has_order = self.names is None and need_label
        has_order = has_order and (self.width == 2 or sum(map(text_like, left.values())) < 2)
        if not self.text and order and (len(order) == 1 or has_order):
            self.text = (order.pop(0),)
        if need_label and not self.label and len(order) == 1:
            self.label = (order[0],)

    def _shown(self, column: int) -> str:
        return f"'{shorten(str(self.names[column])) if self.names else column}'"

    def _described(self, need_label: bool) -> str:
        """Return the columns in words, also those that are not used, of which one may be the second text."""
        parts = [f"text {', '.join(map(self._shown, self.text))}"]
        if self.options.label_columns and self.label:
            content = "one level" if self.options.label_hierarchy else "0 or 1"
            more = f"{len(self.label) - 1} more, {content} in each"
            parts.append(f"label {self._shown(self.label[0])} and {more}: {self._shown(self.label[-1])}")
        else:
            parts += [f"label {self._shown(column)}" for column in self.label]
        described = ", ".join(parts + [f"second text {self._shown(column)}" for column in self.pair])
        unused = self._left() if need_label else {}
        if not unused:
            return described
        described += f"; not used: {listed(map(self._shown, unused))}"
        if not self.pair and len(self.text) == 1 and len(self.rows) >= MIN_ROWS:
            texts = [row[self.text[0]] for row in self.rows]
            for column, values in unused.items():
                if text_like(values) and are_pairs(texts, values):
                    setting = self._shown(column)[1:-1]
                    return f"{described}; for pairs of texts set --data.text_pair_column {setting}"
        return described

    def _column(self, setting: Any, what: str, usual_names: Sequence[str] = ()) -> tuple[int, ...]:
        """Return the number of a column, or of several, by its setting or else by a usual name."""
        if setting is not None:
            return tuple(self._chosen(column, what) for column in _each(setting))
        usual = next((name for name in usual_names if name in self.lowered), None)
        return () if usual is None else (self._only(usual, self.lowered, what),)

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

    def _label_column(self) -> tuple[int, ...]:
        """Return the label's column; with `data.label_columns`, the column of each label."""
        options = self.options
        setting = options.label_column if options.label_columns is None else options.label_columns
        if label := self._column(setting, "label", LABEL_NAMES):
            return label
        others = [name for name in self.names or [] if _stripped(name).lower() in OTHER_LABEL_NAMES]
        if len(others) > 1:
            raise InputError(
                _(
                    "{where}: cannot tell which column is the label: found {names}; set --data.label_column "
                    "to one of them"
                ).format(where=self.where, names=listed(others))
            )
        return self._column(None, "label", OTHER_LABEL_NAMES)

    def _unclear(self, need_label: bool) -> InputError:
        names, rows, what = self.names, self.rows, "label" if self.text else "text"
        first = rows[0] if rows and not names else []
        found = f"the columns {listed(names)}" if names else f"{self.width} columns without a header"
        found += f", the first values are {listed(first)}" if first else ""
        remedy = _("set {settings} to a name or a number (0 is the first)")
        if need_label and self.width > 2:
            remedy += _("; for pairs of texts also --data.text_pair_column")
        zero_one = [
            str(name)
            for column, name in enumerate(names or [])
            if len(rows) >= MIN_ROWS
            and {_stripped(row[column]).lower() for row in rows} <= ZERO_OR_ONE.keys()
        ]
        if what == "label" and len(zero_one) > 1:
            remedy = _(
                "for a column of 0 and 1 for each label, set --data.task multi_label --data.label_columns "
                "'[{zero_one}]'"
            )
        if self.width == 1:
            found = _("only one column") + (f", {shorten(str(names[0]))}" if names else "")
            remedy = _(
                "add a label to each text; columns are separated by commas in CSV, by tabs in TSV "
                "(--data.format); in an Excel sheet, remove what is above the column names"
            )
            lines = [str(row[0]) for row in rows if len(row) == 1]
            if self.options.format in ("json", "jsonl"):
                remedy = _("add a label to each text")
            elif any("\t" in str(value) for value in names or first):
                remedy = _("there are tabs in it: set --data.format tsv")
            elif between := shown_separator(lines):
                remedy = _(REPLACE_IT).format(between=between)
        remedy = remedy.format(settings=_settings(need_label), zero_one=", ".join(zero_one))
        said = _("{where}: cannot tell which column is the {what}: found {found}; {remedy}")
        return InputError(said.format(where=self.where, what=_(what), found=found, remedy=remedy))


def shown_separator(lines: Sequence[str], longer: bool = False) -> str | None:
    """Return the characters that are as often in each line, and between which labels stand; with `longer`,
    only several that are the same backwards, as |,| or _!_ or ::."""
    runs = {run for line in lines[:MIN_ROWS] for run in RUN.findall(line)}
    for run in sorted(runs, key=lambda run: (not run.isascii(), -len(run), lines[0].count(run), run)):
        if longer and (len(run) < 2 or run != run[::-1] or '"' in run or " " in run):
            continue
        is_even = len({line.count(run) for line in lines}) == 1
        if is_even and any(map(label_like, zip(*(line.split(run) for line in lines), strict=True))):
            return run
    return None


def check_separator(path: Path, lines: Sequence[str], format: str) -> None:
    """Raise InputError where the first lines of a table show a longer separator than that of its `format`, or
    where that is not the one of the file's name, and may be a part of the texts."""
    delimiter, is_named = FORMATS[format].delimiter, SUFFIXES.get(path.suffix.lower()) == format
    between = shown_separator(lines, longer=True)
    may_be = delimiter in (between or "") or not is_named or delimiter not in lines[0]
    if between and may_be and not between.startswith(delimiter):
        raise InputError(f"{path}: {_(REPLACE_IT).format(between=between)}")
    rows = [line.split(delimiter) for line in lines]
    names = {cell.strip(' "').lower() for cell in rows[0]}
    if is_named or len(set(map(len, rows))) != 1 or names & {*TEXT_NAMES, *ALL_LABEL_NAMES}:
        return
    columns = list(zip(*rows[1:], strict=True))
    if not any(2 * len(set(column)) <= len(column) or all(map(_is_number, column)) for column in columns):
        raise InputError(
            f"{path}: cannot tell whether {delimiter!r} is between columns or a part of the texts: no column "
            f"looks like labels; set --data.format {format}, or write tabs between columns"
        )


def _settings(need_label: bool) -> str:
    return "--data.text_column" + (" and --data.label_column" if need_label else "")


def _each(setting: Any) -> list:
    return setting if isinstance(setting, list) else [setting]


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
