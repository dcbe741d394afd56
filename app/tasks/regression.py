"""One number a row: the model gives it in standard deviations of the train rows, people see its own unit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..words import N_
from .task import Scores, Task

if TYPE_CHECKING:
    import torch

    from ..batching.loader import Loader

# In config.json and decision.json: the mean and the standard deviation of the train rows
MEAN, SCALE = "target_mean", "target_scale"
DIGITS = 7  # of a prediction that people see
SAME = 0.01  # standard deviations: predictions of two models that differ by less are the same
NEAR = 0.5  # standard deviations: a prediction that is not further off counts as right


class Regression(Task):
    """Labels and predictions are numbers, (num_rows,) float64; logits (num_rows, 1) are in standard
    deviations, `scale`, from the `mean` of the train rows."""

    name = "regression"
    problem_type = "regression"
    log_metrics = ("loss", "rmse", "mae", "spearman")
    beside_baselines = ("spearman", "pearson")
    has_confidence = has_temperature = False
    label_column, right_share = "score", "near"
    right_rows = "rows not more than half a standard deviation off"
    headline = ()
    pipeline_arguments = ', function_to_apply="none"'
    in_config = (MEAN, SCALE)
    words = {
        "what": N_("A model that gives Chinese {texts} a score"),
        "label": N_("score"),
        "labels": N_("Scores"),
        "conflicting": N_("different scores"),
        "right": N_("Where it is at most half a standard deviation off"),
        "summary": N_(
            "Of the {rows:,} texts of this report, {right:,} get a number that is at most half a standard "
            "deviation off; {metric} is {value:.3f}, with other texts likely between {low:.3f} and "
            "{high:.3f}."
        ),
        "decision": N_(
            "**Unit.** The model's output is in standard deviations: a score is {target_mean:.6g} + "
            "{target_scale:.6g} × output, with the numbers of `decision.json` and `config.json`. "
            "`predict.py` does this; the pipeline above does not."
        ),
        "limit": "",
        "issues": N_(
            "{ranked:,} rows are more than half a standard deviation off, {flagged:,} of them are flagged, "
            "whose error is far from the usual ones: label_issues.csv"
        ),
        "cannot_judge": N_(
            "The models are at most half a standard deviation off in {accuracy:.1%} of the rows, and so is "
            "the mean in {majority:.1%}."
        ),
    }

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.mean, self.scale = 0.0, 1.0

    @property
    def main_metric(self) -> str:
        """The one that does not depend on the unit."""
        return "spearman"

    def build_loss(self, labels: np.ndarray) -> Any:
        from .losses import NumberLoss

        self.mean, self.scale = float(labels.mean()), float(labels.std())
        return NumberLoss(self.config.train.loss)

    def of_model(self) -> dict:
        return {MEAN: self.mean, SCALE: self.scale}

    def loader(self, split, store, layout) -> Loader:
        from ..batching.loader import Loader

        return Loader(split, store, layout, targets=self.standardised)

    def standardised(self, labels: np.ndarray) -> np.ndarray:
        """Return numbers in standard deviations from the mean, float32."""
        return ((labels - self.mean) / self.scale).astype(np.float32)

    def check_model(self, num_labels: int) -> None:
        if num_labels != 1:
            raise InputError(f"the model must give one number, found {num_labels}")

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        """Return the predictions, (num_rows, 1)."""
        return self.mean + self.scale * np.asarray(logits, np.float64)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities[:, 0]

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return 1 for all: a number says nothing about how sure it is."""
        return np.ones(len(probabilities))

    def differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.abs(self.decide(one) - self.decide(other)) > SAME * self.scale

    def fit(self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray | None = None) -> None:
        """Mean and scale are those of the train rows."""

    def load(self, values: dict) -> None:
        mean, scale = float(values.get(MEAN, 0.0)), float(values.get(SCALE, 1.0))
        if not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
            raise ValueError(f"a mean and a standard deviation above 0 are needed, found {mean!r}, {scale!r}")
        self.mean, self.scale = mean, scale

    def score(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        predicted: np.ndarray | None = None,
        calibrated: bool = False,
    ) -> Scores:
        """Return the scores; errors of several models are in standard deviations of these rows."""
        labels, scale = np.asarray(labels, np.float64), self.scale
        decided = self.decide(logits) if predicted is None else np.asarray(predicted, np.float64)
        if predicted is not None:
            scale = float(labels.std()) or 1.0
        error = np.abs(decided - labels)
        figures, right = {"near_distance": NEAR * scale}, error <= NEAR * scale
        return Scores(labels, decided, right, (error / scale) ** 2, error=error, figures=figures)

    def answer(self, label: np.ndarray) -> float:
        return float(f"{float(label):.{DIGITS}g}")

    def cell(self, label: np.ndarray) -> str:
        return f"{float(label):.{DIGITS}g}"

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        return np.asarray(predicted)

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        return {}

    def probability_columns(self, probabilities: np.ndarray) -> dict[str, float]:
        return {}

    def scored_label(self, label: int, probability: float, answer: float) -> dict[str, Any]:
        return {"score": answer, "label": self.label_names[label]}

    def arrow_array(self, labels: np.ndarray) -> Any:
        import pyarrow as pa

        return pa.array(np.asarray(labels, np.float64))

    def explained_labels(self, probabilities: np.ndarray) -> list[int]:
        return [0]

    def scale_logits(self, logits: torch.Tensor) -> torch.Tensor:
        return logits

    def log_odds(self, logits: torch.Tensor, label: int) -> torch.Tensor:
        """Return the number itself."""
        return self.mean + self.scale * logits[:, 0].double()

    def line(self, answer: float, probabilities: np.ndarray) -> str:
        return f"{answer:.4g}"

    def ranked_labels(self, probabilities: np.ndarray) -> np.ndarray:
        return np.zeros(1, np.int64)

    def listed_labels(self, probabilities: np.ndarray) -> np.ndarray:
        return np.empty(0, np.int64)
