"""Several labels a row, or several paths: each label has a threshold, chosen on dev."""

from __future__ import annotations

from typing import Any

import numpy as np

from .task import DEFAULT_THRESHOLD, FITTED_ON, Scores, Task, checked, choose_thresholds, logit, sigmoid
from .tree import HIERARCHY


class MultiLabel(Task):
    """Labels, predictions, logits and probabilities are (num_rows, num_labels); a row has the labels with a
    probability from their threshold on, `thresholds` (num_labels,) float64, chosen on `rows` of dev."""

    name = "multi_label"
    problem_type = "multi_label_classification"
    main_metric = "micro_f1"
    log_metrics = ("loss", "micro_f1", "macro_f1", "subset_accuracy")
    baseline_metrics = ("micro_f1", "macro_f1")
    answer_column, right_rows_name = "labels", "rows with all labels right"

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.thresholds = np.full(len(label_names), DEFAULT_THRESHOLD)
        self.chosen_on: str | None = None
        self.rows = 0

    def build_loss(self, labels: np.ndarray) -> Any:
        from .losses import ListLoss

        train, counts = self.config.train, labels.sum(axis=0, dtype=np.int64)
        balanced = np.maximum(len(labels) - counts, 1) / counts
        weights = self.label_weights(balanced)
        # From 0, where every label has a probability of one half, most steps of a training with many rare
        # labels would only lower all logits. A positive weight counts as so many rows.
        odds = (counts + 0.5) / (len(labels) - counts + 0.5)
        self.head_bias = np.log(odds if weights is None else odds * weights.cpu().numpy()).astype(np.float32)
        self.losses_per_row = len(self.label_names)
        return ListLoss(train.loss, weights)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        return sigmoid(logits)

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities - self.thresholds >= 0

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure decisions are, (num_rows,): that on a row is as sure as its least certain label,
        and that on a label as its probability says, with logits moved so that the threshold is one half."""
        moved = sigmoid(logit(probabilities) - logit(self.thresholds))
        return np.maximum(moved, 1 - moved).min(axis=1)

    def fit(self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray | None = None) -> None:
        self.thresholds = choose_thresholds(np.asarray(labels), sigmoid(logits))
        self.chosen_on, self.rows = FITTED_ON, len(labels)

    def state(self) -> dict:
        thresholds = dict(zip(self.label_names, self.thresholds.tolist(), strict=True))
        return super().state() | {"thresholds": thresholds, "chosen_on": self.chosen_on, "rows": self.rows}

    def load(self, values: dict) -> None:
        of_labels = [(f"the threshold of {name}", values["thresholds"][name]) for name in self.label_names]
        self.thresholds = np.array([checked(*of_label) for of_label in of_labels])
        self.chosen_on, self.rows = values.get("chosen_on"), int(values.get("rows") or 0)

    def score(self, labels, logits, predicted=None, calibrated=False) -> Scores:
        labels, logits = np.asarray(labels, dtype=bool), np.asarray(logits, dtype=np.float64)
        decided = self.decide(logits) if predicted is None else predicted
        num_wrong = (decided != labels).sum(axis=1)
        loss = (np.logaddexp(0, logits) - labels * logits).mean(axis=1)
        per_row = {"labels_per_row": labels, "predicted_per_row": decided}
        figures = {name: float(of.sum(axis=1).mean()) for name, of in per_row.items()}
        found = {"num_wrong": num_wrong, "thresholds": self.thresholds if predicted is None else None}
        return Scores(labels, decided, num_wrong == 0, loss, **found, figures=figures)

    def answer(self, label: np.ndarray) -> list[str]:
        return [self.label_names[index] for index in np.flatnonzero(label)]

    def log_odds(self, outputs: Any, label: int) -> Any:
        return outputs[:, label]


class MultiPath(MultiLabel):
    """Several paths a row, or none; of a predicted path and one that ends above it, the longer one stays."""

    name = "multi_path"
    problem_type = "multi_path_classification"
    log_metrics = ("loss", "micro_f1", "hierarchical_f1", "macro_f1")
    baseline_metrics = ("micro_f1", "hierarchical_f1")
    config_keys = (HIERARCHY,)

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        reached = super().decide_by_probabilities(probabilities)
        at_or_below = reached.astype(np.float64) @ self.tree.members
        return reached & (at_or_below[:, self.tree.own] == 1)
