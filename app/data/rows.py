"""Records of data files -> validated rows: which columns hold the text, the second text and the label, and
what is wrong with a row. An invalid row becomes a `BadRow`, and the caller decides whether that stops the
run. No row is dropped without a message."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, excerpt, listed, nearest, shorten
from ..words import _
from .bad_row import BadRow, bad_row_message
from .cells import SETTING, EmptyText, clean_text, value_of
from .encodings import Source, Stream, wrong_character
from .labels import ZERO_OR_ONE, label_form
from .read import FORMATS, ReadOptions, read_blocks, recognised

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
LONGEST_NAME, LONGEST_LABEL, MAX_SEARCHED = 20, 40, 1000  # characters
ROWS_BELOW, MIN_ROWS = 5, 10  # rows that show what a first row is, and what a column is
DIFFERENT = 0.6  # share of different values in a column of texts
# Texts are pairs where two of a row have so much more in common than two of different rows, from 0 to 1.
# Pairs of questions (AFQMC) have 0.5, STS-B 0.4 to 0.8, names with reviews 0.0, unrelated reviews 0.06.
ALIKE = 0.15
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?%?")
# Words are a character of a language without spaces, or two words with a space between them
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]|[^\W\d]\s+[^\W\d]")
MAX_COLUMNS = 16_384  # of a row, as in Excel; a long line of separators must not take minutes
FIRST_BLOCKS, FIRST_ROWS = 5, 10_000  # blocks that are read, and rows of them that show what a column is
# It stands between the texts of several columns, and a tokenizer gets its own separator there
BETWEEN_TEXTS = "\u241e"


class Row(NamedTuple):
    """One valid row; `line` is its first line in the file (in JSON its element, in Parquet and Excel its
    row), from 1. `record` is the whole of it, a list of fields or an object, where `rows` keeps it."""

    line: int
    text: str
    pair: str | None
    label: str | None
    record: Any = None


@dataclass
class Columns:
    """The columns of text (several are read as one), second text and label (one, or one for each label):
    names in JSON objects, numbers from 0 in everything else. `width` is the number of columns that every row
    has (None for objects), `described` the columns in words, also those that are not used. `assumed` are
    settings that follow from the values, for other such files."""

    text: tuple[int | str, ...]
    pair: tuple[int | str, ...]
    label: tuple[int | str, ...]
    width: int | None
    described: str = ""
    assumed: dict[str, Any] = field(default_factory=dict)

    @property
    def used(self) -> tuple[int | str, ...]:
        return self.text + self.pair + self.label


@dataclass
class RowReader:
    """Reads the rows of a file. With `find_pairs`, rows may be pairs of texts although no setting says so.
    With `label_names`, rows with other labels are invalid; with `accept_ids`, integers may be ids of labels.
    Known once reading has begun: `options`, as they are recognised; `unit`, what a row's number counts;
    `used`, the columns that are read, and `names` of all columns."""

    path: str | Source
    options: ReadOptions
    need_label: bool = True
    find_pairs: bool = False
    label_names: list[str] | None = None
    accept_ids: bool = True
    used: Columns | None = None
    names: list | None = None

    def rows(self, keep_records: bool = False) -> Iterator[Row | BadRow]:
        """Yield the rows in order: valid ones as `Row`, others as `BadRow`; if `keep_records`, with records.
        Raises InputError if the file cannot be read, has no rows, or lacks a chosen column."""
        for *columns, bad in self.chunks(keep_records):
            for at, row in enumerate(map(Row, *columns)):
                yield bad.get(at, row)

    def chunks(self, keep_records: bool = False) -> Iterator[tuple]:
        """Yield what `rows` does in columns, those of `Row`, and the invalid rows by their positions."""
        limit, count = self.options.limit or sys.maxsize, 0
        for numbers, records in self._blocks(keep_records):
            numbers, records = numbers[: limit - count], records[: limit - count]
            count += len(records)
            if records:
                yield self._checked(numbers, records, keep_records)
            if count == limit:
                return
        if count == 0:
            said = _("{path}: there are no rows in the file")
            if self.names and FORMATS[self.options.format].has_header:
                said = _("{path}: there are no rows in the file, only a header")
            raise InputError(said.format(path=self.path))

    def _blocks(self, keep_records: bool) -> Iterator[tuple[Sequence, Sequence]]:
        """Find the columns, by the first records, and return the blocks of records after a header."""
        path = self.path if isinstance(self.path, Stream) else Path(self.path)
        self.options = options = recognised(path, self.options, self.need_label)
        format, blocks = FORMATS[options.format], read_blocks(path, options)
        self.unit, self.form = format.row_unit, label_form(options.task)
        if format.batches:
            self.names = next((batch.schema.names for batch in format.batches(path)), None)
            first = [((0,), [self.names])] if self.names else []
        else:
            first = list(islice(blocks, 1 if isinstance(path, Stream) else FIRST_BLOCKS))
        if not first:
            return blocks
        number, shown = first[0][0][0], [record for _numbers, records in first for record in records]
        record, below = shown[0], shown[1:FIRST_ROWS]
        where = f"{path}, {self.unit} {number}" if number else str(path)
        is_plain = isinstance(record, str) and not self.need_label
        if not (is_plain or isinstance(record, (list, dict))):
            raise InputError(f"{where}: the first row cannot be read: {self._problem_of_shape(record)}")
        if isinstance(record, list) and len(record) > MAX_COLUMNS:
            found = f"found {len(record):,}; set --data.format if another separator is meant"
            raise InputError(f"{where}: a row may have at most {MAX_COLUMNS:,} columns, {found}")
        try:
            if format.has_header and self._is_header(where, record, below):
                self.names = record
            if is_plain:
                self.used = Columns((0,), (), (), 1, f"{_('text')} '0'")
            else:
                rows = below if self.names else [record, *below]
                self.used = self._choose_columns(where, record, rows)
        except InputError as error:
            # A wrong encoding is reported first
            if wrong := wrong_character(" ".join(map(str, record)), "first row"):
                raise InputError(f"{where}: {wrong}") from error
            raise
        self.used.described += self._described_encoding()
        if format.batches:
            return read_blocks(path, options, None if keep_records else self.used.used)
        if self.names:
            first[0] = first[0][0][1:], first[0][1][1:]
        return chain(first, blocks)

    def _described_encoding(self) -> str:
        """Return the encoding for people, where it is not UTF-8 or not the one that was set."""
        options = self.options
        if options.overruled_encoding:
            said = _("; encoding {encoding}, not {setting} as set")
            return said.format(encoding=options.encoding, setting=options.overruled_encoding)
        if FORMATS[options.format].magic or options.encoding == "utf-8":
            return ""
        return _("; encoding ") + options.encoding

    def _is_header(self, where: str, record: list, below: list) -> bool:
        """Return whether the first record of a table is a header; `below` are the records after it. Raises
        InputError for a record that may be a header or a row."""
        options = self.options
        chosen = [options.text_column, options.text_pair_column, options.label_column, options.label_columns]
        if options.header is not None:
            return options.header
        if any(isinstance(one, str) for setting in chosen for one in _each(setting)):
            return True
        cells = [str(value).strip() for value in record]
        has_text = any(cell.lower() in TEXT_NAMES for cell in cells)
        has_label = any(cell.lower() in (*LABEL_NAMES, *OTHER_LABEL_NAMES) for cell in cells)
        if not self.need_label or (has_text and has_label):
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
        if not is_usual and not (are_names and any(map(label_like, columns))):
            return False
        said = _("{where}: cannot tell whether this is a header: {cells}; set --data.header true or false")
        raise InputError(said.format(where=where, cells=listed(cells)))

    def _choose_columns(self, where: str, record: list | dict, rows: list) -> Columns:
        """Return the columns of records like this one; `rows` are the first rows as far as they are known.
        Raises InputError if a column is missing, or it is not clear which one it is."""
        options, need_label, is_object = self.options, self.need_label, isinstance(record, dict)
        names = [str(name).strip() for name in self.names] if self.names else None
        if is_object:
            names = list(record)
            rows = [list(map(row.get, names)) for row in rows if isinstance(row, dict)]
        width, lowered = len(record), [str(name).strip().lower() for name in names or []]
        rows = [row for row in rows if isinstance(row, list) and len(row) == width]
        others = [name for name in OTHER_LABEL_NAMES if name in lowered]
        usual = (*LABEL_NAMES, *(others if len(others) == 1 else ()))
        text = _role(where, "text", options.text_column, names, width, TEXT_NAMES)
        pair = _role(where, "second text", options.text_pair_column, names, width)
        label = options.label_columns or options.label_column
        label = _role(where, "label", label, names, width, usual) if need_label else ()
        found = Columns(text, pair, label, width)
        find_pairs = self.find_pairs and options.text_column is None and options.text_pair_column is None
        if known := [two for two in PAIR_NAMES.items() if find_pairs and set(two) <= set(lowered)]:
            found.text, found.pair = ((lowered.index(name),) for name in known[0])
        if need_label and not (found.text and found.label):
            _choose_by_values(found, rows, find_pairs, self.form.are_numbers)
        # The order decides last; without a label the first of several columns may be anything, say a row id.
        # A note beside a table of Excel has no title, and stands in a column that the first row does not
        # have.
        unused = [at for at in range(width) if at not in found.used]
        first_row = self.names or record
        candidates = [at for at in unused if is_object or first_row[at] is not None]
        has_two = names is None and need_label and len(candidates) == 2 and not found.used
        if not found.text and (len(candidates) == 1 or has_two):
            found.text = (candidates.pop(0),)
        if need_label and not found.label and len(candidates) == 1:
            found.label = (candidates.pop(),)
        if not found.text or (need_label and not found.label):
            raise _unclear(where, "label" if found.text else "text", names or record, rows)
        unused = [at for at in range(width) if at not in found.used]
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
        found.described = _described_columns(roles, keys)
        if need_label and unused:
            found.described += _described_unused(unused, keys, rows, has_pairs=bool(found.pair))
        if is_object:
            by_name = (tuple(names[at] for at in role) for role in roles.values())
            found.text, found.label, found.pair = by_name
            found.width = None
        return found

    def _checked(self, numbers: tuple, records: tuple, keep_records: bool) -> tuple:
        """Return what `chunks` yields: rules are asked of columns, and of single rows that break one."""
        used, found, problems, none = self.used, records, {}, [None] * len(numbers)
        if used.width == 1 and not used.label:
            # Plain text
            found = [[record] if isinstance(record, str) else record for record in records]
        are_lists = set(map(type, found)) == {list} and not (self.names and self.names in found)
        if not are_lists or set(map(len, found)) != {used.width}:
            problems = {at: self._problem_of_shape(record) for at, record in enumerate(found)}
            problems = {at: problem for at, problem in problems.items() if problem}
            empty = dict.fromkeys(used.used)
            found = [empty if at in problems else record for at, record in enumerate(found)]

        def texts_of(keys: tuple, what: str) -> list:
            columns = [[record[key] for record in found] for key in keys]
            if not columns:
                return none
            if FORMATS[self.options.format].has_number_cells:
                columns = [list(map(number_as_text, column)) for column in columns]
            values = columns[0] if len(keys) == 1 else list(map(join_texts, zip(*columns, strict=True)))
            texts = [value.strip() if type(value) is str else "" for value in values]
            # A text that begins with a character that can be seen is not empty; others are looked at alone
            odd = [at for at, text in enumerate(texts) if not (text and text[0].isprintable())]
            if self.options.remove_spaces or wrong_character("".join(texts), what):
                odd = range(len(texts))
            for at in odd:
                try:
                    texts[at] = clean_text(values[at], self.options.remove_spaces, what)
                except ValueError as error:
                    problems.setdefault(at, error)
            return texts

        texts, pairs = texts_of(used.text, "text"), texts_of(used.pair, "second text")
        labels, wrong = self._labels(numbers, found) if used.label else (none, {})
        kept, bad = records if keep_records else none, {}
        for at, problem in sorted((wrong | problems).items()):
            record = None if isinstance(records[at], BadRow) else kept[at]
            bad[at] = BadRow(numbers[at], str(problem), record, isinstance(problem, EmptyText))
        return numbers, texts, pairs, labels, kept, bad

    def _problem_of_shape(self, record: Any) -> str | None:
        """Return why a record is no row with the columns in use."""
        used = self.used
        if isinstance(record, BadRow):
            return record.problem
        if self.names is not None and record == self.names:
            return "the names of the columns come again; remove the row"
        if used and used.width is None and isinstance(record, dict):
            missing = [excerpt(name) for name in used.used if name not in record]
            problem = f"is missing, found {excerpt(record)}; add it or remove the row"
            return f"the column {missing[0]} {problem}" if missing else None
        if not used or used.width is None or not isinstance(record, list):
            rule = "an array of text and label, or an object like the first row"
            return f"{rule}, is needed, found {excerpt(record)}; fix the row"
        if len(record) == used.width:
            return None
        shown = " | ".join(value if isinstance(value, str) else excerpt(value) for value in record[:20])
        said = _(
            "{width} columns are needed as in the first row, found {found}: {row}; remove extra separators "
            "(or, in CSV, enclose it in double quotes) or fill in what is missing"
        )
        return said.format(width=used.width, found=len(record), row=excerpt(shown))

    def _labels(self, numbers: tuple, records: Sequence) -> tuple[list[str | None], dict[int, ValueError]]:
        """Return the text of each label, and what is wrong, by position; text is parsed once."""
        options, names, known, errors = self.options, self.label_names, {}, {}
        columns = [[record[key] for record in records] for key in self.used.label]
        values = columns[0] if options.label_columns is None else list(zip(*columns, strict=True))
        keys = values
        if set(map(type, values)) != {str}:
            # Other values may be equal and yet different labels, such as 1 and true
            keys = [value if type(value) is str else at for at, value in enumerate(values)]
        for key in dict.fromkeys(keys):
            value = key if type(key) is str else values[key]
            is_plain = value is key and options.format in ("json", "jsonl")
            try:
                known[key] = self.form.text(value if is_plain else value_of(value), options)
                if names and (unknown := self.form.unknown(known[key], names, self.accept_ids)):
                    said = _("unknown label {label}; fix the row or set --data.labels")
                    raise ValueError(said.format(label=unknown))
            except InputError as error:
                at = numbers[keys.index(key)]
                raise InputError(bad_row_message(self.path, self.unit, at, error)) from error
            except ValueError as error:
                errors[key] = error
        wrong = {at: errors[key] for at, key in enumerate(keys) if key in errors} if errors else {}
        return list(map(known.get, keys)), wrong


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


def _listed_columns(numbers: Sequence[int], keys: Sequence) -> str:
    return shorten(", ".join(f"'{shorten(str(keys[number]))}'" for number in numbers), 200)


def _described_columns(roles: dict[str, tuple], keys: Sequence) -> str:
    """Return the columns in words; `roles` has the numbers of columns by what they hold."""
    parts = [f"{_(what)} {_listed_columns(numbers, keys)}" for what, numbers in roles.items() if numbers]
    return ", ".join(parts)


def _described_unused(unused: list[int], keys: Sequence, rows: list, has_pairs: bool) -> str:
    """Return the columns that are not used in words, and what to set where one of them holds texts."""
    described = _("; not used: ") + _listed_columns(unused, keys)
    texts = [column for column in unused if text_like([row[column] for row in rows])]
    if texts and not has_pairs:
        said = _(
            "; {columns} has texts too: set --data.text_pair_column for pairs, or name both in "
            "--data.text_column"
        )
        described += said.format(columns=_listed_columns(texts, keys))
    return described


def _unclear(where: str, what: str, found: list, rows: Sequence[Sequence] = ()) -> InputError:
    columns = list(zip(*rows, strict=True)) or [(value,) for value in found]
    inner = _names_inside(columns)
    if inner:
        said = _(
            "{where}: the cells hold objects with the fields {names}; write each field as a column, one "
            "object a row"
        )
        return InputError(said.format(where=where, names=listed(inner)))
    flags = [name for name, values in zip(found, columns, strict=False) if _are_flags(values)]
    if what == "label" and len(flags) > 1:
        said = _(
            "{where}: cannot tell which column is the label: found columns of 0 and 1, or of true and false; "
            "for several labels set --data.task multi_label --data.label_columns '[{names}]'"
        )
        return InputError(said.format(where=where, names=", ".join(map(str, flags))))
    said = _(
        "{where}: cannot tell which column is the {what}: found the columns {found}; set --data.{setting} to "
        "a name or a number (0 is the first), for pairs of texts also --data.text_pair_column, for a column "
        "of 0 and 1 for each label --data.task multi_label and --data.label_columns, or --data.format to "
        "another separator; remove what is above a header"
    )
    return InputError(said.format(where=where, what=_(what), found=listed(found), setting=SETTING[what]))


def _names_inside(columns: Sequence[Sequence]) -> list[str]:
    """Return the names of the fields of objects that are the cells of a column, also in lists of one."""
    for values in columns:
        first = values[0] if len(values) else None
        while isinstance(first, list) and len(first) == 1:
            first = first[0]
        if isinstance(first, dict):
            return list(first)
    return []


def _are_flags(values: Sequence) -> bool:
    """Return whether all values of a column are 0 and 1, or truth values."""
    different = {str(value).strip().lower() for value in values}
    return len(values) >= ROWS_BELOW and different <= ZERO_OR_ONE.keys() and len(different) == 2


def _choose_by_values(found: Columns, rows: list, find_pairs: bool, are_numbers: bool) -> None:
    values = {at: [row[at] for row in rows] for at in range(found.width) if at not in found.used}
    texts = [at for at, shown in values.items() if text_like(shown)]
    labels = [at for at, shown in values.items() if label_like(shown, are_numbers)]
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


def label_like(values: Sequence, are_numbers: bool = False) -> bool:
    """Return whether two or more values of a column come again and again, or are numbers where labels are."""
    different = {str(value).strip() for value in values}
    if are_numbers:
        return len(values) >= MIN_ROWS and all(map(NUMBER.fullmatch, different))
    is_short = all(len(value) <= LONGEST_LABEL for value in different)
    return is_short and len(values) >= MIN_ROWS and 2 <= len(different) <= len(values) / 2


def text_like(values: Sequence) -> bool:
    shown = [value.strip() for value in values if isinstance(value, str)]
    words = sum(WORDS.search(value, 0, MAX_SEARCHED) is not None for value in shown)
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


def number_as_text(cell: Any) -> Any:
    """Return a number as the text that was typed into a cell, such as 666; any other value as it is."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        return str(cell)
    return cell


def join_texts(texts: Sequence[Any]) -> Any:
    """Return the texts of several columns as one, without those that are empty; what is no text stays."""
    filled = [text for text in texts if not (text is None or (isinstance(text, str) and not text.strip()))]
    wrong = [text for text in filled if not isinstance(text, str)]
    return wrong[0] if wrong else BETWEEN_TEXTS.join(text.strip() for text in filled)
