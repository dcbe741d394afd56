"""One of ordered labels a row: cumulative logits, and the median of the probabilities as the decision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..words import _
from .class_scores import ClassScores, softmax
from .cumulative_logits import CumulativeLoss, bias_of_shares, class_log_probabilities, class_logits
from .label_counts import LabelCounts
from .resampling import answer_values
from .single_label import SingleLabel

if TYPE_CHECKING:
    import torch


class Ordinal(SingleLabel):
    """Labels and predictions are class ids in the order of the labels; logits are cumulative."""

    task = "ordinal"
    problem_type = "ordinal_classification"
    log_metrics = ("loss", "kappa", "macro_mae", "accuracy")
    beside_baselines = ("kappa", "accuracy")

    def prepare(self, config, dataset, tokenizer, device) -> None:
        super().prepare(config, dataset, tokenizer, device)
        self.loss = CumulativeLoss(self.loss)

    def head_bias(self) -> np.ndarray:
        """Return the bias with which the probabilities are the shares of the labels in the train rows."""
        counts = np.bincount(self.dataset.splits["train"].labels, minlength=len(self.label_names)) + 0.5
        return bias_of_shares(counts / counts.sum()).astype(np.float32)

    def class_logits(self, logits: np.ndarray) -> np.ndarray:
        return class_logits(logits)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the median label of each row, (num_rows,)."""
        return (np.cumsum(probabilities, axis=1)[:, :-1] < 0.5).sum(axis=1)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return self.chosen(softmax(self.class_logits(logits)))

    def scores(self, labels: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> ClassScores:
        scores, predicted = super().scores(labels, logits, temperature), self.decide(logits)
        probabilities = softmax(self.class_logits(logits) / temperature)
        return replace(
            scores, predicted=predicted, confidence=probabilities[np.arange(len(labels)), predicted]
        )

    def measure(self, scores: ClassScores) -> dict:
        return answer_values(self, scores.labels, scores.predicted) | super().measure(scores)

    def count(self, labels: np.ndarray, predicted: np.ndarray) -> OrderedCounts:
        counts = OrderedCounts.of_classes(labels, predicted, len(self.label_names))
        counts.labels, counts.predicted = labels, predicted
        return counts

    def ranked_labels(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the answer first, then the others: the median need not be the most probable label."""
        ranked, answer = super().ranked_labels(probabilities), self.chosen(probabilities[None])
        return np.concatenate([answer, ranked[ranked != answer]])

    def scored_label(self, label: int, probability: float, answer: str) -> dict[str, Any]:
        """Return also whether it is the answer, `chosen`."""
        scored = super().scored_label(label, probability, answer)
        return scored | {"chosen": scored["label"] == answer}

    def scale_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return super().scale_logits(class_log_probabilities(logits))

    def card_words(self) -> dict[str, str]:
        what = _("A classifier of Chinese {texts} with {labels:,} ordered labels")
        return super().card_words() | {"what": what}

    def decision_paragraph(self, metrics: dict) -> str:
        cumulative = _(
            "**Cumulative logits.** The first output is the logit of a label above the lowest one; each of "
            "the next ones says, as a softplus, by how much the logit of the next higher label is lower. The "
            "last output is not used. The label is the median of the probabilities. `predict.py` does this; "
            "the pipeline above does not."
        )
        return f"{cumulative}\n\n{super().decision_paragraph(metrics)}"


class OrderedCounts(LabelCounts):
    """Rows of ordered classes; `labels` and `predicted` are class ids, (num_distinct,)."""

    labels: np.ndarray
    predicted: np.ndarray

    @property
    def distance(self) -> np.ndarray:
        """How many labels a prediction is off, of each distinct row, (num_distinct,)."""
        return np.abs(self.predicted - self.labels)

    @property
    def within_one(self) -> np.ndarray:
        """The share of rows that are at most one label off."""
        return self.counts @ (self.distance <= 1) / self.num_rows

    @property
    def macro_mae(self) -> np.ndarray:
        """The mean number of labels that predictions are off, as the mean over the true labels."""
        of_label = np.eye(int(self.labels.max()) + 1)[self.labels]
        support = self.counts @ of_label
        means = self.counts @ (of_label * self.distance[:, None]) / np.maximum(support, 1)
        return means.sum(axis=1) / (support > 0).sum(axis=1)

    @property
    def kappa(self) -> np.ndarray:
        """The quadratic weighted kappa; 0 where all labels and predictions are one label."""

        def mean(values: np.ndarray) -> np.ndarray:
            return self.counts @ values.astype(np.float64) / self.num_rows

        truth, predicted = self.labels, self.predicted
        by_chance = mean(truth**2) + mean(predicted**2) - 2 * mean(truth) * mean(predicted)
        is_constant = by_chance < 1e-12
        kappa = 1 - mean(self.distance**2) / np.where(is_constant, 1.0, by_chance)
        # What rounding leaves where all predictions are one label is 0, and not -0.0000
        return np.where(is_constant | (np.abs(kappa) < 1e-12), 0.0, kappa)
