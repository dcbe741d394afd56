"""Class ids and logits -> the scores of rows with one label: arrays of one number a row."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

# Logits in double precision at once: 32 MiB
CHUNK_NUMBERS = 1 << 22


@dataclass(frozen=True)
class ClassScores:
    """What the logits of each row say; all arrays are (num_rows,), in the order of the rows.

    `labels` and `predicted` are class ids, `confidence` is the largest probability, `margin` its distance to
    the second largest, `loss` is -log(probability of the label) and `brier` the sum over classes of
    (probability - truth) squared.
    """

    labels: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    margin: np.ndarray
    loss: np.ndarray
    brier: np.ndarray

    # What a row is whose prediction is right
    right_rows: ClassVar[str] = "rows"

    @property
    def correct(self) -> np.ndarray:
        """Whether the prediction of each row is its label, (num_rows,) bool."""
        return self.predicted == self.labels

    def __len__(self) -> int:
        return len(self.labels)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return softmax over the last axis, float64, of logits (num_rows, num_labels)."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def score_classes(labels: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> ClassScores:
    """Return the scores of `labels`, (num_rows,) ids, by softmax(`logits` / temperature), (num_rows, 2 or
    more labels). Logits may be memory-mapped; a few of them are in memory at once."""
    labels = np.asarray(labels, dtype=np.int64)
    step = max(1, CHUNK_NUMBERS // logits.shape[1])
    chunks = [
        _score_chunk(
            labels[start : start + step], np.asarray(logits[start : start + step], np.float64) / temperature
        )
        for start in range(0, len(labels), step)
    ]
    return ClassScores(labels, *(np.concatenate(columns) for columns in zip(*chunks, strict=True)))


def _score_chunk(labels: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, ...]:
    rows = np.arange(len(labels))
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    log_of_label = shifted[rows, labels] - log_sums
    probabilities = np.exp(shifted - log_sums[:, None])
    brier = (probabilities**2).sum(axis=1) - 2 * np.exp(log_of_label) + 1
    predicted = logits.argmax(axis=1)
    first = probabilities[rows, predicted]
    probabilities[rows, predicted] = -1
    return predicted, first, first - probabilities.max(axis=1), -log_of_label, brier
