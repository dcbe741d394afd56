"""The temperature that divides logits, so that a probability of 0.8 is right in 80 of 100 rows.

Guo et al. 2017, https://arxiv.org/abs/1706.04599
"""

import math

import numpy as np

from .probabilities import log_softmax

MIN_TEMPERATURE = 0.05
MAX_TEMPERATURE = 20.0
# A fit reads about `MAX_FITTED_LOGITS` logits, but at least `MIN_FITTED_ROWS` rows; more move the temperature
# by less than a hundredth
MIN_FITTED_ROWS = 1000
MAX_FITTED_LOGITS = 1 << 20
MIN_ROWS = 100  # of dev; with fewer, a temperature is mostly chance
NUM_PARTS = 5  # of dev, each measured with the temperature of the others


def class_loss(labels: np.ndarray, logits: np.ndarray, temperature: float) -> np.ndarray:
    """Return the cross entropy of each row, (num_rows,)."""
    rows = np.arange(len(labels))
    return -log_softmax(logits, temperature)[rows, labels]


def fit_temperature(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the temperature with the smallest loss on `labels`, (num_rows,), and `logits`, (num_rows,
    num_labels). It is 1 where every prediction is right: the best one would be 0."""
    from scipy.optimize import minimize_scalar

    num_rows, num_labels = logits.shape
    max_rows = max(MIN_FITTED_ROWS, MAX_FITTED_LOGITS // num_labels)
    step = math.ceil(num_rows / max_rows)
    labels = labels[::step]
    logits = logits[::step]
    if (logits.argmax(axis=1) == labels).all():
        return 1.0

    def mean_loss(log_temperature: float) -> float:
        return float(class_loss(labels, logits, math.exp(log_temperature)).mean())

    bounds = (math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE))
    optimum = minimize_scalar(mean_loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return math.exp(float(optimum.x))


def lowers_loss_of_new_rows(labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray) -> bool:
    """Return whether temperatures lower the loss of rows that took no part in their fit. The hashes of the
    texts, (num_rows,), divide the rows into parts, so that equal texts are in one part."""
    parts = np.asarray(hashes) % NUM_PARTS
    change = 0.0
    for part in range(NUM_PARTS):
        is_new = parts == part
        temperature = fit_temperature(labels[~is_new], logits[~is_new])
        new_labels = labels[is_new]
        new_logits = logits[is_new]
        loss = class_loss(new_labels, new_logits, temperature)
        loss_before = class_loss(new_labels, new_logits, 1.0)
        change += float((loss - loss_before).sum())
    return change < 0
