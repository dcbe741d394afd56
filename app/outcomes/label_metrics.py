"""Scores of rows with labels -> precision, recall and F1 of each label, averages, and confusions."""

from typing import Any, NamedTuple

import numpy as np

from .label_list_scores import LabelListScores

# With a confusion matrix that is written out, zeros and all
MAX_CLASSES = 50
SCORES = ("precision", "recall", "f1")
# Of several labels a row
MULTI_LABEL_AVERAGES = ("micro", "macro", "weighted")


def label_metrics(scores: Any, label_names: list[str], averages: tuple[str, ...]) -> dict:
    """Return precision, recall, F1 and support of each label in `classes`, and their averages by name. A
    label that is never predicted has precision 0."""
    from sklearn.metrics import precision_recall_fscore_support

    def averaged(average: str | None) -> tuple:
        ids = np.arange(len(label_names))
        return precision_recall_fscore_support(
            scores.labels, scores.predicted, labels=ids, average=average, zero_division=0
        )

    by_label = zip(label_names, *averaged(None), strict=True)
    metrics: dict = {
        "classes": {
            name: {"precision": float(p), "recall": float(r), "f1": float(f), "support": int(support)}
            for name, p, r, f, support in by_label
        }
    }
    for average in averages:
        metrics[average] = dict(zip(SCORES, map(float, averaged(average)[:3]), strict=True))
        metrics[f"{average}_f1"] = metrics[average]["f1"]
    return metrics


def multi_label_metrics(scores: LabelListScores, label_names: list[str]) -> dict:
    """Return metrics of rows and labels, averages, and the threshold of each label. `loss` has no positive
    weights; in `samples_f1` a row without labels that gets none has 1."""
    from sklearn.metrics import f1_score

    labels, predicted = scores.labels, scores.predicted
    metrics = {
        "rows": len(scores),
        "loss": float(scores.loss.mean()),
        "subset_accuracy": float(scores.correct.mean()),
        "hamming_loss": float((labels != predicted).mean()),
        "samples_f1": float(f1_score(labels, predicted, average="samples", zero_division=1)),
        "labels_per_row": float(labels.sum(axis=1).mean()),
        "predicted_per_row": float(predicted.sum(axis=1).mean()),
        **label_metrics(scores, label_names, MULTI_LABEL_AVERAGES),
    }
    if scores.rule is not None:
        for name, threshold in zip(label_names, scores.rule.thresholds, strict=True):
            metrics["classes"][name]["threshold"] = float(threshold)
    return metrics


def confusions(labels: np.ndarray, predicted: np.ndarray, label_names: list[str]) -> dict:
    """Return `confusion_matrix[i][j]`, the rows of class i predicted as j; with more than `MAX_CLASSES`
    classes `confusions` instead, [label, predicted, rows] of each wrong pair, the most frequent first."""
    num_labels = len(label_names)
    if num_labels <= MAX_CLASSES:
        cells = np.bincount(labels * num_labels + predicted, minlength=num_labels**2)
        return {"confusion_matrix": cells.reshape(num_labels, num_labels).tolist()}
    pairs = confused_pairs(labels, predicted, num_labels)
    return {"confusions": [[label_names[label], label_names[other], rows] for label, other, rows in pairs]}


def confused_pairs(labels: np.ndarray, predicted: np.ndarray, num_labels: int) -> list[tuple[int, int, int]]:
    """Return the pairs of true and predicted class that differ, with their rows, the most frequent first."""
    wrong = labels != predicted
    pairs, counts = np.unique(labels[wrong] * num_labels + predicted[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(int(pairs[at]) // num_labels, int(pairs[at]) % num_labels, int(counts[at])) for at in order]


class MixedPair(NamedTuple):
    """Two classes that are taken for each other: `rows` of the `of` rows of `label` for `other`, and
    `other_rows` of `other_of` the other way."""

    label: str
    other: str
    rows: int
    of: int
    other_rows: int
    other_of: int

    @property
    def share(self) -> float:
        """The smaller share of the two directions."""
        return min(self.rows / self.of, self.other_rows / self.other_of)


def mixed_pairs(metrics: dict) -> list[MixedPair]:
    """Return the pairs of classes that are taken for each other in both directions, of a report's metrics."""
    names = list(metrics["classes"])
    wrong = {(label, other): rows for label, other, rows in metrics.get("confusions", ())}
    for label, line in zip(names, metrics.get("confusion_matrix", ()), strict=False):
        wrong |= {(label, other): rows for other, rows in zip(names, line, strict=True) if rows}
    of = {name: scores["support"] for name, scores in metrics["classes"].items()}
    return [
        MixedPair(label, other, rows, of[label], wrong[other, label], of[other])
        for (label, other), rows in wrong.items()
        if label < other and (other, label) in wrong
    ]


def worst_labels(classes: dict, count: int) -> dict:
    """Return the `count` labels with the lowest F1 among those with rows; of equal ones the larger first."""
    with_rows = [
        (scores["f1"], -scores["support"], name) for name, scores in classes.items() if scores["support"]
    ]
    return {name: classes[name] for _, _, name in sorted(with_rows)[:count]}
