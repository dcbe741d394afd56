"""Several labels a row: each label has a threshold, chosen on dev."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..text_table import short_label
from ..words import N_
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

if TYPE_CHECKING:
    import torch

    from ..batching.loader import Loader


class MultiLabel(Task):
    """Labels, predictions, logits and probabilities are (num_rows, num_labels); a row has the labels with a
    probability from their threshold on, `thresholds` (num_labels,) float64, chosen on `rows` of dev."""

    name = "multi_label"
    problem_type = "multi_label_classification"
    log_metrics = ("loss", "micro_f1", "macro_f1", "subset_accuracy")
    beside_baselines = ("micro_f1", "macro_f1")
    has_temperature = False
    label_column, right_share, right_rows = "labels", "subset_accuracy", "rows with all labels right"
    headline = ("subset_accuracy", "samples_f1", "hamming_loss", "loss", "rows")
    averages = ("micro", "macro", "weighted")
    pipeline_arguments = ', top_k=None, function_to_apply="sigmoid"'
    words = Task.words | {
        "what": N_(
            "A classifier of Chinese {texts} with {labels:,} labels, several of them possible for each"
        ),
        "label": N_("label"),
        "labels": N_("Labels"),
        "conflicting": N_("different lists of labels"),
        "right": N_("Where all labels of a row are right"),
        "limit": "",
        "decision": N_(
            "**Thresholds.** A text has the labels whose probability reaches the threshold of the label, in "
            "the table below and in `decision.json`. `predict.py` uses them; the pipeline above gives "
            "probabilities only."
        ),
        "patterns": N_(
            "Labels that confident learning takes for left out (missing) or put in by mistake (extra), and "
            "in how many rows:"
        ),
        "runs": N_(
            "Each run decides by its own thresholds (decision.json), which have the best F1 of each label "
            "on its dev rows; without dev rows they are 0.5."
        ),
    }

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.thresholds = np.full(len(label_names), DEFAULT_THRESHOLD)
        self.chosen_on: str | None = None
        self.rows = self.labels_without_rows = 0
        self.decides_at_zero = False

    def build_loss(self, labels: np.ndarray) -> Any:
        from .losses import LIST_LOSSES, ListLoss, check_loss

        check_loss(self.config.train.loss, LIST_LOSSES)
        weights = self.positive_weights()
        loss = ListLoss(self.config.train.loss, None if weights is None else weights.to(self.device))
        self.decides_at_zero = loss.decides_at_zero
        return loss

    def positive_weights(self) -> torch.Tensor | None:
        from .losses import label_weights

        labels = np.asarray(self.dataset.splits["train"].labels)
        counts = labels.sum(axis=0, dtype=np.int64)
        return label_weights(self.config.train.class_weights, counts, self.label_names, len(labels))

    def head_bias(self) -> np.ndarray:
        """Return the log odds of each label in the train rows, where a positive weight counts as so many
        rows. From 0, where every label has a probability of one half, most steps of a training with many rare
        labels would only lower all logits."""
        labels, weights = np.asarray(self.dataset.splits["train"].labels), self.positive_weights()
        counts = labels.sum(axis=0, dtype=np.int64)
        odds = (counts + 0.5) / (len(labels) - counts + 0.5)
        return np.log(odds if weights is None else odds * weights.numpy()).astype(np.float32)

    def loader(self, split, store, layout) -> Loader:
        from ..batching.loader import Loader

        losses_per_row = 1 if self.decides_at_zero else len(self.label_names)
        return Loader(split, store, layout, losses_per_row=losses_per_row)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        return sigmoid(logits)

    def reached(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which labels reach their threshold, (num_rows, num_labels) bool."""
        return probabilities - self.thresholds >= 0

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        return self.reached(probabilities)

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure decisions are, (num_rows,): that on a row is as sure as its least certain label.

        A decision on a label is as sure as its probability says, once logits are moved so that the threshold
        is at one half. So 1/2 is at the threshold.
        """
        moved = self.moved(probabilities)
        return np.where(self.reached(probabilities), moved, 1 - moved).min(axis=1)

    def moved(self, probabilities: np.ndarray) -> np.ndarray:
        """Return probabilities whose logits are moved so that the threshold is at one half."""
        return sigmoid(logit(probabilities) - logit(self.thresholds))

    def fit(self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray | None = None) -> None:
        self.choose(labels, logits)

    def choose(self, labels: np.ndarray, logits: np.ndarray) -> None:
        if not self.decides_at_zero:
            self.choose_by(np.asarray(labels), sigmoid(logits))

    def choose_by(self, labels: np.ndarray, probabilities: np.ndarray) -> None:
        """Decide by the thresholds that are best for rows of dev, (num_rows, num_labels) both."""
        self.thresholds = choose_thresholds(labels, probabilities)
        self.chosen_on, self.rows = FITTED_ON, len(labels)
        self.labels_without_rows = int((np.asarray(labels).sum(axis=0, dtype=np.int64) == 0).sum())

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

    def held_out(
        self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return it of rows on which the thresholds were chosen, so that these look too good there: each row
        is decided by thresholds that other rows choose in the same way. Of the half of the rows that chooses
        a threshold of confidence, one half is decided by the other, and the rest by all of them. Thresholds
        that were not chosen on dev in this way, but set by a person, are used as they are."""
        labels, probabilities = np.asarray(labels, bool), sigmoid(logits)
        quarter = np.asarray(hashes) % 4
        one, other, rest = quarter == 0, quarter == 2, quarter % 2 == 1
        is_chosen = np.allclose(self.thresholds, choose_thresholds(labels, probabilities))
        confidence, correct = np.empty(len(labels)), np.empty(len(labels), bool)
        for rows, choosing in ((one, other), (other, one), (rest, ~rest)):
            by_others = self.without_fit()
            by_others.thresholds = self.thresholds
            if is_chosen:
                by_others.thresholds = choose_thresholds(labels[choosing], probabilities[choosing])
            confidence[rows] = by_others.confidence(probabilities[rows])
            correct[rows] = (by_others.reached(probabilities[rows]) == labels[rows]).all(axis=1)
        return confidence, correct

    def score(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        predicted: np.ndarray | None = None,
        calibrated: bool = False,
    ) -> Scores:
        """Return the scores; the loss is the mean binary cross entropy over the labels, without weights."""
        labels, logits = np.asarray(labels, dtype=bool), np.asarray(logits, dtype=np.float64)
        decided = self.decide(logits) if predicted is None else predicted
        num_wrong = (decided != labels).sum(axis=1)
        loss = (np.logaddexp(0, logits) - labels * logits).mean(axis=1)
        per_row = [float(of.sum(axis=1).mean()) for of in (labels, decided)]
        figures = dict(zip(("labels_per_row", "predicted_per_row"), per_row, strict=True))
        thresholds = self.thresholds if predicted is None else None
        right = num_wrong == 0
        return Scores(
            labels, decided, right, loss, num_wrong=num_wrong, thresholds=thresholds, figures=figures
        )

    def answer(self, label: np.ndarray) -> list[str]:
        return [self.label_names[index] for index in np.flatnonzero(label)]

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        answers = np.empty(len(predicted), dtype=object)
        answers[:] = [self.answer(label) for label in predicted]
        return answers

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return the probabilities, with a threshold `decision` and `confidence` before them."""
        record: dict[str, Any] = {}
        if threshold is not None:
            confidence = float(self.confidence(probabilities[None])[0])
            record |= {"decision": "accept" if confidence >= threshold else "abstain"}
            record |= {"confidence": round(confidence, 6)}
        return record | self.probability_columns(probabilities)

    def scored_label(self, label: int, probability: float, answer: list[str]) -> dict[str, Any]:
        """Return also whether the row has the label, `chosen`."""
        scored = super().scored_label(label, probability, answer)
        return scored | {"chosen": scored["label"] in answer}

    def arrow_array(self, labels: np.ndarray) -> Any:
        import pyarrow as pa

        rows, ids = np.nonzero(labels)
        ends = np.searchsorted(rows, np.arange(len(labels) + 1))
        return pa.ListArray.from_arrays(ends.astype(np.int32), super().arrow_array(ids).dictionary_decode())

    def explained_labels(self, probabilities: np.ndarray) -> list[int]:
        reached = np.flatnonzero(self.reached(probabilities[None])[0])
        return reached[np.argsort(-probabilities[reached], kind="stable")].tolist()

    def scale_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits

    def log_odds(self, logits: torch.Tensor, label: int) -> torch.Tensor:
        return logits[:, label]

    def ranked_labels(self, probabilities: np.ndarray) -> np.ndarray:
        return np.argsort(-probabilities, kind="stable")

    def line(self, answer: list[str], probabilities: np.ndarray) -> str:
        return ", ".join(map(short_label, answer)) or "(no label)"

    def listed_labels(self, probabilities: np.ndarray) -> np.ndarray:
        return self.ranked_labels(probabilities)


def choose_thresholds(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return for each label the threshold of its best F1, (num_labels,) float64, for arrays (num_rows,
    num_labels).

    A threshold is halfway between two probabilities that occur, and whose logits differ by more than `CLOSE`;
    of equally good ones it is the nearest to 0.5. A label that no row has gets 0.5.
    """
    return np.array([best_threshold(*columns) for columns in zip(labels.T, probabilities.T, strict=True)])
