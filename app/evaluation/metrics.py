"""Labels and logits -> metrics."""

from __future__ import annotations

import numpy as np

from .measures.row_scores import RowScores, score_rows

# With a confusion matrix that is written out, zeros and all
MAX_CLASSES = 50


def check_rows(positions: np.ndarray, num_rows: int, split: str) -> None:
    """Raise RuntimeError unless `positions`, int64, holds each row position from 0 to num_rows - 1 exactly
    once."""
    counts = np.bincount(positions, minlength=num_rows) if len(positions) else np.zeros(num_rows, int)
    if len(counts) != num_rows or (counts != 1).any():
        missing, repeated = int((counts[:num_rows] == 0).sum()), int((counts > 1).sum())
        raise RuntimeError(
            f"every row of {split} must be evaluated exactly once; of {num_rows:,} rows {missing:,} are "
            "missing and "
            f"{repeated:,} repeated, so there is no report"
        )


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return softmax over the last axis, float64, of logits (num_rows, num_labels)."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def compute_metrics(labels: np.ndarray, logits: np.ndarray, label_names: list[str]) -> dict:
    """Return the metrics of `score_metrics` for class ids, (num_rows,), and logits (num_rows, num_labels)."""
    return score_metrics(score_rows(labels, logits), label_names)


def score_metrics(scores: RowScores, label_names: list[str]) -> dict:
    """Return precision, recall, F1 and support of each class, accuracy, macro and weighted averages, loss,
    confusion matrix.

    `loss` is the mean cross entropy over rows, without label smoothing or class weights.
    `confusion_matrix[i][j]` counts rows of class i predicted as j; with more than `MAX_CLASSES` classes there
    are `confusions` instead, [label, predicted, rows] of each wrong pair that occurs, the most frequent
    first. A class that is never predicted has precision 0.
    """
    from sklearn.metrics import precision_recall_fscore_support

    labels, predicted = scores.labels, scores.predicted
    ids = np.arange(len(label_names))
    names = ("precision", "recall", "f1", "support")

    def averaged(average: str | None) -> tuple:
        return precision_recall_fscore_support(
            labels, predicted, labels=ids, average=average, zero_division=0
        )

    by_class = zip(*averaged(None), strict=True)
    metrics = {
        "rows": len(labels),
        "loss": float(scores.loss.mean()),
        "accuracy": float((predicted == labels).mean()),
        "classes": {
            label: dict(zip(names, (float(p), float(r), float(f), int(s)), strict=True))
            for label, (p, r, f, s) in zip(label_names, by_class, strict=True)
        },
        **_confusion(labels, predicted, label_names),
    }
    for average in ("macro", "weighted"):
        metrics[average] = dict(zip(names[:3], map(float, averaged(average)[:3]), strict=True))
        metrics[f"{average}_f1"] = metrics[average]["f1"]
    return metrics


def _confusion(labels: np.ndarray, predicted: np.ndarray, label_names: list[str]) -> dict:
    size = len(label_names)
    cells = labels * size + predicted
    if size <= MAX_CLASSES:
        return {"confusion_matrix": np.bincount(cells, minlength=size * size).reshape(size, size).tolist()}
    pairs, counts = np.unique(cells[labels != predicted], return_counts=True)
    by_count = np.argsort(-counts, kind="stable")
    pairs = zip(
        (pairs[by_count] // size).tolist(),
        (pairs[by_count] % size).tolist(),
        counts[by_count].tolist(),
        strict=True,
    )
    return {"confusions": [[label_names[true], label_names[other], count] for true, other, count in pairs]}
