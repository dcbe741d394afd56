"""Rows with labels -> predictions, and the report on them: how good is a model on rows that it was not
trained with?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from ..data.label_cells import decode_set
from ..data.labels import resolve_label
from ..data.rows import Row
from ..errors import InputError, excerpt, listed, nearest
from ..evaluation.calibration import effect, render_calibration, run_calibration
from ..evaluation.long_rows import cost_of_length, parts_read, render_cost_of_length
from ..evaluation.measures.row_scores import RowScores, score_rows
from ..evaluation.measures.summary import render_summary, summarize
from ..evaluation.metrics import compute_metrics
from ..evaluation.multi_label.metrics import label_set_metrics, render_label_sets
from ..evaluation.multi_label.page import render_label_set_page
from ..evaluation.multi_label.row_sets import NAMES, OF_BASELINES, RowSets, decide_rows, summarize_sets
from ..evaluation.page.page import PageContent, render_page
from ..evaluation.page.rows import EvaluatedRows
from ..evaluation.report import render_report
from ..runtime.disk import write_json, write_text
from .label_sets import Abstention
from .label_sets import write_csv as write_set_csv
from .open_model import OpenedModel
from .output import open_output, write_csv
from .predictor import CHUNK_ROWS, Prediction, Predictor
from .sources import Source


def check_report_folder(path: str) -> Path:
    """Return the folder of a report; raises InputError for one that has files, which would be overwritten, or
    cannot be made."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(os.scandir(folder))
    except OSError as error:
        raise InputError(f"--report {path}: the folder cannot be made: {error.strerror}") from error
    if not is_empty:
        raise InputError(
            f"--report {path}: an empty or a new folder is needed, found files; choose another name"
        )
    return folder


class LabelledRows:
    """Classifies rows with labels, and keeps of each what the report needs."""

    def __init__(self, predictor: Predictor, source: Source) -> None:
        self.predictor = predictor
        self.source = source
        self.labels: dict[str, int] = {}
        self.texts: list[str] = []
        self.lines: list[int] = []
        self.targets: list[int | np.ndarray] = []
        self.logits: list[np.ndarray] = []
        self.lengths: list[int] = []
        self.unknown: list[float] = []
        self.parts: list[np.ndarray] = []
        name = getattr(predictor.tokenizer.model, "unk_token", None)
        self.unknown_id = None if name is None else predictor.tokenizer.token_to_id(name)

    def predict(self, rows: Iterable[Row], on_batch: Callable[[int], None]) -> Iterator[Prediction]:
        """Yield a prediction for each row; raises InputError for a label that the model does not have."""
        rows = iter(rows)
        target = self._label_set if self.predictor.has_label_sets else self._label_id
        while chunk := list(islice(rows, CHUNK_ROWS)):
            self.targets += [target(row.label, row.line) for row in chunk]
            tokens = self.predictor.tokenize(chunk)
            logits = self.predictor.logits(tokens, on_batch)
            yield from self.predictor.predictions(chunk, logits)
            self.logits.append(logits)
            self.texts += [row.text + ("" if row.pair is None else f" ⟷ {row.pair}") for row in chunk]
            self.lines += [row.line for row in chunk]
            self.lengths += map(len, tokens.rows)
            windows = (
                None if tokens.window_ends is None else np.array([len(ends) for ends in tokens.window_ends])
            )
            self.parts.append(parts_read(tokens.cut, windows))
            self.unknown += [float((ids == self.unknown_id).mean()) for ids in tokens.rows]

    def _label_id(self, label: str, line: int) -> int:
        if label not in self.labels:
            names = self.predictor.label_names
            found = resolve_label(label, names)
            if found is None:
                raise InputError(
                    f"{self.source.name}, {self.source.place} {line}: the model has no label {excerpt(label)}"
                    f"{nearest(label, names)} (known: {listed(names)}); fix the row, or set --label_column"
                )
            self.labels[label] = found
        return self.labels[label]

    def _label_set(self, labels: str, line: int) -> np.ndarray:
        """Return which labels a row has, (num_labels,) bool."""
        found = np.zeros(len(self.predictor.label_names), dtype=bool)
        found[[self._label_id(label, line) for label in decode_set(labels)]] = True
        return found

    def evaluated(self, scores: RowScores | RowSets) -> EvaluatedRows:
        """Return the rows for the page, with their scores."""
        unknown = None if self.unknown_id is None else np.array(self.unknown)
        source = self.source
        return EvaluatedRows(
            scores,
            self.predictor.label_names,
            self.texts.__getitem__,
            lambda at: f"{source.name}, {source.place} {self.lines[at]}",
            np.array(self.lengths),
            unknown,
            parts=np.concatenate(self.parts),
        )


