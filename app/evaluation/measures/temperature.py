"""Temperature scaling: one number that logits are divided by, so that probabilities are as often right as
they say.

It changes no prediction, only how sure the classifier is of it.
"""

from __future__ import annotations

import math

import numpy as np

from .row_scores import score_rows

SMALLEST, LARGEST = 0.05, 20.0
# Logits to fit on; with more the temperature moves by less than a hundredth
MAX_NUMBERS = 1 << 20
MIN_ROWS = 1000


def fit_temperature(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the temperature with the smallest loss on `labels`, (num_rows,), with `logits`, (num_rows,
    num_labels).

    It is 1 where every prediction is right, because the smallest loss is then that of a temperature of 0.
    """
    from scipy.optimize import minimize_scalar

    labels = np.asarray(labels)
    most_rows = max(MIN_ROWS, MAX_NUMBERS // logits.shape[1])
    step = -(-len(labels) // most_rows)
    labels, logits = labels[::step], np.asarray(logits[::step])
    if (logits.argmax(axis=1) == labels).all():
        return 1.0
    bounds = (math.log(SMALLEST), math.log(LARGEST))
    found = minimize_scalar(
        lambda log_temperature: float(score_rows(labels, logits, math.exp(log_temperature)).loss.mean()),
        bounds=bounds,
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(found.x))
