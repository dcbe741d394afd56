"""Several runs that answer together, by the mean of their probabilities."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..data.bad_row import BadRow
from ..data.rows import Row
from ..errors import InputError, listed, say
from ..tasks.task import Task
from .open_model import ComputeOptions, OpenedModel, open_model
from .predictor import CHUNK_ROWS, Prediction, Predictor, chunks_of


class AveragedPredictor:
    """Classifies rows by the mean of the probabilities of several predictors, which have the labels of
    `task`, each in any order; `task` decides by the mean."""

    def __init__(self, predictors: Sequence[Predictor], task: Task) -> None:
        self.predictors = predictors
        self.task = task
        self.orders = []
        for predictor in predictors:
            names = predictor.task.label_names
            self.orders.append([names.index(name) for name in task.label_names])

    def predict(
        self,
        rows: Iterable[Row | BadRow],
        chunk_rows: int = CHUNK_ROWS,
        on_batch: Callable[[float], None] = lambda rows: None,
    ) -> Iterator[Prediction]:
        """Yield a prediction for each row, in their order, as `Predictor.predict` does; raises as it does."""
        num_predictors = len(self.predictors)
        for chunk in chunks_of(rows, chunk_rows):
            predictions_of_runs = []
            for predictor in self.predictors:
                predictions = predictor.predict(
                    chunk,
                    chunk_rows=len(chunk),
                    on_batch=lambda num_rows: on_batch(num_rows / num_predictors),
                )
                predictions_of_runs.append(list(predictions))
            for of_row in zip(*predictions_of_runs, strict=True):
                yield self._mean(of_row)

    def _mean(self, predictions: Sequence[Prediction]) -> Prediction:
        """Return the prediction for a row of which each predictor has given one."""
        first = predictions[0]
        if first.probabilities is None:
            return first
        probabilities = []
        for prediction, order in zip(predictions, self.orders, strict=True):
            probabilities.append(prediction.probabilities[order])
        mean = np.mean(probabilities, axis=0)
        label = self.task.decide_by_probabilities(mean[None])[0]
        return Prediction(first.row, self.task.answer(label), mean)


def open_averaged(
    folders: Sequence[Path], options: ComputeOptions, threshold: float | None = None
) -> OpenedModel:
    """Return the models in `folders` as one, which answers by the mean of their probabilities and reads rows
    as the first one was trained. Raises InputError as `open_model`, for a folder that is named twice, and for
    models with other labels, of another kind, or that read other columns."""
    real_paths = [os.path.realpath(folder) for folder in folders]
    for number, path in enumerate(real_paths):
        if path in real_paths[:number]:
            raise InputError(f"--checkpoint names {folders[number]} twice; leave one out")
    models = [open_model(folder, options) for folder in folders]
    first = models[0]
    for model in models:
        check_alike(first, model)
    tasks = [model.predictor.task for model in models]
    task = tasks[0].together_with(tasks[1:])
    predictor = AveragedPredictor([model.predictor for model in models], task)
    say(f"the mean of the probabilities of {listed(folders)}")
    return OpenedModel(first.trained, predictor, threshold)


def check_alike(first: OpenedModel, model: OpenedModel) -> None:
    """Raise InputError unless two models give probabilities of the same labels for the same texts."""
    first_task = first.predictor.task
    task = model.predictor.task
    if first_task.predicts_number:
        raise InputError(
            f"{first.folder}: several runs answer together by the mean of their probabilities, and this one "
            "gives a number; name one --checkpoint"
        )
    rule = f"{model.folder}: runs that answer together must have the same"
    if first_task.name != task.name:
        raise InputError(
            f"{rule} data.task, found {task.name}, and {first_task.name} in {first.folder}; name "
            "another --checkpoint"
        )
    if set(first_task.label_names) != set(task.label_names):
        raise InputError(
            f"{rule} labels, found {listed(task.label_names)}, and {listed(first_task.label_names)} in "
            f"{first.folder}; name another --checkpoint"
        )
    first_reading = (first.trained.columns, first.trained.reading.remove_spaces)
    reading = (model.trained.columns, model.trained.reading.remove_spaces)
    are_recorded = first.trained.is_recorded and model.trained.is_recorded
    if are_recorded and first_reading != reading:
        raise InputError(
            f"{rule} columns of texts and data.remove_spaces, found {listed(reading[0].names)} and "
            f"{reading[1]}, and {listed(first_reading[0].names)} and {first_reading[1]} in "
            f"{first.folder}; name another --checkpoint"
        )