@dataclass(frozen=True)
class Figures:
    """What a report says: `metrics`, as text in `parts`, the scores of the rows, and what makes the page of a
    content."""

    metrics: dict
    parts: list[str]
    scores: RowScores | RowSets
    calibrated: RowScores | None
    render: Callable[[PageContent, str], str]


def _figures(opened: OpenedModel, labels: np.ndarray, logits: np.ndarray, title: str) -> Figures:
    """Return the figures of one label a row; `labels` (num_rows,) class ids."""
    names, temperature = opened.predictor.label_names, opened.predictor.temperature
    scores = score_rows(labels, logits)
    metrics = compute_metrics(labels, logits, names) | summarize(scores, len(names))
    parts, calibrated = [render_report(metrics, title), render_summary(metrics)], None
    if temperature != 1:
        calibrated = score_rows(labels, logits, temperature)
        metrics["calibration"] = run_calibration(opened.folder) | effect(
            temperature, labels, logits, "these rows"
        )
        parts.append(render_calibration(metrics["calibration"]))
    return Figures(metrics, parts, scores, calibrated, render_page)


def _set_figures(opened: OpenedModel, labels: np.ndarray, logits: np.ndarray, title: str) -> Figures:
    """Return the figures of any number of labels a row; `labels` (num_rows, num_labels) bool."""
    names, rule = opened.predictor.label_names, opened.predictor.rule
    rows = decide_rows(labels, logits, rule)
    metrics = label_set_metrics(labels, logits, rule, names) | summarize_sets(rows)
    parts = [render_label_sets(metrics, rule, title), render_summary(metrics, NAMES, OF_BASELINES)]
    return Figures(
        metrics, parts, rows, None, lambda page, language: render_label_set_page(page, rule, language)
    )


def report_on(
    opened: OpenedModel,
    rows: Iterable[Row],
    source: Source,
    folder: Path,
    threshold: float | Abstention | None,
    language: str,
    on_batch: Callable[[int], None],
) -> str:
    """Classify rows with labels; write predictions.csv, report.html, report.txt and report.json, and return
    the text.

    The page shows probabilities as the model gives them, and beside them those of its temperature, if it has
    one.
    """
    predictor = opened.predictor
    sets = predictor.has_label_sets
    labelled = LabelledRows(predictor, source)
    with open_output(str(folder / "predictions.csv")) as file:
        write = write_set_csv if sets else write_csv
        write(file, labelled.predict(rows, on_batch), predictor.label_names, source.has_pairs, threshold)
    labels, logits = np.array(labelled.targets), np.concatenate(labelled.logits)
    title = f"Report on {source.name}: {len(labels):,} rows, model {opened.folder}"
    found = (_set_figures if sets else _figures)(opened, labels, logits, title)
    evaluated = labelled.evaluated(found.scores)
    metrics, parts = found.metrics, found.parts
    if long := cost_of_length(
        evaluated.parts, found.scores.correct, predictor.long.way, predictor.max_length
    ):
        metrics["long_texts"] = long
        parts.append(render_cost_of_length(long))
    page = PageContent(title, evaluated, metrics, found.calibrated)
    write_text(folder / "report.html", found.render(page, language))
    text = "\n\n".join(parts)
    write_text(folder / "report.txt", text + "\n")
    write_json(folder / "report.json", {"input": source.name, "model": str(opened.folder)} | metrics)
    return text
