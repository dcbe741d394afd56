"""(labels, logits) -> the numbers, and the printed precision/recall report."""

from __future__ import annotations

import math

import numpy as np


def check_rows(found: np.ndarray, num_rows: int, split: str) -> None:
    """Raise RuntimeError unless `found` holds each of the row positions 0 to num_rows - 1 exactly once."""
    counts = np.bincount(found, minlength=num_rows) if len(found) else np.zeros(num_rows, int)
    if len(counts) != num_rows or (counts != 1).any():
        missing, repeated = int((counts[:num_rows] == 0).sum()), int((counts > 1).sum())
        raise RuntimeError(
            f"every row of {split} must count exactly once; of {num_rows:,} rows {missing:,} are missing and "
            f"{repeated:,} repeated, so no report is made"
        )


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return softmax over the last axis, float64, of logits (num_rows, num_labels)."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def cross_entropy(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the mean over rows of -log(probability of the row's label)."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(axis=-1)) - shifted[np.arange(len(labels)), labels]).mean())


def compute_metrics(labels: np.ndarray, logits: np.ndarray, label_names: list[str]) -> dict:
    """Return precision, recall, F1 and support of each class, accuracy, macro and weighted means, loss, confusion matrix.

    `labels` (num_rows,) class ids, `logits` (num_rows, num_labels). `loss` is the mean cross entropy over rows, without
    label smoothing or class weights. `confusion_matrix[i][j]` counts rows of class i predicted as j. A class that is never
    predicted has precision 0.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    predicted = logits.argmax(axis=1)
    ids = np.arange(len(label_names))
    figures = ("precision", "recall", "f1", "support")

    def scores(average: str | None) -> tuple:
        return precision_recall_fscore_support(labels, predicted, labels=ids, average=average, zero_division=0)

    by_class = zip(*scores(None), strict=True)
    metrics = {
        "rows": len(labels),
        "loss": cross_entropy(labels, logits),
        "accuracy": float((predicted == labels).mean()),
        "classes": {
            name: dict(zip(figures, (float(p), float(r), float(f), int(s)), strict=True))
            for name, (p, r, f, s) in zip(label_names, by_class, strict=True)
        },
        "confusion_matrix": confusion_matrix(labels, predicted, labels=ids).tolist(),
    }
    for average in ("macro", "weighted"):
        metrics[average] = dict(zip(figures[:3], map(float, scores(average)[:3]), strict=True))
        metrics[f"{average}_f1"] = metrics[average]["f1"]
    return metrics


def is_better(value: float, best: float | None, metric: str) -> bool:
    """Return whether `value` of `metric` is better than the best so far; a loss is better when lower, anything than NaN."""
    if best is None or math.isnan(best):
        return best is None or not math.isnan(value)
    return value < best if metric == "loss" else value > best
