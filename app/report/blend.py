"""How much a second reader counts beside the encoder: a weight, and a shift for each label, from dev."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..tasks.probabilities import log_softmax
from ..tasks.temperature import MIN_FITTED_ROWS, MIN_ROWS, NUM_PARTS, fit_temperature

# The loss that is minimised counts a row by the share of its class to the power of -0.25 where all classes
# count alike in the metric
MACRO_BALANCE = 0.25
MAX_LOGITS = 1 << 18  # that a fit reads, but at least MIN_FITTED_ROWS rows: a fit takes seconds
MIN_SHARE = 1e-3  # of a class, in that power
MAX_LOG_SCALE = 3.0
MAX_WEIGHT = 5.0
MAX_SHIFT = 3.0  # times the logarithm of a share


@dataclass(frozen=True)
class Blend:
    """Logits are `scale` * (encoder + `weight` * n-grams + `shift`), where `shift` is (num_labels,)."""

    scale: float
    weight: float
    shift: np.ndarray

    def logits(self, encoder: np.ndarray, ngrams: np.ndarray) -> np.ndarray:
        """Return the logits of both together, (num_rows, num_labels), without the scale."""
        return encoder + self.weight * ngrams + self.shift


def fit_blend(
    labels: np.ndarray, encoder: np.ndarray, ngrams: np.ndarray, shares: np.ndarray, balance: float
) -> Blend:
    """Return the blend with the smallest loss on rows with `labels`, (num_rows,), and logits `encoder` and
    `ngrams`, (num_rows, num_labels). `shares` (num_labels,) are those of the classes in train. A row counts
    by the share of its class to the power of -`balance`; with a `balance` of 0 there is no shift."""
    from scipy.optimize import minimize

    num_rows, num_labels = encoder.shape
    max_rows = max(MIN_FITTED_ROWS, MAX_LOGITS // num_labels)
    step = math.ceil(num_rows / max_rows)
    labels = labels[::step]
    encoder = log_softmax(encoder[::step])
    ngrams = log_softmax(ngrams[::step])
    rows = np.arange(len(labels))
    log_shares = np.log(np.maximum(shares, MIN_SHARE))
    log_shares -= log_shares.mean()
    row_weights = np.maximum(shares, MIN_SHARE)[labels] ** -balance
    row_weights /= row_weights.sum()

    def loss(parameters: np.ndarray) -> float:
        log_scale, weight, correction = parameters
        logits = math.exp(log_scale) * encoder + weight * ngrams + correction * log_shares
        return -float(row_weights @ log_softmax(logits)[rows, labels])

    max_shift = MAX_SHIFT if balance else 0.0
    bounds = [(-MAX_LOG_SCALE, MAX_LOG_SCALE), (0.0, MAX_WEIGHT), (-max_shift, max_shift)]
    optimum = minimize(loss, [0.0, 0.3, 0.0], bounds=bounds, method="L-BFGS-B")
    log_scale, weight, correction = optimum.x.tolist()
    scale = math.exp(log_scale)
    return Blend(scale, weight / scale, correction / scale * log_shares)


def gain_on_new_rows(
    labels: np.ndarray,
    encoder: np.ndarray,
    ngrams: np.ndarray,
    hashes: np.ndarray,
    shares: np.ndarray,
    balance: float,
    metric: Callable[[np.ndarray, np.ndarray], float],
) -> float:
    """Return by how much blends raise a metric of rows that took no part in their fit, above the encoder with
    a temperature. `hashes` (num_rows,) of the texts divide the rows into parts, so that equal texts are in
    one part. `metric` gets labels and logits, and more is better."""
    parts = np.asarray(hashes) % NUM_PARTS
    blended = np.zeros(encoder.shape)
    alone = np.zeros(encoder.shape)
    for part in range(NUM_PARTS):
        is_new = parts == part
        fitted_labels = labels[~is_new]
        blend = fit_blend(fitted_labels, encoder[~is_new], ngrams[~is_new], shares, balance)
        blended[is_new] = blend.scale * blend.logits(encoder[is_new], ngrams[is_new])
        alone[is_new] = encoder[is_new] / fit_temperature(fitted_labels, encoder[~is_new])
    return metric(labels, blended) - metric(labels, alone)


def choose_blend(
    labels: np.ndarray,
    encoder: np.ndarray,
    ngrams: np.ndarray,
    hashes: np.ndarray,
    shares: np.ndarray,
    balance: float,
    metric: Callable[[np.ndarray, np.ndarray], float],
) -> Blend | None:
    """Return the blend of all rows of dev; None where dev has few rows, or blends do not raise the metric of
    rows that took no part in their fit."""
    if len(labels) < MIN_ROWS:
        return None
    gain = gain_on_new_rows(labels, encoder, ngrams, hashes, shares, balance, metric)
    # Two classes with few rows may leave a part without one of them, and then there is no number
    if not gain > 0:
        return None
    return fit_blend(labels, encoder, ngrams, shares, balance)
