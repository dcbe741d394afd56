"""One number a row: the model gives it in standard deviations of the train rows, people see its own unit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .task import Scores, Task

# In config.json and decision.json: the mean and the standard deviation of the train rows
MEAN, SCALE = "target_mean", "target_scale"
SAME = 0.01  # standard deviations: predictions of two models that differ by less are the same
NEAR = 0.5  # standard deviations: a prediction that is not further off counts as right


class Regression(Task):
    """Labels and predictions are numbers, (num_rows,) float64; logits (num_rows, 1) are in standard
    deviations, `scale`, from the `mean` of the train rows. The probabilities of a row are its prediction."""

    name = "regression"
    problem_type = "regression"
    main_metric = "spearman"  # it does not depend on the unit
    log_metrics = ("loss", "rmse", "mae", "spearman")
    baseline_metrics = ("spearman", "pearson")
    predicts_number = True
    answer_column, right_rows_name = "score", "rows not more than half a standard deviation off"
    config_keys = (MEAN, SCALE)
    mean, scale = 0.0, 1.0

    def build_loss(self, labels: np.ndarray) -> Any:
        from .losses import NumberLoss

        self.mean, self.scale = float(labels.mean()), float(labels.std())
        return NumberLoss(self.config.train.loss)

    def targets(self, labels: np.ndarray) -> np.ndarray:
        return ((labels - self.mean) / self.scale).astype(np.float32)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        return self.mean + self.scale * np.asarray(logits, np.float64)

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities[:, 0]

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return 1 for all: a number says nothing about how sure it is."""
        return np.ones(len(probabilities))

    def differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.abs(self.decide(one) - self.decide(other)) > SAME * self.scale

    def state(self) -> dict:
        return {MEAN: self.mean, SCALE: self.scale}

    def load(self, values: dict) -> None:
        mean, scale = float(values.get(MEAN, 0.0)), float(values.get(SCALE, 1.0))
        if not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
            raise ValueError(f"a mean and a standard deviation above 0 are needed, found {mean!r}, {scale!r}")
        self.mean, self.scale = mean, scale

    def score(self, labels, logits, predicted=None, calibrated=False) -> Scores:
        """Return the scores; errors of several models are in standard deviations of these rows."""
        labels, scale = np.asarray(labels, np.float64), self.scale
        decided = self.decide(logits) if predicted is None else np.asarray(predicted, np.float64)
        if predicted is not None:
            scale = float(labels.std()) or 1.0
        error, near = np.abs(decided - labels), NEAR * scale
        figures = {"near_distance": near}
        return Scores(labels, decided, error <= near, (error / scale) ** 2, error=error, figures=figures)

    def answer(self, label: np.ndarray) -> float:
        return float(self.cell_text(label))

    def cell_text(self, label: np.ndarray) -> str:
        return f"{float(label):.7g}"

    def log_odds(self, outputs: Any, label: int) -> Any:
        return self.mean + self.scale * outputs[:, 0].double()
