"""One number a row: the model gives it in standard deviations of the train rows, people see its own unit."""

import math
from typing import Any

import numpy as np

from .scores import Scores
from .task import Task

# In config.json and decision.json: the mean and the standard deviation of the train rows
MEAN = "target_mean"
SCALE = "target_scale"
SAME = 0.01  # standard deviations: predictions of two models that differ by less are the same
NEAR = 0.5  # standard deviations: a prediction that is not further off counts as right


class Regression(Task):
    """Labels and predictions are numbers, (num_rows,) float64; logits (num_rows, 1) are in standard
    deviations, `scale`, from the `mean` of the train rows. Where other tasks have the
    probabilities of a row, it has the prediction."""

    name = "regression"
    problem_type = "regression"
    main_metric = "spearman"  # it does not depend on the unit
    log_metrics = ("loss", "rmse", "mae", "spearman")
    baseline_metrics = ("spearman", "pearson")
    predicts_number = True
    answer_column = "score"
    right_rows_name = "rows not more than half a standard deviation off"
    config_keys = (MEAN, SCALE)
    mean = 0.0
    scale = 1.0

    def build_loss(self, labels: np.ndarray) -> Any:
        from .losses import NumberLoss

        self.mean = float(labels.mean())
        self.scale = float(labels.std())
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

    def log_odds(self, outputs: Any, label: int) -> Any:
        return self.mean + self.scale * outputs[:, 0].double()

    def differ(self, logits: np.ndarray, new_logits: np.ndarray) -> np.ndarray:
        difference = np.abs(self.decide(logits) - self.decide(new_logits))
        return difference > SAME * self.scale

    def sharpened_loss(self, labels: np.ndarray, logits: np.ndarray, sharpness: float) -> np.ndarray:
        """Return the squared error in standard deviations of the train rows."""
        return (logits[:, 0] - self.targets(labels)) ** 2

    def scaled_outputs(self) -> np.ndarray:
        return np.ones(len(self.label_names), bool)

    def logits_of_linear_model(self, outputs: np.ndarray) -> np.ndarray:
        return (outputs - self.mean) / self.scale

    def state(self) -> dict:
        return {MEAN: self.mean, SCALE: self.scale}

    def load(self, values: dict) -> None:
        mean = float(values.get(MEAN, 0.0))
        scale = float(values.get(SCALE, 1.0))
        if not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
            raise ValueError(f"a mean and a standard deviation above 0 are needed, found {mean!r}, {scale!r}")
        self.mean = mean
        self.scale = scale

    def score(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        predicted: np.ndarray | None = None,
        calibrated: bool = False,
    ) -> Scores:
        """Return the scores; where other models decided, errors are in standard deviations of these rows."""
        labels = np.asarray(labels, np.float64)
        if predicted is None:
            predicted = self.decide(logits)
            scale = self.scale
        else:
            predicted = np.asarray(predicted, np.float64)
            scale = float(labels.std()) or 1.0
        error = np.abs(predicted - labels)
        near_distance = NEAR * scale
        return Scores(
            labels,
            predicted,
            correct=error <= near_distance,
            loss=(error / scale) ** 2,
            error=error,
            figures={"near_distance": near_distance},
        )

    def answer(self, label: np.ndarray) -> float:
        return float(self.cell_text(label))

    def cell_text(self, label: np.ndarray) -> str:
        return f"{float(label):.7g}"
