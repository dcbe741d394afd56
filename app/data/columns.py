"""Which columns of a file hold the text, the second text and the label: by settings, names, values, order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, listed, nearest, shorten
from ..words import N_, _
from .read import BadRow, ReadOptions

# The names of the first and the second text of a pair
PAIR_NAMES = {"text_a": "text_b", "sentence1": "sentence2", "sentence_a": "sentence_b", "text1": "text2"}
PAIR_NAMES |= {"question1": "question2", "premise": "hypothesis", "前提": "假设", "句子1": "句子2"}
PAIR_NAMES |= {"文本1": "文本2", "问题1": "问题2"}
# The first of these names that a file has is its text
TEXT_NAMES = (
    *("text", "text_a", "sentence", "sentence1", "review", "content", "title", "comment", "query"),
    *("文本", "内容", "评论", "标题", "句子", "正文", "评论内容", "评价内容", "文本内容", "微博内容", "评价"),
    *("微博", "反馈", "留言", "弹幕", "原文", "语句", "新闻标题", "reviews", "comments", "tweet", "message"),
    *PAIR_NAMES,
)
# The first of LABEL_NAMES that a file has is its label, or else the only one of OTHER_LABEL_NAMES: where two
# of these are there, it is not clear which one is meant
LABEL_NAMES = ("label", "labels", "label_id", "class", "category", "target", "sentiment", "emotion")
LABEL_NAMES += ("标签", "类别", "情感", "分类")
OTHER_LABEL_NAMES = (
    *("rating", "stars", "star", "score", "polarity", "intent", "topic", "label_name", "tag", "tags"),
    *("评分", "星级", "情绪", "极性", "情感倾向", "情感极性", "情感分类", "情感类别", "情感标签", "倾向"),
    *("意图", "主题", "类型", "打分", "分数", "等级", "标记"),
)
SETTING = {N_("text"): "text_column", N_("second text"): "text_pair_column", N_("label"): "label_column"}
LONGEST_NAME, LONGEST_LABEL = 20, 40  # characters
ROWS_BELOW, MIN_ROWS = 5, 10  # rows that show what a first row is, and what a column is
DIFFERENT = 0.6  # share of different values in a column of texts
# Texts are pairs where two of a row have so much more in common than two of different rows, from 0 to 1.
# Question pairs (AFQMC) have 0.5, STS-B 0.4 to 0.8, names with reviews 0.0, two reviews without relation up
# to 0.06.
ALIKE = 0.15
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?%?")
# Words are a character of a language without spaces, or two words with a space between them
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
    InputError for a header that cannot be read, and for a record that may be a header or a row."""
    chosen = [options.text_column, options.text_pair_column, options.label_column, options.label_columns]
    is_set = options.header or any(isinstance(one, str) for setting in chosen for one in _each(setting))
    if isinstance(record, BadRow) and is_set:
        # Otherwise the next line would be read as the header
        raise InputError(f"{where}: the header cannot be read: {record.problem}")
    if is_set or options.header is False or isinstance(record, BadRow):
        return is_set and options.header is not False
    cells = [str(value).strip() for value in record]
    has_text = any(cell.lower() in TEXT_NAMES for cell in cells)
    has_label = any(cell.lower() in (*LABEL_NAMES, *OTHER_LABEL_NAMES) for cell in cells)
    if not need_label or (has_text and has_label):
        # Without labels, the header may have only the name of the text column
        return has_text
    rows = [row for row in below if isinstance(row, list) and len(row) == len(cells)]
    columns = [[str(value).strip() for value in column] for column in zip(*rows, strict=True)]
    columns = columns if len(rows) >= ROWS_BELOW else []
    again = [cell in column for cell, column in zip(cells, columns, strict=False)]
    if any(one and label_like(column) for one, column in zip(again, columns, strict=True)):
        return False
    are_names = all(len(cell) <= LONGEST_NAME and not NUMBER.fullmatch(cell) for cell in cells)
    has_numbers = any(all(map(NUMBER.fullmatch, column)) for column in columns)
    is_usual = has_text or has_label
    if are_names and (has_numbers or (columns and is_usual and not any(again))):
        return True
    if is_usual or (are_names and any(map(label_like, columns))):
        said = _("{where}: cannot tell whether this is a header: {cells}; set --data.header true or false")
        raise InputError(said.format(where=where, cells=listed(cells)))
    return False


