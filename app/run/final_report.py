"""The report of a finished run: printed, and written into its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from app.checkpoints.run_contents import REPORT, REPORT_FILES
from app.evaluation.predictions import write_predictions
from app.evaluation.report import render_report
from app.run.assembly import Components
from app.runtime.disk import write_json, write_text
from app.training.state import RunState

NOTES = {
    "test": "",
    "dev": "; there is no test split, so these rows also chose the checkpoint",
    "train": "; the rows it was trained on",
}


def report_split(components: Components) -> str:
    """Return the split to report on: test, else dev, else train."""
    return next(name for name in NOTES if name in components.loaders)


def report_title(split: str, state: RunState, best_metric: str) -> str:
    """Return the first line of the report: which rows, which checkpoint, and how it was chosen."""
    chosen = "" if state.best_value is None else f", chosen by {best_metric} on dev {state.best_value:.4f}"
    return f"Report on {split}: checkpoint of step {state.best_step}{chosen}{NOTES[split]}"


def print_and_write(
    folder: Path,
    components: Components,
    split: str,
    state: RunState,
    best_metric: str,
    metrics: dict,
    logits: np.ndarray,
) -> None:
    """Print the report; write report.txt, predictions.csv and, last, report.json, which marks the run as finished.

    `metrics` of `compute_metrics`, `logits` (num_rows, num_labels) of the split.
    """
    text = render_report(metrics, report_title(split, state, best_metric))
    print(f"\n{text}\n")  # noqa: T201
    text_file, predictions, _ = (folder / name for name in REPORT_FILES)
    write_text(text_file, text + "\n")
    write_predictions(predictions, components.loaders[split].split, logits, components.dataset.label_names)
    details = {"split": split, "step": state.best_step, "data": components.dataset.statistics}
    write_json(folder / REPORT, details | metrics)
