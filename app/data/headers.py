"""Columns by their names: the usual ones, the chosen ones, and whether a first row has names."""

from typing import Any

from ..errors import InputError, listed, nearest, shorten
from ..words import N_, _
from .column_values import is_number, label_like
from .readers import ReadOptions

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
# Longer cells are no names of columns
LONGEST_NAME = 20
# Rows below that show what a first row is
ENOUGH = 5


def names_columns(options: ReadOptions) -> bool:
    """Return whether the settings choose a column by its name."""
    chosen = (options.text_column, options.text_pair_column, options.label_column)
    by_name = any(isinstance(column, str) for column in chosen)
    return by_name or bool(options.label_columns)


def has_header(
    where: str, record: list, options: ReadOptions, need_label: bool, below: list[list] | None = None
) -> bool:
    """Return whether the first record of a CSV, TSV or Excel file is a header. `below` are the records after
    it. Raises InputError where it has a usual name and may yet be a row."""
    if options.header is not None:
        return options.header
    if names_columns(options):
        return True
    cells = [_stripped(value) for value in record]
    lowered = {cell.lower() for cell in cells}
    if not need_label:
        # The header may have only the name of the text column
        return bool(lowered & set(TEXT_NAMES))
    if lowered & set(TEXT_NAMES) and lowered & ALL_LABEL_NAMES:
        return True
    usual = [cell for cell in cells if cell.lower() in {*TEXT_NAMES, *ALL_LABEL_NAMES}]
    shown = _shown_by(cells, below or [], bool(usual))
    if shown is None and usual:
        raise InputError(
            _(
                "{where}: cannot tell whether this is a header: found '{name}', a usual column name, in "
                "{cells}; set --data.header true or false"
            ).format(where=where, name=usual[0], cells=listed(cells))
        )
    return bool(shown)


def _shown_by(cells: list[str], below: list[list], has_usual_name: bool) -> bool | None:
    """Return whether the rows below show that the first one is a header; None where they do not show it."""
    rows = [[_stripped(value) for value in record] for record in below if len(record) == len(cells)]
    if len(rows) < ENOUGH:
        return None
    columns = list(zip(*rows, strict=True))
    if any(cell in column and label_like(column) for cell, column in zip(cells, columns, strict=True)):
        return False
    is_name = [0 < len(cell) <= LONGEST_NAME and not is_number(cell) for cell in cells]
    # The column of row numbers that pandas writes has no name
    is_name[0] |= not cells[0] and all(map(is_number, columns[0]))
    if not all(is_name) or len(set(cells)) < len(cells):
        return None
    above_numbers = any(all(map(is_number, column)) for column in columns)
    if above_numbers or (
        has_usual_name and not any(cell in col for cell, col in zip(cells, columns, strict=True))
    ):
        return True
    return None


def _stripped(value: Any) -> str:
    return str(value).strip()


def find_column(
    chosen: int | str | None,
    names: list[str] | None,
    usual_names: tuple[str, ...],
    width: int | None,
    what: str,
    where: str,
) -> int | str | None:
    """Return the number of a column, from the setting `chosen` or by a usual name, or None."""
    if isinstance(chosen, str) and names is not None:
        if chosen not in names:
            raise InputError(
                _("{where}: there is no {what} column '{name}'{near} (found: {names})").format(
                    where=where, what=_(what), name=chosen, near=nearest(chosen, names), names=listed(names)
                )
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
                _(
                    "{where}: there is no {what} column {number}; the rows have {width} columns, numbered "
                    "from 0"
                ).format(where=where, what=_(what), number=chosen, width=width)
            )
        return chosen % width if width else chosen
    lowered = [str(name).strip().lower() for name in names or []]
    usual = next((name for name in usual_names if name in lowered), None)
    if usual is None:
        return None
    _check_once(where, what, usual, lowered, names)
    return lowered.index(usual)


def find_label(
    options: ReadOptions, names: list[str] | None, width: int, where: str
) -> int | str | tuple[int | str, ...] | None:
    """Return the number of the label's column; with `data.label_columns`, of the column of each label."""
    if options.label_columns is not None:
        chosen = options.label_columns
        return tuple(find_column(name, names, (), width, "label", where) for name in chosen)
    usual = find_column(options.label_column, names, LABEL_NAMES, width, "label", where)
    if usual is not None:
        return usual
    others = [name for name in names or [] if str(name).strip().lower() in OTHER_LABEL_NAMES]
    if len(others) > 1:
        raise InputError(
            _(
                "{where}: cannot tell which column is the label: found {names}; set --data.label_column to "
                "one of them"
            ).format(where=where, names=listed(others))
        )
    return find_column(None, names, OTHER_LABEL_NAMES, width, "label", where)


def _check_once(where: str, what: str, name: str, compared: list[str], names: list[str]) -> None:
    """Raise InputError if a column that is used has another one's name; others may share theirs."""
    numbers = [index for index, other in enumerate(compared) if other == name]
    if len(numbers) > 1:
        raise InputError(
            f"{where}: cannot tell which column is the {what}: found {len(numbers)} columns named "
            f"'{shorten(name)}', numbers {listed(numbers)} of {listed(names)}; rename them, or set "
            f"--data.{SETTING[what]} to a number"
        )
