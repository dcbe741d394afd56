"""The column of a file with the labels of a teacher, beside the column of a person's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from ..data.cells import as_text, value_of
from ..data.labels import label_ids
from ..data.rows import Row
from ..errors import InputError, listed, nearest, say
from ..report.teacher import NO_LABEL
from . import WantedPrecision
from .open_model import OpenedModel, decision_threshold
from .sources import Source

USUAL_NAME = "teacher_label"
VOTE_SEPARATOR = "|"  # of several answers of a teacher, as examples/label_with_llm.py writes them


@dataclass(frozen=True)
class TeacherColumn:
    """A column of a file with a teacher's labels; whether a person asked for it (`is_asked`), or its name is
    the usual one. With a wanted `precision`, the report finds the threshold that surely has it, on the rows
    that a person labelled."""

    name: str
    opened: OpenedModel
    is_asked: bool
    precision: float | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there can be no report without this column."""
        return self.is_asked or self.precision is not None

    def label_id(self, row: Row, place: str) -> int:
        """Return the id of the teacher's label of a row, `NO_LABEL` for an empty cell. Of several votes it is
        the most frequent, and of equally many the first. Raises InputError, which names the `place`, for a
        label that the model does not have, and for a row without the labels of teacher and person."""
        cell = value_of((row.record or {}).get(self.name))
        votes = self._votes(cell)
        if not votes:
            if row.label is None:
                raise InputError(
                    f"{place}: a label, or one in the column {self.name}, is needed, found none; fill one in "
                    "or remove the row"
                )
            return NO_LABEL
        task = self.opened.predictor.task
        trained = self.opened.trained
        try:
            labels = [task.form.text(vote, trained.reading) for vote in votes]
        except ValueError as error:
            raise InputError(f"{place}, column {self.name}: {error}") from error
        [(label, _num_votes)] = Counter(labels).most_common(1)
        unknown = task.form.unknown(label, task.label_names, trained.accepts_ids)
        if unknown:
            raise InputError(
                f"{place}, column {self.name}: the model has no label {unknown}; fix the row, or name "
                "another column with --teacher"
            )
        return label_ids(tuple(task.label_names), trained.accepts_ids)[label]

    def _votes(self, cell: Any) -> list:
        """Return the votes in a cell that are not empty."""
        if isinstance(cell, list):
            votes = cell
        elif isinstance(cell, str) and cell.strip() not in self.opened.predictor.task.label_names:
            votes = list(map(str.strip, cell.split(VOTE_SEPARATOR)))
        else:
            votes = [cell]
        return [vote for vote in votes if as_text(vote).strip()]


def teacher_column(source: Source, opened: OpenedModel, name: str | None) -> TeacherColumn | None:
    """Return the column of a teacher's labels: the one that is asked for, else the usual one, else None.
    Raises InputError for one that the file does not have, or that a model of several labels a row or a number
    is asked for; the usual one is left alone then, with a message."""
    task = opened.predictor.task
    problem = None
    if task.answer_column != "label":
        problem = f"labels of a teacher are for models of one label a row, found data.task {task.name}"
    is_asked = name is not None
    if not is_asked:
        if USUAL_NAME not in source.other_names:
            return None
        if problem is not None:
            say(f"{source.name}: the column {USUAL_NAME} is not compared: {problem}")
            return None
        name = USUAL_NAME
    if problem is not None:
        raise InputError(f"{opened.folder}: {problem}; leave out --teacher")
    if name not in source.other_names:
        near = nearest(name, source.other_names)
        raise InputError(
            f"{source.name}: the teacher needs a column beside text and label, and there is no {name}{near} "
            f"(found: {listed(source.other_names) or 'none'}); name it with --teacher"
        )
    return TeacherColumn(name, opened, is_asked)


def with_threshold(
    opened: OpenedModel, teacher: TeacherColumn | None, threshold: float | WantedPrecision | None
) -> tuple[OpenedModel, TeacherColumn | None]:
    """Return a model and a teacher with a threshold. A wanted precision is that of `decision_threshold`, on
    the run's dev rows; with a teacher, whose labels these rows may have, the report finds it on its own rows
    that a person labelled. So predictions.csv has no decisions then."""
    if teacher is None or not isinstance(threshold, WantedPrecision):
        task = opened.predictor.task
        return replace(opened, threshold=decision_threshold(opened.folder, task, threshold)), teacher
    opened.predictor.task.recall_at = threshold.precision
    say(
        f"--threshold precision={threshold.precision:g}: chosen on the rows of the report that have a label, "
        f"because of the column {teacher.name}; the report has it, and predictions.csv no decisions"
    )
    return opened, replace(teacher, precision=threshold.precision)
