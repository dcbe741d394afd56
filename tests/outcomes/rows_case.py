"""Rows with random logits for the tests: of one label a row, and of several."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.evaluation.logits_file import SplitLogits
from app.evaluation.page.evaluated_rows import EvaluatedRows
from app.evaluation.page.report_page import PageContent
from app.outcomes import open_outcome
from app.outcomes.labelled_outcome import LabelledOutcome
from app.outcomes.resampling import all_metrics, counted

TASKS = ("single_label", "multi_label")


def random_rows(task: str, num_rows: int, num_labels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, as the outcome of `task` has them, and logits that have something to do with them."""
    generator = np.random.default_rng(seed)
    if task == "multi_label":
        labels = (generator.random((num_rows, num_labels)) < 0.3).astype(np.uint8)
        return labels, (labels * 2.0 - 1 + generator.normal(0, 1.5, labels.shape)).astype(np.float32)
    labels = generator.integers(0, num_labels, num_rows)
    logits = generator.normal(0, 1, (num_rows, num_labels)).astype(np.float32)
    logits[np.arange(num_rows), labels] += 3
    return labels, logits


def fitted_outcome(task: str, names: list[str], labels: np.ndarray, logits: np.ndarray) -> LabelledOutcome:
    """Return an outcome whose decision was fitted on rows."""
    outcome, ids = open_outcome(task, names), np.arange(len(labels))
    outcome.fit(SplitLogits(ids, labels, ids.astype(np.uint64), logits))
    return outcome


def measured(labels: np.ndarray, logits: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Return the metrics of rows of one label each."""
    outcome = open_outcome("single_label", names)
    return outcome.measure(outcome.score(labels, logits))


def report_metrics(outcome: LabelledOutcome, labels: np.ndarray, logits: np.ndarray) -> dict[str, Any]:
    """Return the metrics of a report on rows, with made-up baselines."""
    metrics = all_metrics(outcome, outcome.score(labels, logits)) | {"step": 20}
    keys = [metric.key for metric in counted(outcome)]
    baseline = dict.fromkeys(keys, 0.25) | {"rows": len(labels)}
    baseline["intervals"] = {key: [0.2, 0.3] for key in keys}
    frequent = "majority class" if outcome.task == "single_label" else "most frequent set"
    metrics["baselines"] = {frequent: baseline, "TF-IDF + logistic regression": baseline}
    if effect := outcome.effect_of_fit(labels, logits, "test"):
        metrics["calibration"] = outcome.fitted_values() | effect
    return metrics


def page_content(
    task: str, num_rows: int, names: list[str], text=lambda at: f"文本 {at}"
) -> tuple[LabelledOutcome, PageContent]:
    """Return a page about `num_rows` rows, most of them right; `text` gives the text of each."""
    labels, logits = random_rows(task, num_rows, len(names))
    outcome = fitted_outcome(task, names, labels, logits)
    generator = np.random.default_rng(0)
    lengths, unknown = generator.integers(3, 60, num_rows), generator.choice([0, 0.01, 0.05, 0.5], num_rows)
    scores = outcome.score(labels, logits)
    rows = EvaluatedRows(scores, names, text, "test.tsv, line {}".format, lengths, unknown, unknown > 0.02)
    history = [
        {"step": step, "split": "dev"} | dict.fromkeys(outcome.log_metrics, 1 - 1 / step)
        for step in range(10, 60, 10)
    ]
    of_split = {"rows": num_rows, "repeated": 3, "conflicting": 1, "also_in": {"train": 2}}
    data = {"test": of_split | {"classes": dict.fromkeys(names, 1)}}
    metrics = report_metrics(outcome, labels, logits)
    calibrated = outcome.calibrated(labels, logits)
    return outcome, PageContent("run-001 · Report", rows, metrics, calibrated, history, data)
