"""Rows with labels -> predictions, and the report on them: how good is a model on other rows?

Where a column has a teacher's labels, rows may lack that of a person: see `app/report/teacher.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from ..data.cells import as_text
from ..data.row_cells import free_names
from ..data.rows import Row
from ..errors import InputError, say
from ..report.bootstrap import all_metrics
from ..report.confidence import calibration_effect
from ..report.page import PageRows, render_page, row_place
from ..report.predictions_file import PREDICTED, PredictionsFile
from ..report.row_groups import cost_of_length, readings_of
from ..report.teacher import NO_LABEL, TaughtRows, teacher_metrics
from ..report.text_report import report_text
from ..runtime.disk import CSV_ENCODING, whole_files, write_json, write_text
from ..tasks.columns import example_columns, prediction_columns
from ..tasks.task import Task
from ..words import N_, _, rows_in_words
from .open_model import OpenedModel
from .output_files import check_not_read, written
from .predictor import CHUNK_ROWS, Prediction
from .sources import Source
from .teacher_labels import TeacherColumn
from .trained_model import holds_model

PREDICTIONS = "predictions.csv"
PAGE = "report.html"
TEXT = "report.txt"
FIGURES = "report.json"
UNFINISHED = ".unfinished"
INPUT = "input_"  # before the name of a column of the input that predictions.csv has too


class ReportPredictions:
    """predictions.csv of a report: the columns of a run's file, then those of the input that are not among
    them. `threshold` adds the decision, as for rows without labels."""

    def __init__(self, file: TextIO, source: Source, task: Task, threshold: float | None) -> None:
        self.source = source
        self.task = task
        self.threshold = threshold
        row_names = [source.unit, "text"]
        if source.has_pairs:
            row_names.append("text_pair")
        added_names = list(example_columns(task, threshold))
        self.other_columns = source.other_names
        taken = [*row_names, task.answer_column, PREDICTED, *added_names]
        other_names = free_names(self.other_columns, taken, INPUT)
        self.predictions_file = PredictionsFile(file, task, row_names, added_names, other_names)

    def write(self, rows: Sequence[Row], labels: np.ndarray, predictions: Sequence[Prediction]) -> None:
        """Write rows with their `labels`, (num_rows, ...) as their form has them, and predictions."""
        for row, label, prediction in zip(rows, labels, predictions, strict=True):
            truth = ""
            if row.label is not None:
                truth = self.task.cell_text(label)
            row_values = [row.line, row.text]
            if self.source.has_pairs:
                row_values.append(row.pair)
            record = self.source.record(row)
            self.predictions_file.write(
                row_values,
                truth,
                as_text(prediction.answer),
                prediction_columns(self.task, prediction.probabilities, self.threshold).values(),
                [as_text(record.get(name)) for name in self.other_columns],
            )


class ReportedRows:
    """The rows of a report: what has been kept of all of them, while they are classified chunk by chunk. With
    a `teacher`, rows may have its label only: they are no part of the figures, texts and places."""

    def __init__(self, opened: OpenedModel, source: Source, teacher: TeacherColumn | None) -> None:
        self.source = source
        self.predictor = opened.predictor
        self.teacher = teacher
        self.accept_ids = opened.trained.accepts_ids
        self.places: list[str] = []
        self.texts: list[str] = []
        self._has_label: list[bool] = []
        self._teacher_labels: list[int] = []
        self._labels: list[np.ndarray] = []
        self._logits: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._readings: list[np.ndarray] = []
        self._known_labels: set[str] = set()

    @property
    def labels(self) -> np.ndarray:
        """The labels of the rows that have one, (num_labelled, ...) as their form has them."""
        return np.concatenate(self._labels)[self._has_label]

    @property
    def logits(self) -> np.ndarray:
        """The logits of the rows that have a label, (num_labelled, num_labels) float32."""
        return np.concatenate(self._logits)[self._has_label]

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each row that has a label, (num_labelled,)."""
        return np.concatenate(self._lengths)[self._has_label]

    @property
    def readings(self) -> np.ndarray:
        """How each row that has a label was read, (num_labelled,), as `readings_of` says."""
        return np.concatenate(self._readings)[self._has_label]

    def taught_rows(self) -> TaughtRows | None:
        """Return all rows with the labels of person and teacher; None without a teacher, and, with a message,
        where the column is empty and was not asked for. Raises InputError where no row has both labels."""
        if self.teacher is None:
            return None
        teacher_labels = np.array(self._teacher_labels)
        is_empty = (teacher_labels == NO_LABEL).all()
        if is_empty and not self.teacher.is_needed:
            column = f"{self.source.name}: the column {self.teacher.name}"
            say(f"{column} is not compared: no row has a value in it")
            return None
        task = self.predictor.task
        labels = np.concatenate(self._labels)
        labels[~np.array(self._has_label)] = NO_LABEL
        if not ((labels != NO_LABEL) & (teacher_labels != NO_LABEL)).any():
            raise InputError(
                f"{self.source.name}: some rows need a label and one in the column {self.teacher.name} too, "
                "found none; let a person label some of the rows, or name another column with --teacher"
            )
        logits = np.concatenate(self._logits)
        return TaughtRows(
            column=self.teacher.name,
            labels=labels,
            teacher=teacher_labels,
            predicted=task.decide(logits),
            confidence=task.confidence(task.probabilities(logits)),
        )

    def add(self, rows: list[Row]) -> np.ndarray:
        """Keep the places and texts of some rows, and return their labels, (num_rows, ...), any for a row
        without. Raises InputError for a label that the model does not have, and for a row without any."""
        task = self.predictor.task
        label_texts = []
        for row in rows:
            place = f"{self.source.name}, {self.source.unit} {row.line}"
            self._has_label.append(row.label is not None)
            if self.teacher is not None:
                self._teacher_labels.append(self.teacher.label_id(row, place))
            if row.label is None:
                label_texts.append(task.label_names[0])
                continue
            self._check_label(row.label, place)
            label_texts.append(row.label)
            self.places.append(row_place(self.source.name, self.source.unit, row.line))
            self.texts.append(" ⟷ ".join(row.texts))
        labels = task.form.encode_labels(label_texts, task.label_names)
        self._labels.append(labels)
        return labels

    def classify(self, rows: list[Row], on_batch: Callable[[int], None]) -> list[Prediction]:
        """Return the predictions of some rows, and keep what the report needs of them."""
        tokens = self.predictor.tokenize(rows)
        logits = self.predictor.logits(tokens, on_batch)
        self._logits.append(logits)
        self._lengths.append(tokens.sums(tokens.lengths()))
        self._readings.append(readings_of(tokens.cut, tokens.counts))
        return self.predictor.predictions(rows, logits)

    def _check_label(self, label: str, place: str) -> None:
        if label in self._known_labels:
            return
        task = self.predictor.task
        unknown = task.form.unknown(label, task.label_names, self.accept_ids)
        if unknown:
            raise InputError(f"{place}: the model has no label {unknown}; fix the row, or set --label_column")
        self._known_labels.add(label)


