"""One of ordered labels a row: cumulative logits, and the median of the probabilities as the decision.

The outputs of a row are z. The logit of a label of at least 1 is z[0]; that of a label of at least k + 1 is
lower than that of at least k by softplus(z[k]), so it is in order whatever z is (McCullagh 1980). The last
output is not used.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from .task import Task

LEAST_STEP = 1e-4  # between two labels, so that none has a probability of exactly 0


class Ordinal(Task):
    """Labels and predictions are class ids in the order of the labels; logits are cumulative."""

    name = "ordinal"
    problem_type = "ordinal_classification"
    main_metric = "kappa"
    log_metrics = ("loss", "kappa", "macro_mae", "accuracy")
    baseline_metrics = ("kappa", "accuracy")

    def build_loss(self, labels: np.ndarray) -> Any:
        # The probabilities of a new head are the shares of the labels
        counts = np.bincount(labels, minlength=len(self.label_names)) + 0.5
        above = 1 - np.cumsum(counts / counts.sum())[:-1]
        cumulative = np.log(above / (1 - above))
        steps = np.maximum(-np.diff(cumulative) - LEAST_STEP, LEAST_STEP)
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

        steps = softplus(outputs[:, 1:-1]) + LEAST_STEP
        falls = library.cumsum(library.hstack([outputs[:, :1] * 0, steps]), axis=1)
        cumulative = outputs[:, :1] - falls
        above, below = -softplus(-cumulative), -softplus(cumulative)
        between = above[:, :-1] + below[:, 1:] + library.log(-library.expm1(-steps))
        return library.hstack([below[:, :1], between, above[:, -1:]])

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the median label of each row, (num_rows,)."""
        return (np.cumsum(probabilities, axis=1)[:, :-1] < 0.5).sum(axis=1)
