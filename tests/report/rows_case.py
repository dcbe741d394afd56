"""Rows with random logits for the tests: of one label a row, and of several."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.report.bootstrap import all_metrics
from app.report.metrics import measure, metrics_of
from app.report.shown import calibration_effect
from app.tasks import open_task
from app.tasks.task import Task

TASKS = ("single_label", "multi_label")


def random_rows(name: str, num_rows: int, num_labels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, as the task `name` has them, and logits that have something to do with them."""
    generator = np.random.default_rng(seed)
    if name == "multi_label":
        labels = (generator.random((num_rows, num_labels)) < 0.3).astype(np.uint8)
        return labels, (labels * 2.0 - 1 + generator.normal(0, 1.5, labels.shape)).astype(np.float32)
    labels = generator.integers(0, num_labels, num_rows)
    logits = generator.normal(0, 1, (num_rows, num_labels)).astype(np.float32)
    logits[np.arange(num_rows), labels] += 3
    return labels, logits


def fitted_task(name: str, names: list[str], labels: np.ndarray, logits: np.ndarray) -> Task:
    """Return a task whose decision was fitted on rows."""
    task = open_task(name, names)
    task.fit(labels, logits, np.arange(len(labels), dtype=np.uint64))
    return task


def measured(labels: np.ndarray, logits: np.ndarray, names: list[str], name: str = "single_label") -> dict:
    """Return the metrics of rows without intervals, decided by the defaults."""
    task = open_task(name, names)
    return measure(task, task.score(labels, logits))


def report_metrics(task: Task, labels: np.ndarray, logits: np.ndarray) -> dict[str, Any]:
    """Return the metrics of a report on rows, with made-up baselines."""
    metrics = all_metrics(task, task.score(labels, logits)) | {"step": 20}
    keys = [metric.key for metric in metrics_of(task) if metric.of_answers and metric.has_interval]
    baseline = dict.fromkeys(keys, 0.25) | {"rows": len(labels)}
    baseline["intervals"] = {key: [0.2, 0.3] for key in keys}
    frequent = "majority class" if task.name == "single_label" else "most frequent set"
    metrics["baselines"] = {frequent: baseline, "TF-IDF + logistic regression": baseline}
    if effect := calibration_effect(task, labels, logits, "test"):
        metrics["calibration"] = task.state() | effect
    return metrics


def page_content(name: str, num_rows: int, names: list[str], text=lambda at: f"文本 {at}", **changes) -> dict:
    """Return what `render_page` gets about rows, most of them right; `text` gives the text of each."""
    labels, logits = random_rows(name, num_rows, len(names))
    task, generator = fitted_task(name, names, labels, logits), np.random.default_rng(0)
    of_split = {"rows": num_rows, "repeated": 3, "conflicting": 1, "also_in": {"train": 2}}
    values = {
        "page_title": "run-001 · Report",
        "task": task,
        "scores": task.score(labels, logits),
        "metrics": report_metrics(task, labels, logits),
        "text": text,
        "where": "test.tsv, line {}".format,
        "calibrated": task.score(labels, logits, calibrated=True) if task.fitted else None,
        "lengths": generator.integers(3, 60, num_rows),
        "readings": generator.integers(0, 3, num_rows),
        "seen": generator.integers(0, 2, num_rows),
        "history": [
            {"step": step, "split": "dev"} | dict.fromkeys(task.log_metrics, 1 - 1 / step)
            for step in range(10, 60, 10)
        ],
        "data": {"test": of_split | {"classes": dict.fromkeys(names, 1)}},
    }
    return values | changes