def check_report_folder(path: str, overwrite: bool = False, source: str | None = None) -> Path:
    """Return the folder of a report. Raises InputError where it has files, but with `overwrite` only for the
    folder of a model and for a file that is read, `source`; TrainingError if it cannot be."""
    folder = Path(path)
    with written(f"--report {path}"):
        folder.mkdir(parents=True, exist_ok=True)
    # A report that was killed leaves its unfinished files
    names = {entry.name for entry in folder.iterdir()} - {UNFINISHED}
    if names and not overwrite:
        raise InputError(
            f"--report {path}: an empty or a new folder is needed, and this one has files; choose another "
            "name, or replace the report in it with --overwrite"
        )
    if holds_model(folder):
        raise InputError(f"--report {path}: the report of a run is not replaced; choose another name")
    for name in (PREDICTIONS, PAGE, TEXT, FIGURES):
        if name in names:
            check_not_read(folder / name, f"--report {path}: {name}", source)
    return folder


def report_on(
    opened: OpenedModel,
    rows: Iterable[Row],
    source: Source,
    folder: Path,
    on_batch: Callable[[int], None],
    teacher: TeacherColumn | None = None,
) -> str:
    """Classify rows with labels; write predictions.csv, report.html, report.txt and report.json into a
    folder, all of them or none, and return the text. The page shows probabilities before and after the
    temperature, if there is one. With a `teacher`, it also says what its labels are worth. Raises InputError
    for a label that the model does not have, TrainingError where the files cannot be written."""
    reported = ReportedRows(opened, source, teacher)
    with written(f"--report {folder}"), whole_files(folder / UNFINISHED, folder) as unfinished:
        with (unfinished / PREDICTIONS).open("w", encoding=CSV_ENCODING, newline="") as file:
            predictions_file = ReportPredictions(file, source, opened.predictor.task, opened.threshold)
            remaining = iter(rows)
            while chunk := list(islice(remaining, CHUNK_ROWS)):
                labels = reported.add(chunk)
                predictions_file.write(chunk, labels, reported.classify(chunk, on_batch))
        return _write_report(opened, reported, unfinished)


def _write_report(opened: OpenedModel, reported: ReportedRows, folder: Path) -> str:
    """Write the text, the page and the figures of a report, and return the text."""
    predictor = opened.predictor
    task = predictor.task
    taught_rows = reported.taught_rows()
    source_name = reported.source.name
    labels = reported.labels
    logits = reported.logits
    readings = reported.readings
    title = _("Report on {source}: {rows}, model {folder}")
    title = title.format(source=source_name, rows=rows_in_words(len(labels)), folder=opened.folder)
    scores = task.score(labels, logits)
    metrics = all_metrics(task, scores)
    effect = calibration_effect(task, labels, logits, N_("these rows"))
    if effect:
        metrics["calibration"] = task.state() | effect
    long_texts = cost_of_length(readings, scores.correct, predictor.long.way, predictor.max_length)
    if long_texts:
        metrics["long_texts"] = long_texts
    if taught_rows is not None:
        metrics["teacher"] = teacher_metrics(taught_rows, opened.threshold, reported.teacher.precision)
    calibrated = None
    if task.calibration:
        calibrated = task.score(labels, logits, calibrated=True)
    page_rows = PageRows(
        text=reported.texts.__getitem__,
        where=reported.places.__getitem__,
        lengths=reported.lengths,
        readings=readings,
    )
    page = render_page(task, scores, metrics, page_rows, page_title=title, calibrated=calibrated)
    text = report_text(task, metrics, {}, title)
    write_text(folder / PAGE, page)
    write_text(folder / TEXT, text + "\n")
    write_json(folder / FIGURES, {"input": source_name, "model": str(opened.folder)} | metrics)
    return text
