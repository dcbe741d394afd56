"""The figures that say how good and how sure a classifier is, with their intervals."""

from __future__ import annotations

from .calibration_error import confidence_bins
from .intervals import score_intervals
from .row_scores import RowScores

NAMES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "loss": "loss",
    "brier": "Brier score",
    "ece": "calibration error",
    "micro_f1": "micro F1",
    "samples_f1": "samples F1",
    "subset_accuracy": "subset accuracy",
}


def summarize(scores: RowScores, num_labels: int) -> dict:
    """Return `brier` (the mean score), `ece` (the expected calibration error) and `intervals`, 95 %, by the
    name of the figure."""
    return {
        "brier": float(scores.brier.mean()),
        "ece": confidence_bins(scores.confidence, scores.correct).error,
        "intervals": {name: list(ends) for name, ends in score_intervals(scores, num_labels).items()},
    }


def render_summary(
    metrics: dict, names: dict[str, str] = NAMES, of_baselines: tuple[str, ...] = ("accuracy", "macro_f1")
) -> str:
    """Return lines for people: each figure of `names` with its interval, and figures of the baselines.

    `metrics` are those of `compute_metrics` and of `summarize`, or as they are for label sets.
    """
    lines = ["95 % intervals (bootstrap over the rows)"]
    for name, (low, high) in metrics["intervals"].items():
        lines.append(f"  {names[name]:17} {metrics[name]:.4f}   {low:.4f} to {high:.4f}")
    for baseline, figures in metrics.get("baselines", {}).items():
        of_rows = "" if figures["rows"] == metrics["rows"] else f" (on {figures['rows']:,} rows)"
        shown = ", ".join(f"{names[name]} {figures[name]:.4f}" for name in of_baselines)
        lines.append(f"  {baseline}: {shown}{of_rows}")
    return "\n".join(lines)
