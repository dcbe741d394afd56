"""One number a row: the model gives it in standard deviations of the train rows, people see its own unit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..evaluation.page.report_page import PageContent
from ..words import _
from .label_report import interval_lines
from .labelled_outcome import LabelledOutcome
from .number_baselines import number_baselines
from .number_page import page_sections
from .number_scores import NEAR, Numbers, NumberScores
from .resampling import answer_values
from .texts import Texts

if TYPE_CHECKING:
    import torch

    from ..batching.loader import Loader
    from ..data.tokens import TokenStore
    from ..model.packed_model import PackedModel

# In config.json: the mean and the standard deviation of the train rows
MEAN, SCALE = "target_mean", "target_scale"
# Digits of a prediction that people see
DIGITS = 7
# Of standard deviations: predictions of two models that differ by less are the same
SAME = 0.01
# Rows that are further off than so many standard deviations of all errors may have a wrong number
FAR_OFF = 3.0
# The standard deviation is this many times the median distance from the median, of normal errors
NORMAL = 1.4826


class Regression(LabelledOutcome):
    """Labels and predictions are numbers, (num_rows,) float64; logits (num_rows, 1) are in standard
    deviations, `scale`, from the `mean` of the train rows."""

    task = "regression"
    problem_type = "regression"
    log_metrics = ("loss", "rmse", "mae", "spearman")
    beside_baselines = ("spearman", "pearson")
    label_column = "score"
    right_share = "near"
    pipeline_arguments = ', function_to_apply="none"'
    fitted_file = "scale.json"
    fitted_rule = "a mean and a standard deviation above 0 are needed"
    fitted_remedy = "restore it, or remove it to use those of config.json"
    has_confidence = False

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.mean, self.scale = 0.0, 1.0

    @property
    def main_metric(self) -> str:
        """The one that does not depend on the unit."""
        return "spearman"

    def prepare(self, config, dataset, tokenizer, device) -> None:
        super().prepare(config, dataset, tokenizer, device)
        from .losses import NumberLoss

        labels = np.asarray(dataset.splits["train"].labels)
        self.mean, self.scale = float(labels.mean()), float(labels.std())
        self.loss = NumberLoss(config.train.loss)

    def build_model(self, stores: dict[str, TokenStore]) -> PackedModel:
        """Return the model; its configuration has what makes numbers of its outputs."""
        model = super().build_model(stores)
        model.model.config.update({MEAN: self.mean, SCALE: self.scale})
        return model

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

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return self.probabilities(logits)[:, 0]

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return 1 for all: a number says nothing about how sure it is."""
        return np.ones(len(probabilities))

    def differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.abs(self.decide(one) - self.decide(other)) > SAME * self.scale

    def fitted_values(self) -> dict:
        return {"mean": self.mean, "scale": self.scale}

    def use_fitted(self, values: dict) -> None:
        mean, scale = float(values["mean"]), float(values["scale"])
        if not (math.isfinite(mean) and math.isfinite(scale) and scale > 0):
            raise ValueError(f"mean {mean!r}, scale {scale!r}")
        self.mean, self.scale = mean, scale

    def read_fitted(self, folder: Path, calibrate: bool = True) -> None:
        """Read it from `fitted_file`, or from the configuration of a model whose run is not finished; a model
        of another program gives its numbers as they are."""
        super().read_fitted(folder)
        path = folder / "config.json"
        if not (folder / self.fitted_file).exists() and path.exists():
            config = json.loads(path.read_text(encoding="utf-8"))
            self.use_fitted({"mean": config.get(MEAN, 0.0), "scale": config.get(SCALE, 1.0)})

    def score(
        self, labels: np.ndarray, logits: np.ndarray, predicted: np.ndarray | None = None
    ) -> NumberScores:
        """Return the scores; errors of several models are in standard deviations of these rows."""
        labels = np.asarray(labels, np.float64)
        if predicted is None:
            return NumberScores(labels, self.decide(logits), self.scale)
        return NumberScores(labels, np.asarray(predicted, np.float64), float(labels.std()) or 1.0)

    def measure(self, scores: NumberScores) -> dict:
        values = answer_values(self, scores.labels, scores.predicted)
        near = {"near": float(scores.correct.mean()), "near_distance": NEAR * scores.scale}
        return {"rows": len(scores), "loss": float(scores.loss.mean()), **values, **near}

    def distinct_rows(
        self, labels: np.ndarray, *predicted: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Return all rows: hardly two of them are the same."""
        counts = np.ones(len(labels), np.int64)
        return [np.asarray(array, np.float64) for array in (labels, *predicted)], counts

    def count(self, labels: np.ndarray, predicted: np.ndarray) -> Numbers:
        return Numbers(labels, predicted)

    def baselines(self, train: Texts, dev: Texts | None, report: Texts) -> dict[str, dict]:
        return number_baselines(self, train, report)

    def constant_answer(self, scores: NumberScores) -> np.ndarray:
        return replace(scores, predicted=np.full(len(scores), scores.labels.mean())).correct

    def label_quality(self, scores: NumberScores, logits: np.ndarray) -> np.ndarray:
        """Return 1 for a number that is as predicted, towards 0 the further it is off."""
        return np.exp(-scores.error / scores.scale)

    def flag_labels(self, scores: NumberScores, logits: np.ndarray) -> tuple[np.ndarray, dict]:
        """Return the rows whose error is far from the usual ones."""
        errors = scores.predicted - scores.labels
        center = np.median(errors)
        spread = NORMAL * np.median(np.abs(errors - center))
        return np.abs(errors - center) > FAR_OFF * spread, {}

    def answer(self, label: np.ndarray) -> float:
        return float(f"{float(label):.{DIGITS}g}")

    def cell(self, label: np.ndarray) -> str:
        return f"{float(label):.{DIGITS}g}"

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        return np.asarray(predicted)

    def probability_columns(self, probabilities: np.ndarray) -> dict[str, float]:
        return {}

    def scored_label(self, label: int, probability: float, answer: float) -> dict[str, Any]:
        return {"score": answer, "label": self.label_names[label]}

    def arrow_array(self, labels: np.ndarray) -> Any:
        import pyarrow as pa

        return pa.array(np.asarray(labels, np.float64))

    def explained_labels(self, probabilities: np.ndarray) -> list[int]:
        return [0]

    def log_odds(self, logits: torch.Tensor, label: int) -> torch.Tensor:
        """Return the number itself."""
        return self.mean + self.scale * logits[:, 0].double()

    def line(self, answer: float, probabilities: np.ndarray) -> str:
        return f"{answer:.4g}"

    def listed_labels(self, probabilities: np.ndarray) -> np.ndarray:
        return np.empty(0, np.int64)

    def report_text(self, metrics: dict, start: dict, title: str) -> str:
        near = _("rows {rows:,}; {near:.1%} at most {near_distance:.4g} off, half a standard deviation")
        intervals = interval_lines(metrics, ("rmse", "mae", *self.beside_baselines))
        return "\n".join([title, near.format(**metrics), "", intervals])

    def issues_found(self) -> str:
        return _(
            "{ranked:,} rows are more than half a standard deviation off, {flagged:,} of them are flagged, "
            "whose error is far from the usual ones: label_issues.csv"
        )

    def cannot_judge(self) -> str:
        return _(
            "The models are at most half a standard deviation off in {accuracy:.1%} of the rows, and so is "
            "the mean in {majority:.1%}."
        )

    def card_words(self) -> dict[str, str]:
        return {
            "what": _("A model that gives Chinese {texts} a score"),
            "label": _("score"),
            "labels": _("Scores"),
            "conflicting": _("different scores"),
        }

    def decision_paragraph(self, metrics: dict) -> str:
        return _(
            "**Unit.** The model's output is in standard deviations: a score is {mean:.6g} + {scale:.6g} × "
            "output, with the numbers of `scale.json` and `config.json`. `predict.py` does this; the "
            "pipeline above does not."
        ).format(mean=self.mean, scale=self.scale)

    def page_titles(self) -> dict[str, str]:
        return {
            "scatter": _("Predicted against true"),
            "errors": _("The rows that are furthest off"),
            "groups": _("Where it is at most half a standard deviation off"),
        }

    def page_summary(self) -> str:
        return _(
            "Of the {rows:,} texts of this report, {right:,} get a number that is at most half a standard "
            "deviation off; {metric} is {value:.3f}, with other texts likely between {low:.3f} and "
            "{high:.3f}."
        )

    def page_sections(self, content: PageContent) -> dict:
        return page_sections(content, self.cell)
