"""One of ordered labels a row: cumulative logits, and the median of the probabilities as the decision.

The outputs of a row are z. The logit of a label of at least 1 is z[0]; that of a label of at least k + 1 is
lower than that of at least k by softplus(z[k]), so it is in order whatever z is (McCullagh 1980). The last
output is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..words import N_
from .task import Task

if TYPE_CHECKING:
    import torch

LEAST_STEP = 1e-4  # between two labels, so that none has a probability of exactly 0


class Ordinal(Task):
    """Labels and predictions are class ids in the order of the labels; logits are cumulative."""

    name = "ordinal"
    problem_type = "ordinal_classification"
    log_metrics = ("loss", "kappa", "macro_mae", "accuracy")
    beside_baselines = ("kappa", "accuracy")
    words = Task.words | {
        "what": N_("A classifier of Chinese {texts} with {labels:,} ordered labels"),
        "decision": N_(
            "**Cumulative logits.** The first output is the logit of a label above the lowest one; each of "
            "the next ones says, as a softplus, by how much the logit of the next higher label is lower. The "
            "last output is not used. The label is the median of the probabilities. `predict.py` does this; "
            "the pipeline above does not."
        ),
    }

    def head_bias(self) -> np.ndarray:
        """Return the bias with which the probabilities are the shares of the labels in the train rows."""
        counts = np.bincount(self.dataset.splits["train"].labels, minlength=len(self.label_names)) + 0.5
        return bias_of_shares(counts / counts.sum()).astype(np.float32)

    def class_logits(self, outputs: np.ndarray) -> np.ndarray:
        """Return log probabilities of the labels, (num_rows, num_labels) float64."""
        outputs = np.asarray(outputs, np.float64)
        steps = np.logaddexp(0, outputs[:, 1:-1]) + LEAST_STEP
        cumulative = outputs[:, :1] - np.cumsum(np.c_[np.zeros(len(outputs)), steps], axis=1)
        above, below = -np.logaddexp(0, -cumulative), -np.logaddexp(0, cumulative)
        between = above[:, :-1] + below[:, 1:] + np.log(-np.expm1(-steps))
        return np.hstack([below[:, :1], between, above[:, -1:]])

    def torch_logits(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return what `class_logits` does, as a tensor of the type of the outputs, float32 at least."""
        import torch
        from torch.nn.functional import logsigmoid, softplus

        from ..runtime.precision import at_least_float32

        outputs = at_least_float32(outputs)
        steps = softplus(outputs[:, 1:-1]) + LEAST_STEP
        falls = torch.cat([torch.zeros_like(outputs[:, :1]), steps], dim=1).cumsum(dim=1)
        cumulative = outputs[:, :1] - falls
        above, below = logsigmoid(cumulative), logsigmoid(-cumulative)
        between = above[:, :-1] + below[:, 1:] + torch.log(-torch.expm1(-steps))
        return torch.cat([below[:, :1], between, above[:, -1:]], dim=1)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the median label of each row, (num_rows,)."""
        return (np.cumsum(probabilities, axis=1)[:, :-1] < 0.5).sum(axis=1)

    def scored_label(self, label: int, probability: float, answer: str) -> dict[str, Any]:
        """Return also whether it is the answer, `chosen`."""
        scored = super().scored_label(label, probability, answer)
        return scored | {"chosen": scored["label"] == answer}


def bias_of_shares(shares: np.ndarray) -> np.ndarray:
    """Return outputs whose probabilities are the shares of the labels, (num_labels,) above 0."""
    above = 1 - np.cumsum(shares)[:-1]
    cumulative = np.log(above / (1 - above))
    steps = np.maximum(-np.diff(cumulative) - LEAST_STEP, LEAST_STEP)
    return np.r_[cumulative[:1], np.log(np.expm1(steps)), 0.0]
