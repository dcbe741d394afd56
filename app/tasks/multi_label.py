"""Several labels a row: each label has a threshold, chosen on dev."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.label_shares import rows_of_labels
from ..errors import InputError
from .decision_file import FITTED_ON, number_between
from .probabilities import logit, sigmoid
from .scores import Scores
from .task import Task
from .thresholds import DEFAULT_THRESHOLD, choose_thresholds


def binary_loss(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return the mean cross entropy of the labels of each row, (num_rows,), for labels of 0 and 1 and logits,
    both (num_rows, num_labels)."""
    return (np.logaddexp(0, logits) - labels * logits).mean(axis=1)


class MultiLabel(Task):
    """Labels, predictions, logits and probabilities are (num_rows, num_labels).

    A row has the labels whose probability is at least their threshold. `thresholds` (num_labels,) float64 are
    chosen on `num_fitted_rows` of dev.
    """

    name = "multi_label"
    problem_type = "multi_label_classification"
    main_metric = "micro_f1"
    log_metrics = ("loss", "micro_f1", "macro_f1", "subset_accuracy")
    baseline_metrics = ("micro_f1", "macro_f1")
    answer_column = "labels"
    right_rows_name = "rows with all labels right"

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.thresholds = np.full(len(label_names), DEFAULT_THRESHOLD)
        self.chosen_on: str | None = None
        self.num_fitted_rows = 0

    def build_loss(self, labels: np.ndarray) -> Any:
        from .losses import ListLoss

        if labels.dtype.kind == "f" and self.config.train.loss == "focal":
            raise InputError(
                "train.loss focal needs rows with labels, found rows with probabilities or votes: it counts "
                "a label less the surer the model is of it. Leave it out"
            )
        counts = rows_of_labels(labels, len(self.label_names))
        counts_without = len(labels) - counts
        balanced = np.maximum(counts_without, 1) / counts
        weights = self.label_weights(balanced)
        # From 0, where every label has a probability of one half, most steps of a training with many rare
        # labels would only lower all logits. A positive weight counts as so many rows.
        odds = (counts + 0.5) / (counts_without + 0.5)
        if weights is not None:
            odds = odds * weights.cpu().numpy()
        self.head_bias = np.log(odds).astype(np.float32)
        self.losses_per_row = len(self.label_names)
        return ListLoss(self.config.train.loss, weights)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        return sigmoid(logits)

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities - self.thresholds >= 0

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure decisions are, (num_rows,). The decision on a row is as sure as that on its least
        certain label. The decision on a label is as sure as its probability says, after the logits were moved
        so that the threshold is one half."""
        moved = sigmoid(logit(probabilities) - logit(self.thresholds))
        return np.maximum(moved, 1 - moved).min(axis=1)

    def log_odds(self, outputs: Any, label: int) -> Any:
        return outputs[:, label]

    def fit(self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray | None = None) -> None:
        self.thresholds = choose_thresholds(np.asarray(labels), sigmoid(logits))
        self.chosen_on = FITTED_ON
        self.num_fitted_rows = len(labels)

    def together_with(self, others: Sequence[Task]) -> Task:
        together = super().together_with(others)
        thresholds = [self.thresholds]
        for task in others:
            order = [task.label_names.index(name) for name in self.label_names]
            thresholds.append(task.thresholds[order])
        together.thresholds = np.mean(thresholds, axis=0)
        return together

    def sharpened_loss(self, labels: np.ndarray, logits: np.ndarray, sharpness: float) -> np.ndarray:
        return binary_loss(labels, logits)

    def scaled_outputs(self) -> np.ndarray:
        return np.ones(len(self.label_names), bool)

    def state(self) -> dict:
        thresholds = dict(zip(self.label_names, self.thresholds.tolist(), strict=True))
        fitted = {"thresholds": thresholds, "chosen_on": self.chosen_on, "rows": self.num_fitted_rows}
        return super().state() | fitted

    def load(self, values: dict) -> None:
        thresholds = []
        for name in self.label_names:
            thresholds.append(number_between(f"the threshold of {name}", values["thresholds"][name]))
        self.thresholds = np.array(thresholds)
        self.chosen_on = values.get("chosen_on")
        self.num_fitted_rows = int(values.get("rows") or 0)

    def score(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        predicted: np.ndarray | None = None,
        calibrated: bool = False,
    ) -> Scores:
        labels = np.asarray(labels, dtype=bool)
        logits = np.asarray(logits, dtype=np.float64)
        thresholds = None
        if predicted is None:
            predicted = self.decide(logits)
            thresholds = self.thresholds
        num_wrong = (predicted != labels).sum(axis=1)
        figures = {
            "labels_per_row": float(labels.sum(axis=1).mean()),
            "predicted_per_row": float(predicted.sum(axis=1).mean()),
        }
        return Scores(
            labels,
            predicted,
            correct=num_wrong == 0,
            loss=binary_loss(labels, logits),
            num_wrong=num_wrong,
            thresholds=thresholds,
            figures=figures,
        )

    def answer(self, label: np.ndarray) -> list[str]:
        return [self.label_names[index] for index in np.flatnonzero(label)]
