"""Temperature scaling: one number that logits are divided by, so that probabilities are as often right as
they say. It changes no prediction, only how sure the classifier is of it."""

import math

import numpy as np

from ..evaluation.measures.calibration_error import confidence_bins
from ..words import _
from .class_scores import score_classes

SMALLEST, LARGEST = 0.05, 20.0
# Logits to fit on; with more the temperature moves by less than a hundredth
MAX_NUMBERS = 1 << 20
MIN_ROWS = 1000
# Rows of dev; with fewer a temperature is mostly chance
ENOUGH_ROWS = 100
PARTS = 5


def fit_temperature(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the temperature with the smallest loss on `labels`, (num_rows,), and `logits`, (num_rows,
    num_labels). It is 1 where every prediction is right: the best one would be 0."""
    from scipy.optimize import minimize_scalar

    labels = np.asarray(labels)
    max_rows = max(MIN_ROWS, MAX_NUMBERS // logits.shape[1])
    step = -(-len(labels) // max_rows)
    labels, logits = labels[::step], np.asarray(logits[::step])
    if (logits.argmax(axis=1) == labels).all():
        return 1.0
    bounds = (math.log(SMALLEST), math.log(LARGEST))
    optimum = minimize_scalar(
        lambda log_temperature: float(score_classes(labels, logits, math.exp(log_temperature)).loss.mean()),
        bounds=bounds,
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(optimum.x))


def choose_temperature(labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray) -> float | str:
    """Return the temperature of `fit_temperature`, or why there should be none: few_rows or no_better.

    It must lower the loss of rows that took no part in its fit: each of `PARTS` parts, divided by the
    `hashes` (num_rows,) of the texts, is measured with the temperature of the others.
    """
    if len(labels) < ENOUGH_ROWS:
        return "few_rows"
    labels, parts = np.asarray(labels), np.asarray(hashes) % PARTS
    change = 0.0
    for part in np.unique(parts):
        held_out = parts == part
        temperature = fit_temperature(labels[~held_out], logits[~held_out])
        before, after = (
            score_classes(labels[held_out], logits[held_out], value) for value in (1.0, temperature)
        )
        change += float((after.loss - before.loss).sum())
    return fit_temperature(labels, logits) if change < 0 else "no_better"


def effect(temperature: float, labels: np.ndarray, logits: np.ndarray, split: str) -> dict:
    """Return what a temperature does to rows: `labels` (num_rows,), `logits` (num_rows, num_labels)."""
    effects: dict = {"measured_on": split}
    for when, value in (("before", 1.0), ("after", temperature)):
        scores = score_classes(labels, logits, value)
        error = confidence_bins(scores.confidence, scores.correct).error
        effects[when] = {"loss": float(scores.loss.mean()), "ece": error}
    return effects


def render_calibration(calibration: dict) -> str:
    """Return a line for people."""
    is_same = calibration["measured_on"] == calibration["fitted_on"]
    return _(
        "Calibration: temperature {temperature:.3f}, fitted on {rows:,} rows of {fitted_on}; on "
        "{measured_on}{same}: loss {before[loss]:.4f} to {after[loss]:.4f}, calibration error "
        "{before[ece]:.4f} to {after[ece]:.4f}"
    ).format(same=_(", the rows it was fitted on") if is_same else "", **calibration)