def choose_columns(
    where: str, options: ReadOptions, names: list | None, rows: list, are_labels: Any, find_pairs: bool
) -> Columns:
    """Return the columns of a file, by their numbers. `names` are those of its columns, None without, `rows`
    the first rows as far as they are known. `are_labels` says whether values of a column are labels; None: no
    labels are needed. With `find_pairs`, rows may be pairs although no setting says so. Raises InputError if
    a column is missing, or it is not clear which one it is."""
    width = len(rows[0] if names is None else names)
    lowered = [str(name).strip().lower() for name in names or []]

    def column(setting: Any, what: str, usual_names: Sequence[str] = ()) -> tuple[int, ...]:
        if setting is not None:
            return tuple(_number_of(where, one, names, width, what) for one in _each(setting))
        usual = [name for name in usual_names if name in lowered][:1]
        return tuple(_number_of(where, one, lowered, width, what) for one in usual)

    text = column(options.text_column, "text", TEXT_NAMES)
    pair = column(options.text_pair_column, "second text")
    others = [name for name in OTHER_LABEL_NAMES if name in lowered]
    usual = [*LABEL_NAMES, *(others if len(others) == 1 else ())]
    label = column(options.label_columns or options.label_column, "label", usual) if are_labels else ()
    found = Columns(text, pair, label, width)
    find_pairs &= options.text_column is None and options.text_pair_column is None
    if known := [two for two in PAIR_NAMES.items() if find_pairs and set(two) <= set(lowered)]:
        found.text, found.pair = ((lowered.index(name),) for name in known[0])
    if are_labels and not (found.text and found.label):
        _choose_by_values(found, rows, find_pairs, are_labels)
    # The order decides last; without a label the first of several columns may be anything, say a row id
    unused = [at for at in range(width) if at not in found.used]
    if not found.text and (len(unused) == 1 or (names is None and are_labels and width == 2)):
        found.text = (unused.pop(0),)
    if are_labels and not found.label and len(unused) == 1:
        found.label = (unused.pop(),)
    if not found.text or (are_labels and not found.label):
        raise _unclear(where, "label" if found.text else "text", names or rows[0], bool(are_labels))
    if len(set(found.used)) < len(found.used):
        settings = "set --data.text_column and --data.label_column"
        raise InputError(f"{where}: text and label must be different columns; {settings}")
    if names is not None or (found.text, found.pair, found.label) != ((0,), (), (1,)):
        # The usual order needs no settings
        new = {"label_column": found.label} if found.label != label else {}
        if (found.text, found.pair) != (text, pair):
            new = {"text_column": found.text, "text_pair_column": found.pair, **new}
        found.assumed = {key: (names or range(width))[role[0]] for key, role in new.items() if role}
    found.described = _described(found, names, unused if are_labels else [])
    return found


def _described(found: Columns, names: list | None, unused: list[int]) -> str:
    def shown(numbers: Sequence[int]) -> str:
        return shorten(", ".join(f"'{shorten(str(names[at])) if names else at}'" for at in numbers), 200)

    parts = [("text", found.text), ("label", found.label), ("second text", found.pair)]
    described = ", ".join(f"{what} {shown(numbers)}" for what, numbers in parts if numbers)
    return described + (f"; not used: {shown(unused)}" if unused else "")


