"""Rows with labels -> predictions, and the report on them: how good is a model on other rows?"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..data.rows import Row
from ..errors import InputError
from ..report.bootstrap import all_metrics
from ..report.page import PageContent, render_page
from ..report.text import calibration_effect, cost_of_length, readings_of, report_text
from ..runtime.disk import whole_files, write_json, write_text
from .input_columns import NumberedTexts
from .nearest_rows import marked_rows, render_marked
from .open_model import OpenedModel
from .output import cannot_write
from .prediction_writer import PredictionWriter
from .predictor import CHUNK_ROWS, Prediction, Predictor
from .sources import Source

UNFINISHED = ".unfinished"


def check_report_folder(path: str) -> Path:
    """Return the folder of a report; raises InputError for one that has files, or cannot be made."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A report that was killed leaves its unfinished files
        is_empty = {entry.name for entry in os.scandir(folder)} <= {UNFINISHED}
    except OSError as error:
        raise InputError(f"--report {path}: the folder cannot be made: {error.strerror}") from error
    if not is_empty:
        raise InputError(
            f"--report {path}: an empty or a new folder is needed, found files; choose another name"
        )
    return folder


@contextmanager
def whole_report(folder: Path) -> Iterator[Path]:
    """Yield where to write a report, whose files are in `folder` once all are complete; none of them, where
    there is an error. Raises TrainingError where they cannot be written."""
    try:
        with whole_files(folder / UNFINISHED, folder) as aside:
            yield aside
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(f"--report {folder}", error) from error


def unknown_token_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token that stands for unknown characters, None for a tokenizer without one."""
    model = json.loads(tokenizer.to_str())["model"]
    # Of a Unigram tokenizer; the others have the token's name
    if "unk_id" in model:
        return model["unk_id"]
    name = model.get("unk_token")
    return None if name is None else tokenizer.token_to_id(name)


class LabelledRows:
    """Classifies rows with labels, and keeps of each what the report needs."""

    def __init__(self, predictor: Predictor, source: Source) -> None:
        self.predictor = predictor
        self.source = source
        # By the text of the label
        self.known_labels: dict[str, np.ndarray | int] = {}
        self.texts: list[str] = []
        self.lines: list[int] = []
        self.labels: list[np.ndarray | int] = []
        self.logits: list[np.ndarray] = []
        self.lengths: list[int] = []
        self.unknown: list[float] = []
        self.readings: list[np.ndarray] = []
        self.answers: list[str | list[str]] = []
        # The nearest training rows of each, where they are asked for
        self.evidence: list[list[dict]] = []
        self.unknown_id = unknown_token_id(predictor.tokenizer)

    def predict(self, rows: Iterable[Row], on_batch: Callable[[int], None]) -> Iterator[Prediction]:
        """Yield a prediction for each row; raises InputError for a label that the model does not have."""
        rows = iter(rows)
        while chunk := list(islice(rows, CHUNK_ROWS)):
            self.labels += [self._label(row.label, row.line) for row in chunk]
            tokens = self.predictor.tokenize(chunk)
            logits = self.predictor.logits(tokens, on_batch)
            predictions = self.predictor.predictions(chunk, logits)
            self.answers += [prediction.answer for prediction in predictions]
            self.evidence += [prediction.beside.get("evidence", []) for prediction in predictions]
            yield from predictions
            self.logits.append(logits)
            self.texts += [row.text + ("" if row.pair is None else f" ⟷ {row.pair}") for row in chunk]
            self.lines += [row.line for row in chunk]
            self.lengths += map(len, tokens.rows)
            windows = (
                None if tokens.window_ends is None else np.array([len(ends) for ends in tokens.window_ends])
            )
            self.readings.append(readings_of(tokens.cut, windows))
            self.unknown += [float((ids == self.unknown_id).mean()) for ids in tokens.rows]

    def _label(self, text: str, line: int) -> np.ndarray | int:
        if text not in self.known_labels:
            names, form = self.predictor.label_names, self.predictor.task.form
            unknown = form.unknown(text, names)
            if unknown is not None:
                raise InputError(
                    f"{self.source.name}, {self.source.place} {line}: the model has no label {unknown}; fix "
                    "the row, or set --label_column"
                )
            self.known_labels[text] = form.of_texts([text], names)[0]
        return self.known_labels[text]

    def of_page(self) -> dict[str, Any]:
        """Return what the page shows of the rows, by the names of `PageContent`."""
        return {
            "text": self.texts.__getitem__,
            "where": self.where,
            "lengths": np.array(self.lengths),
            "unknown": None if self.unknown_id is None else np.array(self.unknown),
            "readings": np.concatenate(self.readings),
            "evidence": self.evidence.__getitem__,
        }

    def where(self, at: int) -> str:
        """Return the file and the line of a row."""
        return f"{self.source.name}, {self.source.place} {self.lines[at]}"

    def marked(self) -> dict[str, Any]:
        """Return what is odd about the rows, given their evidence; empty where none was asked for."""
        if not any(self.evidence):
            return {}
        places, given = (
            map(self.where, range(len(self.lines))),
            map(self.predictor.task.answer, self.labels),
        )
        return {
            "evidence": marked_rows(zip(places, self.texts, given, self.answers, self.evidence, strict=True))
        }


def report_on(
    opened: OpenedModel,
    rows: Iterable[Row],
    source: Source,
    folder: Path,
    threshold: float | None,
    on_batch: Callable[[int], None],
) -> str:
    """Classify rows with labels; write predictions.csv, report.html, report.txt and report.json, and return
    the text. The page shows probabilities before and after the temperature, if there is one."""
    predictor = opened.predictor
    task = predictor.task
    labelled = LabelledRows(predictor, source)
    with (folder / "predictions.csv").open("w", encoding="utf-8", newline="") as file:
        columns = NumberedTexts(source.has_pairs)
        writer = PredictionWriter(task, columns, threshold, evidence=predictor.evidence)
        writer.write("csv", file, labelled.predict(rows, on_batch))
    labels, logits = np.array(labelled.labels), np.concatenate(labelled.logits)
    title = f"Report on {source.name}: {len(labels):,} rows, model {opened.folder}"
    scores = task.score(labels, logits)
    metrics = all_metrics(task, scores)
    if effect := calibration_effect(task, labels, logits, "these rows"):
        metrics["calibration"] = task.state() | effect
    of_page, limits = labelled.of_page(), (predictor.long.way, predictor.max_length)
    if long := cost_of_length(of_page["readings"], scores.correct, *limits):
        metrics["long_texts"] = long
    text = report_text(task, metrics, {}, title)
    if marked := labelled.marked():
        metrics |= marked
        text += f"\n\n{render_marked(marked['evidence'])}"
    calibrated = task.score(labels, logits, calibrated=True) if task.fitted else None
    page = PageContent(title, task, scores, metrics, calibrated=calibrated, **of_page)
    write_text(folder / "report.html", render_page(page))
    write_text(folder / "report.txt", text + "\n")
    write_json(folder / "report.json", {"input": source.name, "model": str(opened.folder)} | metrics)
    return text
