"""Rows with labels -> predictions, and the report on them: how good is a model on other rows?"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from ..data.cells import as_text
from ..data.row_cells import free_names
from ..data.rows import Row
from ..errors import InputError
from ..report.bootstrap import all_metrics
from ..report.confidence import calibration_effect
from ..report.page import PageRows, render_page
from ..report.predictions_file import PREDICTED, PredictionsFile
from ..report.row_groups import cost_of_length, readings_of
from ..report.text_report import report_text
from ..runtime.disk import whole_files, write_json, write_text
from ..tasks.columns import prediction_columns
from ..tasks.task import Task
from . import WantedPrecision
from .open_model import OpenedModel
from .output_files import written
from .predictor import CHUNK_ROWS, Prediction
from .sources import Source

UNFINISHED = ".unfinished"
INPUT = "input_"  # before the name of a column of the input that predictions.csv has too


class ReportPredictions:
    """predictions.csv of a report: the columns of a run's file, then those of the input that are not among
    them. `threshold` adds the decision, as for rows without labels."""

    def __init__(
        self, file: TextIO, source: Source, task: Task, threshold: float | WantedPrecision | None
    ) -> None:
        self.source = source
        self.task = task
        self.threshold = threshold
        row_names = [source.unit, "text"]
        if source.has_pairs:
            row_names.append("text_pair")
        # Any probabilities show the columns
        added_names = list(prediction_columns(task, np.full(len(task.label_names), 0.5), threshold))
        self.other_columns = source.other_names
        taken = [*row_names, task.answer_column, PREDICTED, *added_names]
        other_names = free_names(self.other_columns, taken, INPUT)
        self.predictions_file = PredictionsFile(file, task, row_names, added_names, other_names)

    def write(self, rows: Sequence[Row], predictions: Sequence[Prediction]) -> None:
        labels = self.task.form.encode_labels([row.label for row in rows], self.task.label_names)
        for row, label, prediction in zip(rows, labels, predictions, strict=True):
            row_values = [row.line, row.text]
            if self.source.has_pairs:
                row_values.append(row.pair)
            record = self.source.record(row)
            self.predictions_file.write(
                row_values,
                self.task.cell_text(label),
                as_text(prediction.answer),
                prediction_columns(self.task, prediction.probabilities, self.threshold).values(),
                [as_text(record.get(name)) for name in self.other_columns],
            )


def check_report_folder(path: str) -> Path:
    """Return the folder of a report; raises InputError where it has files, TrainingError if it cannot be."""
    folder = Path(path)
    with written(f"--report {path}"):
        folder.mkdir(parents=True, exist_ok=True)
    # A report that was killed leaves its unfinished files
    if not {entry.name for entry in folder.iterdir()} <= {UNFINISHED}:
        raise InputError(f"--report {path}: an empty or a new folder is needed; choose another name")
    return folder


def report_on(
    opened: OpenedModel, rows: Iterable[Row], source: Source, folder: Path, on_batch: Callable[[int], None]
) -> str:
    """Classify rows with labels; write predictions.csv, report.html, report.txt and report.json into a
    folder, all of them or none, and return the text. The page shows probabilities before and after the
    temperature, if there is one. Raises InputError for a label that the model does not have, TrainingError
    where the files cannot be written.

    Integers are ids of labels only where data.labels of the run named them: the order of labels that came
    from a train file means nothing to the file that is read here."""
    predictor, task = opened.predictor, opened.predictor.task
    accept_ids = opened.trained.set_labels is not None
    kept = defaultdict(list)
    known: set[str] = set()

    def classify(file: TextIO) -> None:
        """Write a prediction for each row, and keep what the report needs."""
        predictions_file = ReportPredictions(file, source, task, opened.threshold)
        remaining = iter(rows)
        while chunk := list(islice(remaining, CHUNK_ROWS)):
            for row in chunk:
                place = f"{source.name}, {source.unit} {row.line}"
                if row.label not in known:
                    if unknown := task.form.unknown(row.label, task.label_names, accept_ids):
                        raise InputError(
                            f"{place}: the model has no label {unknown}; fix the row, or set --label_column"
                        )
                    known.add(row.label)
                kept["labels"].append(row.label)
                kept["places"].append(place)
                kept["texts"].append(row.text + ("" if row.pair is None else f" ⟷ {row.pair}"))
            tokens = predictor.tokenize(chunk)
            logits = predictor.logits(tokens, on_batch)
            kept["logits"].append(logits)
            kept["lengths"].append(tokens.sums(np.array(list(map(len, tokens.windows)))))
            kept["readings"].append(readings_of(tokens.cut, tokens.counts))
            predictions_file.write(chunk, predictor.predictions(chunk, logits))

    with written(f"--report {folder}"), whole_files(folder / UNFINISHED, folder) as aside:
        with (aside / "predictions.csv").open("w", encoding="utf-8", newline="") as file:
            classify(file)
        labels = task.form.encode_labels(kept["labels"], task.label_names)
        logits, readings = (np.concatenate(kept[name]) for name in ("logits", "readings"))
        title = f"Report on {source.name}: {len(labels):,} rows, model {opened.folder}"
        scores = task.score(labels, logits)
        metrics = all_metrics(task, scores)
        if effect := calibration_effect(task, labels, logits, "these rows"):
            metrics["calibration"] = task.state() | effect
        if long := cost_of_length(readings, scores.correct, predictor.long.way, predictor.max_length):
            metrics["long_texts"] = long
        text = report_text(task, metrics, {}, title)
        page_rows = PageRows(
            text=kept["texts"].__getitem__,
            where=kept["places"].__getitem__,
            lengths=np.concatenate(kept["lengths"]),
            readings=readings,
        )
        page = render_page(
            task,
            scores,
            metrics,
            page_rows,
            page_title=title,
            calibrated=task.score(labels, logits, calibrated=True) if task.calibration else None,
        )
        write_text(aside / "report.html", page)
        write_text(aside / "report.txt", text + "\n")
        write_json(aside / "report.json", {"input": source.name, "model": str(opened.folder)} | metrics)
    return text