def _choose_by_values(found: Columns, rows: list, find_pairs: bool, are_labels: Any) -> None:
    values = {at: [row[at] for row in rows] for at in range(found.width) if at not in found.used}
    texts = [at for at, shown in values.items() if text_like(shown)]
    labels = [at for at, shown in values.items() if are_labels(shown)]
    if not found.label and len(labels) == 1:
        found.label = (labels[0],)
    elif not found.label and len(values) == 2 and len(texts) == 1:
        # A file sorted by label has the same label in all of its first rows
        found.label = tuple(at for at in values if at not in texts)
    if not found.text and len(texts) == 1:
        found.text = (texts[0],)
    may_be_pairs = find_pairs and not found.text and found.label and len(texts) == 2
    if may_be_pairs and are_pairs(*map(values.get, texts)):
        found.text, found.pair = ((at,) for at in texts)


def _number_of(where: str, setting: int | str, names: list | None, width: int, what: str) -> int:
    if isinstance(setting, int):
        if -width <= setting < width:
            return setting % width
        said = _("{where}: there is no {what} column {number}; there are {width} columns, numbered from 0")
        raise InputError(said.format(where=where, what=_(what), number=setting, width=width))
    found = [number for number, name in enumerate(names or []) if name == setting]
    if len(found) > 1:
        raise InputError(
            f"{where}: cannot tell which column is the {what}: found '{shorten(setting)}' as the name of "
            f"columns {listed(found)}; rename them, or set --data.{SETTING[what]} to a number"
        )
    if not found:
        shown = listed(names) if names else "no names; choose it by number, 0 is the first"
        said = _("{where}: there is no {what} column '{name}'{near} (found: {names})")
        values = {"what": _(what), "name": shorten(setting), "near": nearest(setting, names or [])}
        raise InputError(said.format(where=where, names=shown, **values))
    return found[0]


def _unclear(where: str, what: str, first: list, need_label: bool) -> InputError:
    said = _(
        "{where}: cannot tell which column is the {what}: found only one column, {found}; add a label to "
        "each text, behind a tab in TSV, a comma in CSV (--data.format); remove what is above a header"
    )
    if len(first) > 1:
        said = _(
            "{where}: cannot tell which column is the {what}: found the columns {found}; set {settings} to "
            "a name or a number (0 is the first)"
        )
        more = _(
            "; for pairs of texts also --data.text_pair_column, for a column of 0 and 1 for each label "
            "--data.task multi_label and --data.label_columns"
        )
        said += more if need_label else ""
    settings = "--data.text_column" + (" and --data.label_column" if need_label else "")
    return InputError(said.format(where=where, what=_(what), found=listed(first), settings=settings))


def _each(setting: Any) -> list:
    return setting if isinstance(setting, list) else [setting]


def label_like(values: Sequence) -> bool:
    """Return whether the values of a column, two or more different ones, come again and again."""
    different = {str(value).strip() for value in values}
    is_short = all(len(value) <= LONGEST_LABEL for value in different)
    return is_short and len(values) >= MIN_ROWS and 2 <= len(different) <= len(values) / 2


def text_like(values: Sequence) -> bool:
    shown = [value.strip() for value in values if isinstance(value, str)]
    words = sum(WORDS.search(value) is not None for value in shown)
    are_different = len(set(shown)) >= DIFFERENT * len(shown) and not label_like(shown)
    return len(shown) >= MIN_ROWS and are_different and words >= DIFFERENT * len(values)


def are_pairs(first: Sequence[str], second: Sequence[str]) -> bool:
    # Two texts of one row share more characters than texts of different rows
    def shared(pairs: Any) -> float:
        sets = [(set(str(one)), set(str(other))) for one, other in pairs]
        return sum(len(a & b) / max(1, min(len(a), len(b))) for a, b in sets) / len(sets)

    shift = len(first) // 2
    across = shared(zip(first, [*second[shift:], *second[:shift]], strict=True))
    return shared(zip(first, second, strict=True)) - across >= ALIKE * (1 - across)
