"""Several labels a row: each label has a threshold, chosen on dev."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..text_table import short_label
from .task import (
    DEFAULT_THRESHOLD,
    FITTED_ON,
    Scores,
    Task,
    best_threshold,
    check_probability,
    logit,
    sigmoid,
)
from .tree import HIERARCHY


class MultiLabel(Task):
    """Labels, predictions, logits and probabilities are (num_rows, num_labels); a row has the labels with a
    probability from their threshold on, `thresholds` (num_labels,) float64, chosen on `rows` of dev."""

    name = "multi_label"
    problem_type = "multi_label_classification"
    log_metrics = ("loss", "micro_f1", "macro_f1", "subset_accuracy")
    beside_baselines = ("micro_f1", "macro_f1")
    label_column, right_rows = "labels", "rows with all labels right"
    says_chosen = True

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.thresholds = np.full(len(label_names), DEFAULT_THRESHOLD)
        self.chosen_on: str | None = None
        self.rows = self.labels_without_rows = 0
        self.decides_at_zero = False

    def build_loss(self, labels: np.ndarray) -> Any:
        from .losses import ListLoss, label_weights

        train, counts = self.config.train, labels.sum(axis=0, dtype=np.int64)
        weights = label_weights(train.class_weights, counts, self.label_names, self.device, len(labels))
        # From 0, where every label has a probability of one half, most steps of a training with many rare
        # labels would only lower all logits. A positive weight counts as so many rows.
        odds = (counts + 0.5) / (len(labels) - counts + 0.5)
        self.log_odds_of_train = np.log(odds if weights is None else odds * weights.cpu().numpy())
        # One loss a row, which has the labels with a logit from 0 on
        self.decides_at_zero = train.loss == "zlpr"
        self.losses_per_row = 1 if self.decides_at_zero else len(self.label_names)
        return ListLoss(train.loss, weights)

    def head_bias(self) -> np.ndarray:
        return self.log_odds_of_train.astype(np.float32)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        return sigmoid(logits)

    def reached(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities - self.thresholds >= 0

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        return self.reached(probabilities)

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure decisions are, (num_rows,): that on a row is as sure as its least certain label,
        and that on a label as its probability says, with logits moved so that the threshold is one half."""
        moved = self.moved(probabilities)
        return np.where(self.reached(probabilities), moved, 1 - moved).min(axis=1)

    def moved(self, probabilities: np.ndarray) -> np.ndarray:
        return sigmoid(logit(probabilities) - logit(self.thresholds))

    def choose(self, labels: np.ndarray, logits: np.ndarray) -> None:
        if not self.decides_at_zero:
            self.choose_by(np.asarray(labels), sigmoid(logits))

    def choose_by(self, labels: np.ndarray, probabilities: np.ndarray) -> None:
        """Decide by the thresholds that are best for rows of dev, (num_rows, num_labels) both."""
        self.thresholds = choose_thresholds(labels, probabilities)
        self.chosen_on, self.rows = FITTED_ON, len(labels)
        self.labels_without_rows = int((~np.asarray(labels, bool).any(axis=0)).sum())

    def state(self) -> dict:
        return self.of_model() | self.label_rule()

    def label_rule(self) -> dict:
        thresholds = dict(zip(self.label_names, self.thresholds.tolist(), strict=True))
        return {"thresholds": thresholds, "chosen_on": self.chosen_on, "rows": self.rows}

    def load(self, values: dict) -> None:
        self.use_hierarchy(values.get(HIERARCHY, self.separator))
        if set(values) <= set(self.in_config):
            return
        thresholds = [values["thresholds"][name] for name in self.label_names]
        for name, threshold in zip(self.label_names, thresholds, strict=True):
            check_probability(threshold, name)
        self.thresholds = np.array(thresholds, np.float64)
        self.chosen_on, self.rows = values.get("chosen_on"), int(values.get("rows") or 0)

    def held_out(self, labels, logits, hashes) -> tuple[np.ndarray, np.ndarray]:
        """Return it of rows that chose the thresholds, which look too good there: each row is decided by
        thresholds of other rows. Of the half that chooses a threshold of confidence, one half is decided by
        the other, and the rest by all of them. Thresholds that a person has set are used as they are."""
        labels, probabilities = np.asarray(labels, bool), sigmoid(logits)
        quarter = np.asarray(hashes) % 4
        is_chosen = np.allclose(self.thresholds, choose_thresholds(labels, probabilities))
        confidence, correct = np.empty(len(labels)), np.empty(len(labels), bool)
        for decided, choosing in (((0,), (2,)), ((2,), (0,)), ((1, 3), (0, 2))):
            rows, others = np.isin(quarter, decided), np.isin(quarter, choosing)
            by_others = self.without_fit()
            by_others.thresholds = self.thresholds
            if is_chosen:
                by_others.choose_by(labels[others], probabilities[others])
            confidence[rows] = by_others.confidence(probabilities[rows])
            correct[rows] = (by_others.reached(probabilities[rows]) == labels[rows]).all(axis=1)
        return confidence, correct

    def score(self, labels, logits, predicted=None, calibrated=False) -> Scores:
        labels, logits = np.asarray(labels, dtype=bool), np.asarray(logits, dtype=np.float64)
        decided = self.decide(logits) if predicted is None else predicted
        num_wrong = (decided != labels).sum(axis=1)
        return Scores(
            labels,
            decided,
            num_wrong == 0,
            loss=(np.logaddexp(0, logits) - labels * logits).mean(axis=1),
            num_wrong=num_wrong,
            thresholds=self.thresholds if predicted is None else None,
            figures={
                "labels_per_row": float(labels.sum(axis=1).mean()),
                "predicted_per_row": float(decided.sum(axis=1).mean()),
            },
        )

    def answer(self, label: np.ndarray) -> list[str]:
        return [self.label_names[index] for index in np.flatnonzero(label)]

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        record: dict[str, Any] = {}
        if threshold is not None:
            confidence = float(self.confidence(probabilities[None])[0])
            sure = self.sure_labels(probabilities, threshold) if self.tree else []
            otherwise = "partial" if sure else "abstain"
            record["decision"] = "accept" if confidence >= threshold else otherwise
            record["confidence"] = round(confidence, 6)
            record |= {"sure_labels": sure} if self.tree else {}
        return record | self.probability_columns(probabilities)

    def explained_labels(self, probabilities: np.ndarray) -> list[int]:
        reached = np.flatnonzero(self.reached(probabilities[None])[0])
        return reached[np.argsort(-probabilities[reached], kind="stable")].tolist()

    def log_odds(self, outputs: Any, label: int) -> Any:
        return outputs[:, label]

    def ranked_labels(self, probabilities: np.ndarray) -> np.ndarray:
        return np.argsort(-probabilities, kind="stable")

    def line(self, answer: list[str], probabilities: np.ndarray) -> str:
        return ", ".join(map(short_label, answer)) or "(no label)"


def choose_thresholds(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the `best_threshold` of each label, (num_labels,), for arrays (num_rows, num_labels)."""
    return np.array([best_threshold(*columns) for columns in zip(labels.T, probabilities.T, strict=True)])
