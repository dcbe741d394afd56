"""One of ordered labels a row: cumulative logits, and the median of the probabilities as the decision.

The outputs of a row are z. The logit of a label of at least 1 is z[0]; that of a label of at least k + 1 is
lower than that of at least k by softplus(z[k]), so it is in order whatever z is (McCullagh 1980). The last
output is not used.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from ..data.label_shares import rows_of_labels
from .single_label import SingleLabel

SMALLEST_STEP = 1e-4  # between two logits, so that no label has a probability of exactly 0


class Ordinal(SingleLabel):
    """Labels and predictions are class ids in the order of the labels; logits are cumulative."""

    name = "ordinal"
    problem_type = "ordinal_classification"
    main_metric = "kappa"
    log_metrics = ("loss", "kappa", "macro_mae", "accuracy")
    baseline_metrics = ("kappa", "accuracy")

    def build_loss(self, labels: np.ndarray) -> Any:
        # The probabilities of a new head are the shares of the labels
        counts = rows_of_labels(labels, len(self.label_names)) + 0.5
        share_above = 1 - np.cumsum(counts / counts.sum())[:-1]
        cumulative = np.log(share_above / (1 - share_above))
        steps = np.maximum(-np.diff(cumulative) - SMALLEST_STEP, SMALLEST_STEP)
        self.head_bias = np.r_[cumulative[:1], np.log(np.expm1(steps)), 0.0].astype(np.float32)
        return super().build_loss(labels)

    def class_logits(self, outputs: Any, library: ModuleType = np) -> Any:
        """Return log probabilities of the labels, (num_rows, num_labels), in double precision for numpy, at
        least in single precision for torch."""
        if library is np:
            outputs = np.asarray(outputs, np.float64)
        elif outputs.dtype != library.float64:
            outputs = outputs.float()

        def softplus(values: Any) -> Any:
            return library.logaddexp(values * 0, values)

        steps = softplus(outputs[:, 1:-1]) + SMALLEST_STEP
        falls = library.cumsum(library.hstack([outputs[:, :1] * 0, steps]), axis=1)
        cumulative = outputs[:, :1] - falls
        log_at_least = -softplus(-cumulative)
        log_below = -softplus(cumulative)
        between = log_at_least[:, :-1] + log_below[:, 1:] + library.log(-library.expm1(-steps))
        return library.hstack([log_below[:, :1], between, log_at_least[:, -1:]])

    def logits_of_linear_model(self, outputs: np.ndarray) -> np.ndarray:
        """Return the slope of the logits of labels over the order of the labels, by least squares, as the
        first output, which moves all cumulative logits; the others are 0."""
        ranks = np.arange(outputs.shape[1])
        distances = ranks - ranks.mean()
        logits = np.zeros(outputs.shape)
        logits[:, 0] = outputs @ distances / (distances @ distances)
        return logits

    def scaled_outputs(self) -> np.ndarray:
        """Return the first output: with more evidence it has to vary by less beside the same steps."""
        return np.arange(len(self.label_names)) == 0

    def shift_direction(self, class_shares: np.ndarray | None) -> np.ndarray:
        """Return the direction of the first output."""
        return np.eye(1, len(self.label_names))[0]

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the median label of each row, (num_rows,)."""
        return (np.cumsum(probabilities, axis=1)[:, :-1] < 0.5).sum(axis=1)
