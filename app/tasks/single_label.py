"""One label a row: the most probable one, or of two classes the rarer one from a threshold on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.schema import TASKS, Config
from ..data.dataset import Dataset
from ..data.label_shares import rows_of_labels
from ..errors import InputError
from . import temperature
from .decision_file import FITTED_ON, number_between
from .probabilities import log_softmax, logit, sigmoid
from .scores import Scores
from .task import Task
from .thresholds import DEFAULT_THRESHOLD, RARE_F1, best_threshold

if TYPE_CHECKING:
    import torch


class SingleLabel(Task):
    """Labels and predictions are class ids, (num_rows,) int64; probabilities are softmax(logits /
    `temperature`), (num_rows, num_labels).

    Where `train.best_metric` is rare_f1, `rare_class` is the answer from the log odds `rare_log_odds` on,
    which are None where the most probable label is the answer.
    """

    name = "single_label"
    problem_type = "single_label_classification"
    main_metric = "macro_f1"
    log_metrics = ("loss", "accuracy", "macro_f1", "weighted_f1")
    baseline_metrics = ("accuracy", "macro_f1")
    has_temperature = True
    rare_log_odds: float | None = None

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.has_rare_class = len(label_names) == 2 and RARE_F1 in TASKS[self.name].metrics

    @property
    def temperature(self) -> float:
        return self.calibration.get("temperature", 1.0)

    def prepare(self, config: Config, dataset: Dataset, tokenizer, device: torch.device) -> None:
        if config.train.best_metric == RARE_F1 and not self.has_rare_class:
            raise InputError(
                f"train.best_metric {RARE_F1} needs two labels, found {len(self.label_names):,}; choose "
                "another one"
            )
        super().prepare(config, dataset, tokenizer, device)

    def build_loss(self, labels: np.ndarray) -> Any:
        import torch

        from .losses import ClassLoss

        counts = rows_of_labels(labels, len(self.label_names))
        if labels.ndim == 2 and self.config.train.loss == "focal":
            raise InputError(
                "train.loss focal needs rows with one label, found rows with probabilities or votes: it "
                "counts a row less the surer the model is of its label. Leave it out, or take logit_adjusted"
            )
        if self.has_rare_class:
            self.rare_class = int(counts.argmin())
        shares = counts / counts.sum()
        balanced = counts.sum() / len(counts) / counts
        return ClassLoss(
            self.config.train.loss,
            weights=self.label_weights(balanced),
            class_shares=torch.tensor(shares, dtype=torch.get_default_dtype(), device=self.device),
            logits_of=lambda outputs: self.class_logits(outputs, torch),
        )

    def class_logits(self, outputs: Any, library: ModuleType = np) -> Any:
        """Return logits whose softmax are the probabilities of the labels, of the model's outputs, an array
        of `library`, numpy or torch."""
        return outputs

    def log_probabilities(self, logits: np.ndarray, calibrated: bool) -> np.ndarray:
        """Return the logarithms of `probabilities`."""
        temperature = self.temperature if calibrated else 1.0
        return log_softmax(self.class_logits(np.asarray(logits)), temperature)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        return np.exp(self.log_probabilities(logits, calibrated))

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        if self.rare_log_odds is None:
            return probabilities.argmax(axis=1)
        # A temperature divides the log odds, and so what they are compared with
        is_rare = logit(probabilities[:, self.rare_class]) >= self.rare_log_odds / self.temperature
        return np.where(is_rare, self.rare_class, 1 - self.rare_class)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        probabilities = self.probabilities(logits, calibrated=self.rare_log_odds is not None)
        return self.decide_by_probabilities(probabilities)

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        rows = np.arange(len(probabilities))
        return probabilities[rows, self.decide_by_probabilities(probabilities)]

    def log_odds(self, outputs: torch.Tensor, label: int) -> torch.Tensor:
        import torch

        logits = self.class_logits(outputs, torch) / self.temperature
        other_logits = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
        return logits[:, label] - other_logits.logsumexp(dim=1)

    def fit(self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray | None = None) -> None:
        labels = np.asarray(labels)
        if self.best_metric == RARE_F1:
            rare_probabilities = self.probabilities(logits, calibrated=False)[:, self.rare_class]
            threshold = best_threshold(labels == self.rare_class, rare_probabilities)
            self.rare_log_odds = float(logit(threshold))
        if hashes is not None:
            self.fit_temperature(labels, self.class_logits(logits), hashes)

    def sharpened_loss(self, labels: np.ndarray, logits: np.ndarray, sharpness: float) -> np.ndarray:
        return temperature.class_loss(labels, self.class_logits(logits), 1 / sharpness)

    def shift_direction(self, class_shares: np.ndarray | None) -> np.ndarray:
        if class_shares is None:
            return super().shift_direction(class_shares)
        log_shares = np.log(class_shares)
        return log_shares - log_shares.mean()

    def fit_temperature(self, labels: np.ndarray, class_logits: np.ndarray, hashes: np.ndarray) -> None:
        num_rows = len(labels)
        if num_rows < temperature.MIN_ROWS:
            self.no_calibration = {"why": "few_rows", "rows": num_rows}
        elif not temperature.lowers_loss_of_new_rows(labels, class_logits, hashes):
            self.no_calibration = {"why": "no_better", "rows": num_rows}
        else:
            fitted = temperature.fit_temperature(labels, class_logits)
            self.calibration = {"temperature": fitted, "fitted_on": FITTED_ON, "rows": num_rows}

    def together_with(self, others: Sequence[Task]) -> Task:
        together = super().together_with(others)
        tasks = [self, *others]
        with_threshold = [task for task in tasks if task.rare_log_odds is not None]
        if not with_threshold:
            return together
        # A model that another program has trained does not know which class is rarer
        rare_name = with_threshold[0].label_names[with_threshold[0].rare_class]
        thresholds = [task.threshold_of(rare_name) for task in tasks]
        together.rare_class = self.label_names.index(rare_name)
        together.rare_log_odds = float(logit(np.mean(thresholds)))
        return together

    def threshold_of(self, name: str) -> float:
        """Return the probability from which one of two labels is the answer."""
        if self.rare_log_odds is None:
            return DEFAULT_THRESHOLD
        threshold = float(sigmoid(self.rare_log_odds / self.temperature))
        if self.label_names.index(name) != self.rare_class:
            return 1 - threshold
        return threshold

    def rare_state(self) -> dict:
        """Return the part of `state` that is about the rarer of two classes."""
        state: dict[str, Any] = {}
        if self.rare_class is not None:
            state["rare_class"] = self.label_names[self.rare_class]
        if self.rare_log_odds is not None:
            state["rare_threshold"] = float(sigmoid(self.rare_log_odds))
        return state

    def state(self) -> dict:
        return super().state() | self.rare_state() | self.calibration

    def load(self, values: dict) -> None:
        has_rare_state = "rare_class" in values
        if has_rare_state:
            self.rare_class = self.label_names.index(values["rare_class"])
            if "rare_threshold" in values:
                threshold = number_between("rare_threshold", values["rare_threshold"])
                self.rare_log_odds = float(logit(threshold))
        # A file that has nothing else is there because of its temperature
        needs_temperature = not has_rare_state and not self.config_keys
        if needs_temperature or "temperature" in values:
            fitted = number_between(
                "temperature",
                values["temperature"],
                temperature.MIN_TEMPERATURE,
                temperature.MAX_TEMPERATURE,
            )
            num_rows = int(values.get("rows", 0))
            self.calibration = {"temperature": fitted, "fitted_on": FITTED_ON, "rows": num_rows}

    def score(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        predicted: np.ndarray | None = None,
        calibrated: bool = False,
    ) -> Scores:
        labels = np.asarray(labels, np.int64)
        if predicted is None:
            predicted = self.decide(logits)
        log_probabilities = self.log_probabilities(logits, calibrated)
        rows = np.arange(len(labels))
        log_of_label = log_probabilities[rows, labels]
        # The sum of (probability - truth) squared, where the truth is 1 for one class
        brier = np.exp(2 * log_probabilities).sum(axis=1) - 2 * np.exp(log_of_label) + 1
        scores = Scores(
            labels,
            predicted,
            correct=predicted == labels,
            loss=-log_of_label,
            confidence=np.exp(log_probabilities[rows, predicted]),
            brier=brier,
        )
        if not self.has_rare_class:
            return scores
        rare_class = self.rare_class
        if rare_class is None:
            rare_class = np.bincount(labels, minlength=2).argmin()
        rare_chance = np.exp(log_probabilities[:, rare_class])
        return replace(scores, rare_chance=rare_chance, figures=self.rare_state())
