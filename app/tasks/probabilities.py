"""Logits and probabilities, in double precision and without overflow. Only NumPy is imported."""

import numpy as np

CERTAIN = 1e-12  # probabilities are not nearer to 0 or 1 than this where their logits are needed


def sigmoid(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, dtype=np.float64)
    return np.exp(-np.logaddexp(0, -logits))


def logit(probabilities: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)); probabilities of 0 and 1 count as `CERTAIN` away from them."""
    probabilities = np.clip(probabilities, CERTAIN, 1 - CERTAIN)
    return np.log(probabilities) - np.log1p(-probabilities)


def log_softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Return log(softmax) of logits (num_rows, num_labels) / temperature, float64."""
    scaled = np.asarray(logits, np.float64) / temperature
    shifted = scaled - scaled.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
