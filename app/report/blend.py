"""How much a second reader counts beside the encoder: a scale, a weight and a shift, fitted on dev."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np

from ..tasks.task import Task
from ..tasks.temperature import MIN_FITTED_ROWS, MIN_ROWS, NUM_PARTS
from .measure import measure
from .metrics import BY_KEY

# The loss that is minimised counts a row by the share of its class to the power of -0.25 where all classes
# count alike in the metric
MACRO_BALANCE = 0.25
MAX_LOGITS = 1 << 18  # that a fit reads, but at least MIN_FITTED_ROWS rows: a fit takes seconds
MIN_SHARE = 1e-3  # of a class, in that power
MIN_GAIN = 1e-3  # share of the metric on new rows; less may come from the last digits of two fits
MAX_LOG_SCALE = 3.0
MAX_WEIGHT = 5.0
MAX_SHIFT = 3.0  # times the direction of the shift


@dataclass(frozen=True)
class ReadRows:
    """Labelled rows as both readers see them: `labels` (num_rows, ...) as their task has them, the logits
    `encoder` and `ngrams`, (num_rows, num_labels), and `hashes` (num_rows,) of the texts."""

    labels: np.ndarray
    encoder: np.ndarray
    ngrams: np.ndarray
    hashes: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: np.ndarray | slice) -> ReadRows:
        return ReadRows(
            labels=self.labels[chosen],
            encoder=self.encoder[chosen],
            ngrams=self.ngrams[chosen],
            hashes=self.hashes[chosen],
        )


@dataclass(frozen=True)
class Blend:
    """Logits are `scale` * encoder + `weight` * n-grams + `shift`, where scale and shift are (num_labels,).
    `sharpness` is 1 over the temperature that is best for them."""

    scale: np.ndarray
    weight: float
    shift: np.ndarray
    sharpness: float = 1.0

    def logits(self, rows: ReadRows) -> np.ndarray:
        """Return the logits of both together, (num_rows, num_labels)."""
        return self.scale * rows.encoder + self.weight * rows.ngrams + self.shift


def fit_blend(
    task: Task,
    rows: ReadRows,
    class_shares: np.ndarray | None = None,
    balance: float = MACRO_BALANCE,
    max_weight: float = MAX_WEIGHT,
) -> Blend:
    """Return the blend with the smallest loss. `class_shares` (num_labels,) are those of the train
    rows, where all classes count alike in the metric: then a row counts by the share of its class to the
    power of -`balance`."""
    from scipy.optimize import minimize

    max_rows = max(MIN_FITTED_ROWS, MAX_LOGITS // rows.encoder.shape[1])
    rows = rows.take(slice(None, None, math.ceil(len(rows) / max_rows)))
    row_weights = np.ones(len(rows))
    if class_shares is not None:
        class_shares = np.maximum(class_shares, MIN_SHARE)
        row_weights = class_shares[rows.labels] ** -balance
    row_weights /= row_weights.sum()
    direction = task.shift_direction(class_shares)
    is_scaled = task.scaled_outputs()

    def blend_of(parameters: np.ndarray) -> Blend:
        log_sharpness, log_scale, weight, shift = parameters.tolist()
        sharpness = math.exp(log_sharpness)
        return Blend(
            scale=np.where(is_scaled, math.exp(log_scale), 1.0),
            weight=weight / sharpness,
            shift=shift / sharpness * direction,
            sharpness=sharpness,
        )

    def loss(parameters: np.ndarray) -> float:
        blend = blend_of(parameters)
        return float(row_weights @ task.sharpened_loss(rows.labels, blend.logits(rows), blend.sharpness))

    # What a task does not have stays where it starts
    max_log_sharpness = MAX_LOG_SCALE * task.has_temperature
    max_log_scale = MAX_LOG_SCALE * is_scaled.any()
    max_shift = MAX_SHIFT * direction.any()
    start = np.array([0.0, 0.0, min(0.3, max_weight), 0.0])
    bounds = [
        (-max_log_sharpness, max_log_sharpness),
        (-max_log_scale, max_log_scale),
        (0.0, max_weight),
        (-max_shift, max_shift),
    ]
    return blend_of(minimize(loss, start, bounds=bounds, method="L-BFGS-B").x)


def metric_of_new_rows(task: Task, rows: ReadRows, metric: str, fit: Callable[[ReadRows], Blend]) -> float:
    """Return a metric of rows that took no part in the `fit` of their blend, nor in the choice of their
    thresholds; negative where less is better. The hashes divide the rows into parts, so that equal texts are
    in one part."""
    parts = np.asarray(rows.hashes) % NUM_PARTS
    logits = np.zeros(rows.encoder.shape)
    predicted = np.zeros_like(task.decide(rows.encoder))
    losses = np.zeros(len(rows))
    for part in range(NUM_PARTS):
        is_new = parts == part
        blend = fit(rows.take(~is_new))
        part_logits = blend.logits(rows)
        losses[is_new] = task.sharpened_loss(rows.labels[is_new], part_logits[is_new], blend.sharpness)
        fitted_task = copy(task)
        fitted_task.fit(rows.labels[~is_new], part_logits[~is_new])
        logits[is_new] = part_logits[is_new]
        predicted[is_new] = fitted_task.decide(part_logits[is_new])
    if metric == "loss":
        return -float(losses.mean())
    value = measure(task, task.score(rows.labels, logits, predicted))[metric]
    if BY_KEY[metric].higher_is_better:
        return value
    return -value


def choose_blend(
    task: Task,
    rows: ReadRows,
    metric: str,
    class_shares: np.ndarray | None = None,
) -> Blend | None:
    """Return the blend of all `rows`, of dev; None for few rows, and where blends do not make a metric of
    rows that took no part in their fit better than that of the encoder, as it is and with a scale."""
    if len(rows) < MIN_ROWS:
        return None

    def both(fitted_rows: ReadRows) -> Blend:
        return fit_blend(task, fitted_rows, class_shares)

    def scaled_encoder(fitted_rows: ReadRows) -> Blend:
        return fit_blend(task, fitted_rows, max_weight=0.0)

    def encoder(fitted_rows: ReadRows) -> Blend:
        num_labels = rows.encoder.shape[1]
        return Blend(scale=np.ones(num_labels), weight=0.0, shift=np.zeros(num_labels))

    readers_alone = [encoder]
    # Without scaled logits only a temperature is fitted, which changes the loss alone
    if metric == "loss" or task.scaled_outputs().any():
        readers_alone.append(scaled_encoder)
    value = metric_of_new_rows(task, rows, metric, both)
    for alone in readers_alone:
        # Two classes with few rows may leave a part without one of them, and then there is no number
        value_alone = metric_of_new_rows(task, rows, metric, alone)
        if not value > value_alone + MIN_GAIN * abs(value_alone):
            return None
    return both(rows)
