"""Distributions of labels in place of labels: columns of probabilities, as predict writes them, and a column
of votes.

A row with a distribution has a share of each label. Its label is the most probable one; of several labels a
row, those with a share of one half or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import excerpt, listed
from .cells import value_of
from .label_cells import label_text, number_of, path_of
from .labels import LabelForm, labels_of_text

if TYPE_CHECKING:
    from .read import ReadOptions

# The names of columns with probabilities, as `predict` writes them
PREFIX = "p_"  # of that of a label
BELOW_LEVEL = "*"  # ends, after the separator, that of all labels below a level of a hierarchy
ANSWER_PROBABILITY = "probability"  # that of the answer
PROBABILITIES = "probabilities"
VOTES = "votes"
ROUNDING = 0.02  # by which the sum of rounded probabilities may differ from 1
HALF = 0.5
MIN_SHARE = 0.01  # smaller shares are left out where a row counts once for each of its labels
DIFFERENCE = 1e-3  # from which two probabilities are not the same one, rounded
REMEDY = (
    "fix the row, or name the column of the labels with --data.label_column: a row with a label is then "
    "trained on it"
)


@dataclass(frozen=True)
class ShareColumns:
    """The columns of a file that have distributions: `content` is `PROBABILITIES`, and each of `keys` has the
    probability of the label of this index in `labels`; or it is `VOTES`, and there is one column. With
    `follows_label`, a row with a label is trained on it. Else the label is the answer of the model whose
    probabilities these are, or one that a person has put in its place; `answer` is the column with the
    probability of the answer of the model, if there is one."""

    content: str
    keys: tuple[int | str, ...]
    labels: tuple[str, ...] = ()
    follows_label: bool = True
    answer: int | str | None = None

    @property
    def read_keys(self) -> tuple[int | str, ...]:
        """All columns whose cells are read."""
        if self.answer is None:
            return self.keys
        return (*self.keys, self.answer)


@dataclass(frozen=True)
class LabelShares:
    """The distributions of some rows: `labels` are names, `values` (num_rows, num_labels) float64 their
    shares, and `is_given` (num_rows,) bool says which rows have a distribution. `answers` are the labels of
    each of these: the most probable one, of equal ones the first."""

    labels: Sequence[str]
    values: np.ndarray
    is_given: np.ndarray
    answers: Mapping[int, list[str]]


@dataclass(frozen=True)
class ShareFacts:
    """What is known of the distributions in a file, for the data report; the cache keeps them. `content` and
    `follows_label` are those of `ShareColumns`, `columns` their names, `labels` the labels that have shares,
    `rows` how many rows are trained on a distribution, and `label_column` the name of the column of labels,
    if there is one. Without columns of distributions `content` is empty."""

    content: str = ""
    columns: str = ""
    labels: list[str] = field(default_factory=list)
    rows: int = 0
    follows_label: bool = True
    label_column: str = ""


# Reading


def is_blank(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def read_probabilities(
    columns: ShareColumns, cells: Sequence[Sequence[Any]], has_several: bool
) -> tuple[LabelShares, dict[int, ValueError]]:
    """Return the distributions of rows, and what is wrong with rows by index; `cells` has the cells of each
    of the columns. Without `has_several` the probabilities of a row add up to 1."""
    values = np.stack([_numbers_of(column) for column in cells], axis=1)
    is_given = np.ones(len(values), bool)
    problems: dict[int, ValueError] = {}
    is_wrong = ~((values >= 0) & (values <= 1))
    for index in np.flatnonzero(is_wrong.any(axis=1)).tolist():
        row_cells = [column[index] for column in cells]
        is_given[index] = False
        if all(map(is_blank, row_cells)):
            continue
        number = int(is_wrong[index].argmax())
        problems[index] = ValueError(
            f"a probability must be a number from 0 to 1, found {excerpt(row_cells[number])} in "
            f"{PREFIX}{columns.labels[number]}; {REMEDY}"
        )
    if not has_several:
        totals = values.sum(axis=1)
        for index in np.flatnonzero(is_given & (np.abs(totals - 1) > ROUNDING)).tolist():
            is_given[index] = False
            problems[index] = ValueError(
                f"the probabilities of a row must add up to 1, found {totals[index]:.4g} in "
                f"{listed(PREFIX + label for label in columns.labels)}; {REMEDY}"
            )
        values[is_given] /= totals[is_given, None]
    answers: dict[int, list[str]] = {}
    if has_several:
        for index in np.flatnonzero(is_given).tolist():
            answers[index] = [columns.labels[number] for number in np.flatnonzero(values[index] >= HALF)]
    elif len(values):
        for index, number in enumerate(values.argmax(axis=1).tolist()):
            answers[index] = [columns.labels[number]]
    return LabelShares(columns.labels, values, is_given, answers), problems


def _numbers_of(cells: Sequence[Any]) -> np.ndarray:
    """Return cells as numbers, (num_rows,) float64, NaN where there is none."""
    try:
        return np.array(cells, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(len(cells), np.nan)
        for index, cell in enumerate(cells):
            number = number_of(cell)
            if number is not None:
                numbers[index] = number
        return numbers


def read_votes(
    cells: Sequence[Any], form: LabelForm, options: ReadOptions
) -> tuple[LabelShares, dict[int, ValueError]]:
    """Return the distributions of rows with cells of votes, and what is wrong with rows by index. A blank
    cell, or one without votes, has none. An InputError among the problems is about all rows: whether cells
    have one label or several cannot be told."""
    shares_of_row: dict[int, dict[str, float]] = {}
    labels: dict[str, int] = {}
    problems: dict[int, ValueError] = {}
    for index, cell in enumerate(cells):
        if is_blank(cell):
            continue
        try:
            votes = _votes_in(cell, form, options)
        except ValueError as error:
            problems[index] = error
            continue
        if votes:
            shares_of_row[index] = _shares_of(votes)
            for label in shares_of_row[index]:
                labels.setdefault(label, len(labels))
    values = np.zeros((len(cells), len(labels)))
    is_given = np.zeros(len(cells), bool)
    answers = {}
    for index, shares in shares_of_row.items():
        is_given[index] = True
        answers[index] = _answer(shares, form.has_several)
        for label, share in shares.items():
            values[index, labels[label]] = share
    return LabelShares(list(labels), values, is_given, answers), problems


def _votes_in(cell: Any, form: LabelForm, options: ReadOptions) -> list[list[str]]:
    """Return the labels of each vote in a cell; where a row has one label, each vote has one."""
    value = value_of(cell)
    if isinstance(value, str) and not form.has_several:
        value = labels_of_text(value, options.label_separator)
    if not isinstance(value, list):
        value = [value]
    votes = []
    for vote in value:
        if form.has_several and not isinstance(vote, list):
            raise ValueError(
                "the votes for several labels must be a list of the labels of each vote, such as "
                f'[["a", "b"], ["a"]], found {excerpt(cell)}; fix the row'
            )
        labels = vote if isinstance(vote, list) else [vote]
        if not form.has_several and len(labels) != 1:
            raise ValueError(
                'the votes for one label must be labels, such as a|a|b or ["a", "a", "b"], found '
                f"{excerpt(cell)}; fix the row, or set --data.task multi_label"
            )
        votes.append([path_of(label_text(label), options.label_hierarchy) for label in labels])
    return votes


def _shares_of(votes: list[list[str]]) -> dict[str, float]:
    """Return the share of the votes that each label has; several labels may have all votes, or none."""
    counts: dict[str, int] = {}
    for labels in votes:
        for label in dict.fromkeys(labels):
            counts[label] = counts.get(label, 0) + 1
    return {label: count / len(votes) for label, count in counts.items()}


def _answer(shares: Mapping[str, float], has_several: bool) -> list[str]:
    """Return the labels of a row with these shares."""
    if has_several:
        return [label for label, share in shares.items() if share >= HALF]
    return [max(shares, key=shares.__getitem__)]


def are_corrected(
    labels: Sequence[str | None], shares: LabelShares, answers: Sequence[Any] | None
) -> np.ndarray:
    """Return which rows with a distribution have another label than the model gave them, (num_rows,) bool.
    `answers` are cells with the probability of the answer of the model; without them it is the most probable
    label. It need not be, as where of two classes the rarer one has a lower threshold."""
    number_of_label = {label: number for number, label in enumerate(shares.labels)}
    numbers = np.array([number_of_label.get(label, -1) for label in labels])
    of_label = np.where(numbers >= 0, shares.values[np.arange(len(numbers)), numbers], np.nan)
    of_answer = shares.values.max(axis=1, initial=0)
    if answers is not None:
        probabilities = _numbers_of(answers)
        of_answer = np.where(np.isnan(probabilities), of_answer, probabilities)
    return shares.is_given & ~(np.abs(of_label - of_answer) <= DIFFERENCE)


# In the arrays of a dataset


def weighted_rows(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distributions, (num_rows, num_labels), as rows with one label and a weight, for models that
    learn from these: the index of the row, its label, and the weight, (num_weighted_rows,) each. Labels with
    a share below `MIN_SHARE` are left out; the weights of a row add up to 1."""
    targets = np.asarray(targets, np.float64)
    # Where there are very many labels, all shares of a row may be small
    smallest = np.minimum(MIN_SHARE, targets.max(axis=1, keepdims=True))
    weights = np.where(targets >= smallest, targets, 0)
    weights /= weights.sum(axis=1, keepdims=True)
    rows, labels = np.nonzero(weights)
    return rows, labels, weights[rows, labels]


def with_and_without(probabilities: np.ndarray) -> np.ndarray:
    """Return the probability that rows do not have a label, and that they have it, (num_rows, 2)."""
    return np.stack([1 - probabilities, probabilities], axis=1)


def rows_of_labels(labels: np.ndarray, num_labels: int) -> np.ndarray:
    """Return the number of rows of each label, (num_labels,), for labels (num_rows,), or several a row,
    (num_rows, num_labels); for distributions, (num_rows, num_labels), the sum of the shares."""
    if labels.ndim == 2:
        return labels.sum(axis=0, dtype=np.float64)
    return np.bincount(labels, minlength=num_labels)
