"""Which columns of a file hold the text, the second text and the label.

What decides, in this order: the settings; usual names in the header; the values of the first rows; the
number of columns. tests/data/test_column_rules.py has these rules as a table of cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import InputError, excerpt, listed, nearest, shorten
from .cells import SETTING, as_text
from .column_facts import ColumnFacts
from .column_values import (
    are_flags,
    are_labels,
    are_numbers,
    are_pairs,
    are_texts,
    as_list,
    different_values,
    names_inside,
)
from .first_rows import FirstRows, Key, first_rows
from .label_shares import ShareColumns
from .labels import label_form
from .read import FORMATS, ReadOptions
from .share_columns import with_share_columns
from .usual_names import LABEL_NAMES, OTHER_LABEL_NAMES, PAIR_NAMES, TEXT_NAMES

MAX_COLUMNS = 16_384  # of a row, as in Excel; a long line of separators must not take minutes


class ColumnError(InputError):
    """A column that is not there, or cannot be told from others.

    Where a setting can name the column, `where` is the place of the file's first row, `problem` what is
    wrong, `role` what the column is for, and `found` are the names of the columns, or without `has_names` the
    cells of the first row. They are empty where the file itself is wrong.
    """

    # Errors go from process to process as their message and these attributes
    where = ""
    problem = ""
    role = ""
    found: tuple[str, ...] = ()
    has_names = True


@dataclass(frozen=True)
class Columns:
    """The columns of text (several are read as one), second text and label (one, or one for each label):
    names in JSON objects, numbers from 0 in everything else. `shares` has those of distributions of labels.

    `width` is the number of columns that every row has, None for objects. `header` are the names of the
    columns as the file has them, None without a header and for objects. `facts` describe the columns, also
    those that are not used. `assumed` are settings that follow from the values, for other such files.
    """

    text: tuple[Key, ...]
    pair: tuple[Key, ...]
    label: tuple[Key, ...]
    width: int | None
    header: list | None = None
    facts: ColumnFacts = ColumnFacts()
    assumed: dict[str, Any] = field(default_factory=dict)
    shares: ShareColumns | None = None

    @property
    def used(self) -> tuple[Key, ...]:
        keys = self.text + self.pair + self.label
        if self.shares is not None:
            keys += self.shares.keys
        return keys

    def names_of(self, columns: tuple[Key, ...]) -> list[Key]:
        """Return the names of columns, or their numbers where they have none."""
        if self.header is None:
            return list(columns)
        return [as_text(self.header[number]).strip() for number in columns]

    @property
    def are_keys(self) -> bool:
        """Whether rows are objects, each with its own keys."""
        return self.width is None


@dataclass(frozen=True)
class Roles:
    """The numbers of the columns that hold the text, the second text, the label and distributions of labels,
    as far as known."""

    text: tuple[int, ...] = ()
    pair: tuple[int, ...] = ()
    label: tuple[int, ...] = ()
    shares: tuple[int, ...] = ()

    @property
    def used(self) -> tuple[int, ...]:
        return self.text + self.pair + self.label + self.shares


def choose_columns(
    where: str,
    first: list | dict,
    sample: list,
    header: list | None,
    options: ReadOptions,
    need_label: bool,
    find_pairs: bool,
    find_shares: bool = False,
) -> Columns:
    """Return the columns of records like `first`; `sample` are the first records, as far as they are known.
    With `find_pairs`, rows may be pairs of texts although no setting says so; with `find_shares`, they may
    have distributions of labels. Raises InputError if a column is missing, or it is not clear which one it
    is."""
    start = first_rows(where, first, sample, header)
    shares = None
    if find_shares:
        start, shares = with_share_columns(start, options)
    of_settings = _roles_of_settings(start, options, shares, need_label)
    if shares is not None:
        # Rows without a label have a distribution
        need_label = False
    roles = of_settings
    may_have_pairs = find_pairs and options.text_column is None and options.text_pair_column is None
    if may_have_pairs:
        roles = roles_by_pair_names(start, roles)
    if need_label and not (roles.text and roles.label):
        may_be_numbers = label_form(options.task).are_numbers
        roles = roles_by_values(start, roles, may_have_pairs, may_be_numbers)
    elif shares is not None and not roles.text:
        by_values = roles_by_values(start, roles, may_have_pairs, may_be_numbers=False)
        roles = replace(by_values, label=of_settings.label)
    knows_order = need_label or options.train_has_no_header
    roles = roles_by_order(start, roles, header, need_label, knows_order)
    if not roles.text:
        raise _unclear(start, "text", need_label)
    if need_label and not roles.label:
        raise _unclear(start, "label", need_label)
    if len(set(roles.used)) < len(roles.used):
        settings = "set --data.text_column and --data.label_column"
        raise InputError(f"{where}: text and label must be different columns; {settings}")
    columns = Columns(
        text=roles.text,
        pair=roles.pair,
        label=roles.label,
        width=start.width,
        header=header,
        facts=_facts(start, roles, shares, need_label),
        assumed=_assumed_settings(start, roles, of_settings, options),
        shares=shares,
    )
    if not start.is_object:
        return columns
    if shares is not None:
        columns = replace(columns, shares=replace(shares, keys=_names_of(start, roles.shares)))
    return replace(
        columns,
        text=_names_of(start, roles.text),
        pair=_names_of(start, roles.pair),
        label=_names_of(start, roles.label),
        width=None,
    )


def _names_of(start: FirstRows, numbers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(start.names[number] for number in numbers)


def _roles_of_settings(
    start: FirstRows, options: ReadOptions, shares: ShareColumns | None, need_label: bool
) -> Roles:
    """Return the columns that the settings name, else those with usual names, and those of distributions: a
    file that has these may lack the columns of labels that are set, and none of them is one of labels."""
    if shares is None:
        return roles_by_settings(start, options, need_label)
    setting = options.label_columns or options.label_column
    if setting is not None and not all(start.has_column(name) for name in as_list(setting)):
        options = replace(options, label_columns=None, label_column=None)
        # Without them all other columns of labels are of another kind than the setting
        need_label = need_label and not isinstance(setting, list)
    roles = roles_by_settings(start, options, need_label)
    label = tuple(column for column in roles.label if column not in shares.keys)
    return replace(roles, label=label, shares=shares.keys)


def roles_by_settings(start: FirstRows, options: ReadOptions, need_label: bool) -> Roles:
    """Return the columns that the settings name, else those with usual names."""
    text_setting = options.text_column
    pair_setting = options.text_pair_column
    label_setting = options.label_columns or options.label_column
    label_names = _usual_label_names(start)
    if options.train_has_no_header:
        text_setting = _name_before_number(start, text_setting, TEXT_NAMES)
        pair_setting = _name_before_number(start, pair_setting, tuple(PAIR_NAMES.values()))
        label_setting = _name_before_number(start, label_setting, label_names)
    text = _columns_of_setting(start, "text", text_setting, TEXT_NAMES)
    pair = _columns_of_setting(start, "second text", pair_setting)
    label = ()
    if need_label:
        label = _columns_of_setting(start, "label", label_setting, label_names)
    return Roles(text, pair, label)


def _usual_label_names(start: FirstRows) -> tuple[str, ...]:
    other_names = [name for name in OTHER_LABEL_NAMES if name in start.lower_names]
    if len(other_names) == 1:
        return (*LABEL_NAMES, other_names[0])
    return LABEL_NAMES


def _name_before_number(start: FirstRows, setting: Any, usual_names: tuple[str, ...]) -> Any:
    """Return the column for a number that the train file had, which had no names. A file with a header has
    another shape, and its usual names count. A file of one column has nothing but texts."""
    if not isinstance(setting, int):
        return setting
    if start.width == 1:
        return 0
    names = start.lower_names
    if setting < len(names) and names[setting] in usual_names:
        return setting
    for name in usual_names:
        if name in names:
            return names.index(name)
    return setting


def _columns_of_setting(
    start: FirstRows, role: str, setting: Any, usual_names: Sequence[str] = ()
) -> tuple[int, ...]:
    """Return the numbers of the columns that a setting names, else that of the first usual name."""
    if setting is None:
        for name in usual_names:
            if name in start.lower_names:
                return (_number_of_column(start, role, name, start.lower_names),)
        return ()
    names = start.names or []
    return tuple(_number_of_column(start, role, column, names) for column in as_list(setting))


def _number_of_column(start: FirstRows, role: str, column: Key, names: list[str]) -> int:
    if isinstance(column, int):
        if -start.width <= column < start.width:
            return column % start.width
    elif names.count(column) > 1:
        raise _unclear(replace(start, names=list(names), rows=[]), role, need_label=True)
    elif column in names:
        return names.index(column)
    found_names = listed(names) or f"{start.width} columns without names, from 0"
    near = nearest(column, names)
    error = _column_error(
        f"{start.where}: there is no {role} column {excerpt(column)}{near} (found: {found_names})",
        start,
        role,
    )
    error.problem = f"there is no {role} column {excerpt(column)}{near}"
    raise error


def roles_by_pair_names(start: FirstRows, roles: Roles) -> Roles:
    """Return the roles with the two columns of the first usual names of pairs, if the file has both."""
    names = start.lower_names
    for first_name, second_name in PAIR_NAMES.items():
        if first_name in names and second_name in names:
            text = (names.index(first_name),)
            pair = (names.index(second_name),)
            return replace(roles, text=text, pair=pair)
    return roles


def unused_columns(start: FirstRows, roles: Roles) -> list[int]:
    """Return the columns that have no role."""
    used = set(roles.used)
    return [column for column in range(start.width) if column not in used]


def _columns_of_texts(start: FirstRows, columns: list[int]) -> list[int]:
    return [column for column in columns if are_texts(start.values(column))]


def roles_by_values(start: FirstRows, roles: Roles, may_have_pairs: bool, may_be_numbers: bool) -> Roles:
    """Return the roles with the columns of text, second text and label that the first rows show."""
    unused = unused_columns(start, roles)
    texts = _columns_of_texts(start, unused)
    labels = [column for column in unused if are_labels(start.values(column), may_be_numbers)]
    if not roles.label and len(labels) == 1:
        roles = replace(roles, label=(labels[0],))
    elif not roles.label and len(unused) == 2 and len(texts) == 1:
        # A file sorted by label has the same label in all of its first rows
        [other_column] = set(unused) - set(texts)
        roles = replace(roles, label=(other_column,))
    if not roles.text and len(texts) == 1:
        roles = replace(roles, text=(texts[0],))
    if may_have_pairs and not roles.text and roles.label and len(texts) == 2:
        first, second = texts
        if are_pairs(start.values(first), start.values(second)):
            roles = replace(roles, text=(first,), pair=(second,))
    return roles


def roles_by_order(
    start: FirstRows, roles: Roles, header: list | None, need_label: bool, knows_order: bool
) -> Roles:
    """Return the roles with the only column that is left, or with the usual order, text before label.

    Without a label, the first of several columns may be anything, say the number of a row, unless the order
    is known: the train file had no header either.
    """
    unused = unused_columns(start, roles)
    if not start.is_object:
        # A note beside a table of Excel has no title, and stands in a column that the first row does not have
        first_row = header or start.first
        unused = [column for column in unused if first_row[column] is not None]
    is_usual_order = start.names is None and knows_order and len(unused) == 2 and not roles.used
    if is_usual_order and not need_label:
        is_usual_order = not are_numbers(different_values(start.values(unused[0])))
    if not roles.text and (len(unused) == 1 or is_usual_order):
        roles = replace(roles, text=(unused.pop(0),))
    if need_label and not roles.label and len(unused) == 1:
        roles = replace(roles, label=(unused.pop(),))
    return roles


def _assumed_settings(
    start: FirstRows, roles: Roles, of_settings: Roles, options: ReadOptions
) -> dict[str, Any]:
    """Return the settings of the columns that no setting and no usual name chose, and that a table of several
    columns has no header."""
    assumed: dict[str, Any] = {}
    has_no_header = start.names is None and FORMATS[options.format].has_header
    if has_no_header and start.width > 1 and options.header is None:
        assumed["header"] = False
    if start.names is None and roles == Roles(text=(0,), label=(1,)):
        # The usual order needs no settings
        return assumed
    if (roles.text, roles.pair) != (of_settings.text, of_settings.pair):
        assumed["text_column"] = start.keys[roles.text[0]]
        if roles.pair:
            assumed["text_pair_column"] = start.keys[roles.pair[0]]
    if roles.label and roles.label != of_settings.label:
        assumed["label_column"] = start.keys[roles.label[0]]
    return assumed


# Words


def _facts(start: FirstRows, roles: Roles, shares: ShareColumns | None, need_label: bool) -> ColumnFacts:
    """Return what people are told of the columns, also of those that are not used where there are labels."""
    names_by_role = {}
    for role, numbers in (("text", roles.text), ("label", roles.label), ("second text", roles.pair)):
        if numbers:
            names_by_role[role] = _listed_columns(start, numbers)
    if shares is not None:
        names_by_role[shares.content] = _listed_columns(start, roles.shares)
    unused = unused_columns(start, roles)
    if not (need_label or shares) or not unused:
        return ColumnFacts(roles=names_by_role)
    unused_texts = []
    if not roles.pair:
        unused_texts = _columns_of_texts(start, unused)
    return ColumnFacts(
        roles=names_by_role,
        unused=_listed_columns(start, unused),
        unused_texts=_listed_columns(start, unused_texts),
    )


def _listed_columns(start: FirstRows, numbers: Sequence[int]) -> str:
    """Return the names of columns for people, and the numbers of those whose header is empty."""
    names = []
    for number in numbers:
        name = shorten(as_text(start.keys[number]).strip())
        names.append(f"'{name or number}'")
    return shorten(", ".join(names), 200)


def _unclear(start: FirstRows, role: str, need_label: bool) -> ColumnError:
    """Return the error for a file whose column of text or label cannot be told."""
    names_or_cells = start.names or start.first
    rows = start.rows or [list(names_or_cells)]
    columns = list(zip(*rows, strict=True))
    inner_names = names_inside(columns)
    if inner_names:
        return ColumnError(
            f"{start.where}: the cells hold objects with the fields {listed(inner_names)}; write each field "
            "as a column, one object a row"
        )
    flags = []
    for name, values in zip(names_or_cells, columns, strict=True):
        if are_flags(values):
            flags.append(str(name))
    if role == "label" and len(flags) > 1:
        names = ", ".join(flags)
        return ColumnError(
            f"{start.where}: cannot tell which column is the label: found columns of 0 and 1, or of true and "
            f"false; for several labels set --data.task multi_label --data.label_columns '[{names}]'"
        )
    if not need_label:
        return _column_error(
            f"{start.where}: cannot tell which column is the text: found the columns "
            f"{listed(names_or_cells)}; set --data.text_column to a name or a number (0 is the first), for "
            "pairs of texts also --data.text_pair_column, or --data.format text where each line is one text",
            start,
            role,
        )
    return _column_error(
        f"{start.where}: cannot tell which column is the {role}: found the columns {listed(names_or_cells)}; "
        f"set --data.{SETTING[role]} to a name or a number (0 is the first), for pairs of texts also "
        "--data.text_pair_column, for a column of 0 and 1 for each label --data.task multi_label and "
        "--data.label_columns, or --data.format to another separator; remove what is above a header",
        start,
        role,
    )


def _column_error(message: str, start: FirstRows, role: str) -> ColumnError:
    """Return the error of a column that a setting can name, for commands that have other options."""
    error = ColumnError(message)
    error.where = start.where
    error.problem = f"cannot tell which column is the {role}"
    error.role = role
    error.found = tuple(map(str, start.names or start.first))
    error.has_names = start.names is not None
    return error
