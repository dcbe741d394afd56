"""A linear head on vectors, fitted again after each answer: logistic regression that starts from the weights
of the last time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model.linear_start import C

MAX_PRODUCTS = 1_500_000_000  # of all iterations: about 0.1 seconds on one core
MIN_ITERATIONS = 8
MAX_ITERATIONS = 100
NO_ROW_LOGIT = -20.0  # of a label that no row has


@dataclass(frozen=True)
class LinearHead:
    """`weights` (num_labels, size) and `bias` (num_labels,), float32, for vectors less their `centre` (size,)
    and divided by `scale`. With `has_several` labels a text, each has a sigmoid, else all a softmax."""

    weights: np.ndarray
    bias: np.ndarray
    centre: np.ndarray
    scale: float
    has_several: bool

    def inputs(self, vectors: np.ndarray) -> np.ndarray:
        """Return what the weights are for, (num_rows, size) float32."""
        return scaled(vectors, self.centre, self.scale)

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """Return the probability of each label, (num_rows, num_labels) float32."""
        return probabilities_of(self.inputs(vectors) @ self.weights.T + self.bias, self.has_several)


def scaled(vectors: np.ndarray, centre: np.ndarray, scale: float) -> np.ndarray:
    return (vectors.astype(np.float32) - centre) / np.float32(scale)


def centre_and_scale(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the mean of vectors, (size,), and their mean length, as `model.head linear` uses them."""
    vectors = vectors.astype(np.float32)
    return vectors.mean(axis=0), float(np.linalg.norm(vectors, axis=1).mean()) or 1.0


def probabilities_of(logits: np.ndarray, has_several: bool) -> np.ndarray:
    """Return the sigmoid of logits, (num_rows, num_labels), or their softmax over the labels."""
    if has_several:
        return 0.5 * (1 + np.tanh(logits / 2))
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def fit_head(
    vectors: np.ndarray,
    targets: np.ndarray,
    centre: np.ndarray,
    scale: float,
    has_several: bool,
    start: LinearHead | None = None,
) -> LinearHead:
    """Return the logistic regression of targets, (num_rows, num_labels) of 0 and 1, on vectors, (num_rows,
    size): that of scikit-learn with `C`. It starts from the weights of `start`, which may know fewer labels.
    The time is bounded, so with many rows and labels it comes closer to the best weights fit by fit."""
    from scipy.optimize import minimize

    inputs = scaled(vectors, centre, scale)
    num_rows, size = inputs.shape
    num_labels = targets.shape[1]
    # The last column is the bias
    first = np.zeros((num_labels, size + 1))
    if start is not None:
        num_known = len(start.bias)
        first[:num_known, :-1] = start.weights
        first[:num_known, -1] = start.bias
    fitted = np.flatnonzero(targets.any(axis=0))
    targets = targets[:, fitted].astype(np.float32)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = values.reshape(len(fitted), size + 1)
        weights = parameters[:, :-1]
        logits = inputs @ weights.T.astype(np.float32) + parameters[:, -1].astype(np.float32)
        loss = loss_of(logits, targets, has_several) + 0.5 / C * (weights**2).sum()
        residuals = probabilities_of(logits, has_several) - targets
        gradient = np.empty_like(parameters)
        gradient[:, :-1] = residuals.T @ inputs + weights / C
        gradient[:, -1] = residuals.sum(axis=0)
        return loss, gradient.ravel()

    products = 2 * num_rows * size * len(fitted)
    iterations = int(np.clip(MAX_PRODUCTS // products, MIN_ITERATIONS, MAX_ITERATIONS))
    started = np.where(first[fitted] == NO_ROW_LOGIT, 0.0, first[fitted])
    result = minimize(
        objective,
        started.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": iterations, "gtol": 1e-2, "ftol": 1e-5},
    )
    parameters = result.x.reshape(len(fitted), size + 1).astype(np.float32)
    weights = np.zeros((num_labels, size), np.float32)
    bias = np.full(num_labels, NO_ROW_LOGIT, np.float32)
    weights[fitted] = parameters[:, :-1]
    bias[fitted] = parameters[:, -1]
    return LinearHead(weights, bias, centre, scale, has_several)


def loss_of(logits: np.ndarray, targets: np.ndarray, has_several: bool) -> float:
    """Return the sum of the cross-entropies of rows."""
    if has_several:
        return float((np.logaddexp(0, logits) - targets * logits).sum(dtype=np.float64))
    largest = logits.max(axis=1)
    normalisers = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
    return float((normalisers - (targets * logits).sum(axis=1)).sum(dtype=np.float64))
