"""Labels and logits -> metrics."""

from __future__ import annotations

import math

import numpy as np

# Logits in double precision at once: 32 MiB
CHUNK_NUMBERS = 1 << 22
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


def cross_entropy(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the mean over rows of -log(probability of the row's label)."""
    step = max(1, CHUNK_NUMBERS // logits.shape[1])
    losses = np.empty(len(labels))
    for start in range(0, len(labels), step):
        chunk, chunk_labels = logits[start : start + step].astype(np.float64), labels[start : start + step]
        chunk -= chunk.max(axis=-1, keepdims=True)
        of_labels = chunk[np.arange(len(chunk)), chunk_labels]
        losses[start : start + step] = np.log(np.exp(chunk).sum(axis=-1)) - of_labels
    return float(losses.mean())


def compute_metrics(labels: np.ndarray, logits: np.ndarray, label_names: list[str]) -> dict:
    """Return precision, recall, F1 and support of each class, accuracy, macro and weighted averages, loss,
    confusion matrix.

    `labels` (num_rows,) class ids, `logits` (num_rows, num_labels). `loss` is the mean cross entropy over
    rows, without label smoothing or class weights. `confusion_matrix[i][j]` counts rows of class i predicted
    as j; with more than `MAX_CLASSES` classes there are `confusions` instead, [label, predicted, rows] of
    each wrong pair that occurs, the most frequent first. A class that is never predicted has precision 0.
    """
    from sklearn.metrics import precision_recall_fscore_support

    predicted = logits.argmax(axis=1)
    ids = np.arange(len(label_names))
    names = ("precision", "recall", "f1", "support")

    def scores(average: str | None) -> tuple:
        return precision_recall_fscore_support(
            labels, predicted, labels=ids, average=average, zero_division=0
        )

    by_class = zip(*scores(None), strict=True)
    metrics = {
        "rows": len(labels),
        "loss": cross_entropy(labels, logits),
        "accuracy": float((predicted == labels).mean()),
        "classes": {
            label: dict(zip(names, (float(p), float(r), float(f), int(s)), strict=True))
            for label, (p, r, f, s) in zip(label_names, by_class, strict=True)
        },
        **_confusion(labels, predicted, label_names),
    }
    for average in ("macro", "weighted"):
        metrics[average] = dict(zip(names[:3], map(float, scores(average)[:3]), strict=True))
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


def is_better(value: float, best: float | None, metric: str) -> bool:
    """Return whether `value` of `metric` is better than the best so far: a lower loss, else a higher value;
    any than NaN."""
    if best is None or math.isnan(best):
        return best is None or not math.isnan(value)
    return value < best if metric == "loss" else value > best
