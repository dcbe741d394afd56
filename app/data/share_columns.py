"""Which columns of a file have distributions of labels: those of probabilities, by their names and the first
rows, and the one of votes, by its setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InputError, excerpt
from .column_values import as_list
from .first_rows import FirstRows
from .label_cells import label_text, number_of, path_of
from .label_shares import (
    ANSWER_PROBABILITY,
    BELOW_LEVEL,
    PREFIX,
    PROBABILITIES,
    ROUNDING,
    VOTES,
    ShareColumns,
    is_blank,
)
from .labels import label_form
from .read import ReadOptions

MIN_COLUMNS = 2
# Columns of the answers of a model, beside which a label is that of a person
ANSWER_COLUMNS = ("predicted", "predicted_label", "predicted_labels")


def with_share_columns(start: FirstRows, options: ReadOptions) -> tuple[FirstRows, ShareColumns | None]:
    """Return the columns of distributions that a file has, or None, and its beginning: not all objects have
    the keys of the first one."""
    form = label_form(options.task)
    if form.are_numbers or not form.has_labels:
        return start, None
    with_all_names = start.with_names_of_all()
    shares = _share_columns(with_all_names, options)
    if shares is None:
        return start, None
    return with_all_names, shares


def _share_columns(start: FirstRows, options: ReadOptions) -> ShareColumns | None:
    names = start.names or []
    votes = options.votes
    if votes is not None and start.has_column(votes):
        number = votes if isinstance(votes, int) else names.index(votes)
        return ShareColumns(VOTES, (number % start.num_columns,))
    numbers = probability_columns_in(names, options.label_hierarchy)
    if not numbers:
        return None
    form = label_form(options.task)
    cells = list(zip(*map(start.values, numbers), strict=True))
    if not _are_probabilities(cells, add_up=not form.has_several):
        return None
    labels = [_label_of_column(start, number, options.label_hierarchy) for number in numbers]
    setting = options.label_columns or options.label_column
    is_label_named = setting is not None and all(start.has_column(name) for name in as_list(setting))
    if options.label_columns is not None and is_label_named:
        # Each row has these, also one without any label
        return None
    has_answers = not set(start.lower_names).isdisjoint(ANSWER_COLUMNS)
    answer = None
    if ANSWER_PROBABILITY in start.lower_names:
        answer = start.lower_names.index(ANSWER_PROBABILITY)
        if start.is_object:
            answer = start.names[answer]
    return ShareColumns(
        PROBABILITIES,
        tuple(numbers),
        labels=tuple(labels),
        follows_label=is_label_named or has_answers,
        answer=answer,
    )


def _label_of_column(start: FirstRows, number: int, separator: str | None) -> str:
    """Return the label whose probability a column has; `separator` is that of levels of labels."""
    name = start.names[number]
    try:
        return path_of(label_text(name.removeprefix(PREFIX)), separator)
    except ValueError as error:
        raise InputError(
            f"{start.where}: the name of a column with probabilities must be {PREFIX} and a label, found "
            f"{excerpt(name)}; rename or remove it"
        ) from error


def probability_columns_in(names: Sequence[str], separator: str | None) -> list[int]:
    """Return the numbers of the columns whose names say that they have the probability of a label; none where
    there are fewer than two."""
    numbers = []
    for number, name in enumerate(names):
        is_below_level = separator is not None and name.endswith(separator + BELOW_LEVEL)
        if name.startswith(PREFIX) and len(name) > len(PREFIX) and not is_below_level:
            numbers.append(number)
    if len(numbers) < MIN_COLUMNS:
        return []
    return numbers


def _are_probabilities(rows: Sequence[Sequence[Any]], add_up: bool) -> bool:
    """Return whether half of some rows of cells, or more, have a probability in each cell; where they must
    `add_up`, to 1. Rows without any values show nothing, and no row shows that they are none."""
    num_rows = 0
    num_right = 0
    for cells in rows:
        if all(map(is_blank, cells)):
            continue
        num_rows += 1
        numbers = list(map(number_of, cells))
        if None in numbers or min(numbers) < 0 or max(numbers) > 1:
            continue
        num_right += not add_up or abs(sum(numbers) - 1) <= ROUNDING
    return 2 * num_right >= num_rows
