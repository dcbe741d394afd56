"""The columns that predictions add to the rows of the input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..data.row_cells import free_names
from ..errors import InputError, listed
from ..tasks.columns import answers_as_arrow, example_columns, prediction_columns
from ..tasks.task import Task
from .predictor import Prediction

if TYPE_CHECKING:
    import pyarrow as pa

    from .sources import Source

REASON = "reason"  # the column that says why a row has no label
# It stands before the name of an added column where the input has a column of that name
TAKEN = "predicted_"


class AddedColumns:
    """The columns that predictions of a task add to rows: the answer, then those of `prediction_columns`.

    With a `threshold` there is also the decision. With `place`, which says what a row's number counts (or is
    empty, where the problem of a row says it), a last column says why an invalid row has no answer. `taken`
    are the names of the rows' own columns, of which none is replaced: an added one of such a name is called
    predicted_NAME. With `keeps_guess`, the answer is there twice, also as predicted_NAME: people put theirs
    in the place of the first one.
    """

    def __init__(
        self,
        task: Task,
        taken: Iterable[str] = (),
        threshold: float | None = None,
        place: str | None = None,
        keeps_guess: bool = False,
    ) -> None:
        self.task = task
        self.threshold = threshold
        self.place = place
        self.example = example_columns(task, threshold)
        if place is not None:
            self.example[REASON] = REASON
        taken = list(taken)
        answers = [task.answer_column]
        if keeps_guess and task.answer_column not in taken:
            answers.append(TAKEN + task.answer_column)
        self.num_answers = len(answers)
        self.names = free_names([*answers, *self.example], taken, TAKEN)

    def values(self, prediction: Prediction) -> list:
        """Return the values of the columns, the answer as it is; an invalid row has only the reason."""
        if prediction.probabilities is None:
            reason = prediction.row.problem
            if self.place:
                reason = f"{self.place} {prediction.row.line}: {reason}"
            return [None] * (len(self.names) - 1) + [reason]
        columns = prediction_columns(self.task, prediction.probabilities, self.threshold)
        values = [prediction.answer] * self.num_answers
        values += columns.values()
        if self.place is not None:
            values.append(None)
        return values

    def types(self) -> list[pa.DataType]:
        """Return the Arrow type of each column."""
        import pyarrow as pa

        types = [answers_as_arrow(self.task, []).type] * self.num_answers
        for value in self.example.values():
            types.append(pa.array([value]).type)
        return types

    def arrays(self, predictions: Iterable[Prediction]) -> list[pa.Array]:
        """Return the columns of predictions as Arrow arrays, (num_rows,) each."""
        import pyarrow as pa

        types = self.types()
        rows = [self.values(prediction) for prediction in predictions]
        columns = list(zip(*rows, strict=True)) or [[]] * len(types)
        return list(map(pa.array, columns, types))


def rows_with_predictions(
    source: Source, added: AddedColumns, predictions: Iterable[Prediction]
) -> Iterator[list]:
    """Yield the values of each row: those of the columns of its source, then those that are added. Raises
    InputError for an object of a stream with a key that no row before the first prediction had."""
    names = source.names
    known_names = set(names)
    for prediction in predictions:
        record = source.record(prediction.row)
        if not record.keys() <= known_names:
            late_names = sorted(record.keys() - known_names)
            raise InputError(
                f"{source.name}, {source.unit} {prediction.row.line}: the first rows of a stream have all "
                f"columns, found the key {listed(late_names)} later; write JSON Lines (--output NAME.jsonl)"
            )
        values = [record.get(name) for name in names]
        values += added.values(prediction)
        yield values
