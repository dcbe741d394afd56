"""Which columns of a file hold the text, the second text and the label: by settings, names, values, order.
And what a cell of them says: a clean text, or the text of one label."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from typing import Any

from ..errors import InputError, excerpt, listed, nearest, shorten
from ..words import N_, _
from .files import wrong_character
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
# Unicode categories: control and format characters, separators
INVISIBLE = {"Cc", "Cf", "Zs", "Zl", "Zp"}


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
    where: str,
    options: ReadOptions,
    record: Any,
    names: list | None,
    rows: list,
    are_labels: Any,
    find_pairs: bool,
) -> Columns:
    """Return the columns of records like this one. `names` are those of its columns, None without; an object
    has its own. `rows` are the first rows as far as they are known. `are_labels` says whether values of a
    column are labels; None: no labels are needed. With `find_pairs`, rows may be pairs although no setting
    says so. Raises InputError if a column is missing, or it is not clear which one it is."""
    if isinstance(record, dict):
        names = list(record)
        rows = [list(map(row.get, names)) for row in rows if isinstance(row, dict)]
    width, lowered = len(record), [str(name).strip().lower() for name in names or []]
    rows = [row for row in rows if isinstance(row, list) and len(row) == width]
    others = [name for name in OTHER_LABEL_NAMES if name in lowered]
    usual = (*LABEL_NAMES, *(others if len(others) == 1 else ()))
    text = _role(where, "text", options.text_column, names, width, TEXT_NAMES)
    pair = _role(where, "second text", options.text_pair_column, names, width)
    label = options.label_columns or options.label_column
    label = _role(where, "label", label, names, width, usual) if are_labels else ()
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
        raise _unclear(where, "label" if found.text else "text", names or record, bool(are_labels))
    if len(set(found.used)) < len(found.used):
        settings = "set --data.text_column and --data.label_column"
        raise InputError(f"{where}: text and label must be different columns; {settings}")
    keys = names or range(width)
    if names is not None or (found.text, found.pair, found.label) != ((0,), (), (1,)):
        # The usual order needs no settings
        new = {"label_column": found.label} if found.label != label else {}
        if (found.text, found.pair) != (text, pair):
            new = {"text_column": found.text, "text_pair_column": found.pair, **new}
        found.assumed = {key: keys[role[0]] for key, role in new.items() if role}
    roles = {"text": found.text, "label": found.label, "second text": found.pair}
    described = [f"{what} {_shown(keys, numbers)}" for what, numbers in roles.items() if numbers]
    not_used = f"; not used: {_shown(keys, unused)}" if are_labels and unused else ""
    found.described = ", ".join(described) + not_used
    if isinstance(record, dict):
        by_name = (tuple(names[at] for at in role) for role in (found.text, found.pair, found.label))
        found.text, found.pair, found.label = by_name
        found.width = None
    return found


def _role(
    where: str, what: str, setting: Any, names: list | None, width: int, usual_names: Sequence[str] = ()
) -> tuple[int, ...]:
    """Return the numbers of the columns that a setting names, else the first usual name."""
    numbers, names = [], names or []
    if setting is None:
        names = [str(name).strip().lower() for name in names]
        setting = [name for name in usual_names if name in names][:1]
    for one in _each(setting):
        found = [number for number, name in enumerate(names) if name == one]
        if isinstance(one, int):
            found = [one % width] if -width <= one < width else []
        if len(found) > 1:
            raise _unclear(where, what, names)
        if not found:
            said = _("{where}: there is no {what} column {name}{near} (found: {names})")
            shown = listed(names) or _("{width} columns without names, from 0").format(width=width)
            values = {"what": _(what), "name": excerpt(one), "near": nearest(one, names)}
            raise InputError(said.format(where=where, names=shown, **values))
        numbers += found
    return tuple(numbers)


def _unclear(where: str, what: str, found: list, need_label: bool = False) -> InputError:
    said = _(
        "{where}: cannot tell which column is the {what}: found the columns {found}; set --data.{setting} to "
        "a name or a number (0 is the first), or --data.format to another separator; remove what is above a "
        "header"
    )
    more = _(
        "; for pairs of texts also --data.text_pair_column, for a column of 0 and 1 for each label "
        "--data.task multi_label and --data.label_columns"
    )
    said = said.format(where=where, what=_(what), found=listed(found), setting=SETTING[what])
    return InputError(said + (more if need_label else ""))


def _shown(keys: Sequence, numbers: Sequence[int]) -> str:
    return shorten(", ".join(f"'{shorten(str(keys[at]))}'" for at in numbers), 200)


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


class EmptyText(ValueError):
    """A row without a text."""


def clean_text(value: Any, remove_spaces: bool, what: str) -> str:
    """Return the text without white space around it; raises ValueError with the problem."""
    if not isinstance(value, (str, type(None))):
        said = _("the {what} must be a string, found {value}; fix the row or set --data.{setting}")
        raise ValueError(said.format(what=_(what), value=excerpt(value), setting=SETTING[what]))
    text = ("".join(value.split()) if remove_spaces else value.strip()) if value else ""
    if all(unicodedata.category(character) in INVISIBLE for character in text):
        said = _("the {what} is empty, found {value}; fill it in or remove the row")
        problem = said.format(what=_(what), value=excerpt(value))
        # An empty label is a wrong label
        raise ValueError(problem) if what == "label" else EmptyText(problem)
    if wrong := wrong_character(text, what):
        raise ValueError(wrong)
    return text


def value_of(cell: Any) -> Any:
    """Return the list or object that is written into a cell of a table, as JSON or as Python writes it, else
    the cell. Of an object with nothing but `choices`, as Label Studio writes several, these."""
    value, text = cell, cell.strip() if isinstance(cell, str) else ""
    if text.startswith(("[", "{")):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            # NumPy writes no commas
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                value = ast.literal_eval(re.sub(r"(['\"])\s+(?=['\"])", r"\1, ", text))
    return value["choices"] if isinstance(value, dict) and list(value) == ["choices"] else value


def label_text(value: Any) -> str:
    """Return one label as a string, as JSON and fastText mean it: true, 1.0 as 1, without __label__; raises
    ValueError with the problem."""
    found = value
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, bytes):
        value = value.decode(errors="surrogateescape")
    elif isinstance(value, (date, time)):
        value = str(value).removesuffix(" 00:00:00")
    elif isinstance(value, int) or (isinstance(value, (float, Decimal)) and value % 1 == 0):
        # Integers come as floats from a column with missing values, and as decimals from databases
        value = str(int(value))
    if not isinstance(value, str):
        remedy = "fix the row or set --data.label_column"
        raise ValueError(f"the label must be a string or an integer, found {excerpt(found)}; {remedy}")
    return re.sub(r"^(-?\d{1,18})\.0$", r"\1", clean_text(value, False, "label").removeprefix("__label__"))
