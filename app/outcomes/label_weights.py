"""Weights of labels in a loss, from the settings and the rows that each label has."""

import numpy as np
import torch

from ..config.schema import TrainConfig
from ..errors import InputError, listed


def start_bias(train: TrainConfig, labels: np.ndarray, label_names: list[str]) -> np.ndarray:
    """Return the log odds of each label in the train rows, (num_labels,) float32, where a new head starts.

    From 0 instead, where every label has a probability of one half, most steps of a training with many rare
    labels would only lower all logits. `labels` as for `multi_label_loss`; a positive weight counts as so
    many rows.
    """
    counts = np.asarray(labels).sum(axis=0, dtype=np.int64)
    weights = positive_weights(train.class_weights, counts, len(labels), label_names)
    odds = (counts + 0.5) / (len(labels) - counts + 0.5)
    return np.log(odds if weights is None else odds * weights.numpy()).astype(np.float32)


def class_weights(
    setting: str | list[float], counts: np.ndarray, label_names: list[str]
) -> torch.Tensor | None:
    """Return the factor on the loss of each class, (num_labels,) float32, or None for 1; `counts` are its
    train rows. Raises InputError unless they are finite numbers from 0, one for each, not all 0."""
    if setting == "none":
        return None
    if setting == "balanced":
        return torch.tensor(counts.sum() / (len(label_names) * counts), dtype=torch.get_default_dtype())
    weights = torch.tensor(setting, dtype=torch.get_default_dtype())
    are_weights = weights.isfinite().all() and (weights >= 0).all() and weights.any()
    if len(weights) != len(label_names) or not are_weights:
        raise InputError(
            f"train.class_weights must be {len(label_names)} numbers from 0, in single precision not all 0, "
            f"one for each of {listed(label_names)}; found {setting}; 0 ignores a class"
        )
    return weights


def positive_weights(
    setting: str | list[float], counts: np.ndarray, num_rows: int, label_names: list[str]
) -> torch.Tensor | None:
    """Return the factor on the loss of rows with each label, (num_labels,) float32, or None for 1; `counts`
    of `num_rows` have it. Raises InputError unless they are finite numbers above 0, one for each."""
    if setting == "none":
        return None
    if setting == "balanced":
        return torch.tensor(np.maximum(num_rows - counts, 1) / counts, dtype=torch.get_default_dtype())
    weights = torch.tensor(setting, dtype=torch.get_default_dtype())
    if len(weights) != len(label_names) or not weights.isfinite().all() or not (weights > 0).all():
        raise InputError(
            f"train.class_weights must be {len(label_names)} finite numbers above 0, one for each of "
            f"{listed(label_names)}; found {setting}"
        )
    return weights
