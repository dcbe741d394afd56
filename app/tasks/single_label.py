"""Classification with one label a row: the loss is a sum over rows, the report is over classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ..batching.collate import Layout
from ..batching.loader import Batch, Loader
from ..config.schema import Config
from ..data.dataset import Dataset, Split
from ..data.tokens import TokenStore
from ..errors import InputError, listed
from ..evaluation.baseline import baselines, split_texts
from ..evaluation.calibration import CALIBRATION, FITTED_ON, calibrate, render_calibration
from ..evaluation.logits_file import LOGITS, logits_of, write_logits
from ..evaluation.measures.row_scores import score_rows
from ..evaluation.measures.summary import render_summary, summarize
from ..evaluation.metrics import compute_metrics
from ..evaluation.page.page import PageContent, read_history, render_page
from ..evaluation.page.rows import rows_of_split
from ..evaluation.predictions import write_predictions
from ..evaluation.report import render_report
from ..model.classifier import Classifier
from ..model.pretrained import build_model
from ..runtime.disk import write_json, write_text
from .losses import FocalLoss, LogitAdjustedLoss
from .task import Task

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class SingleLabel(Task):
    """A row's target is its class id; the model's outputs are logits (num_rows, num_labels)."""

    best_metrics = ("macro_f1", "weighted_f1", "accuracy", "loss")
    has_card = True
    log_metrics = ("loss", "accuracy", "macro_f1", "weighted_f1")

    def __init__(self, config: Config, dataset: Dataset, tokenizer, device: torch.device) -> None:
        super().__init__(config, dataset, tokenizer, device)
        weights = class_weights(config.train.class_weights, dataset)
        self.loss = self.choose_loss(None if weights is None else weights.to(device))

    def choose_loss(self, weights: torch.Tensor | None) -> Loss:
        """Return the loss of `train.loss`, with the weights of the classes, (num_labels,) or None, on the
        device."""
        train = self.config.train
        if train.loss == "focal":
            return FocalLoss(train.focal_gamma, weights)
        if train.loss == "logit_adjusted":
            labels = self.dataset.splits["train"].labels
            counts = np.bincount(labels, minlength=len(self.dataset.label_names))
            shares = torch.tensor(counts / counts.sum(), dtype=torch.get_default_dtype(), device=self.device)
            return LogitAdjustedLoss(shares, weights, train.label_smoothing)
        return RowLoss(weights, train.label_smoothing)

    def build_model(self, stores: dict[str, TokenStore]) -> Classifier:
        labels, max_length = self.dataset.label_names, self.config.data.max_length
        return build_model(self.config.model, self.tokenizer, labels, max_length)

    def loader(self, split: Split, store: TokenStore, layout: Layout) -> Loader:
        return Loader(split, store, layout)

    def sampling_classes(self, split: Split) -> np.ndarray:
        return np.asarray(split.labels)

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        return outputs

    def metrics(self, split: Split, results: np.ndarray) -> dict:
        return compute_metrics(np.asarray(split.labels), results, self.dataset.label_names)

    def right_rows(self, split: Split, results: np.ndarray) -> np.ndarray:
        return results.argmax(axis=1) == np.asarray(split.labels)

    def final_metrics(self, split: Split, results: np.ndarray) -> dict:
        return summarize(score_rows(split.labels, results), len(self.dataset.label_names))

    def report(self, metrics: dict, start: dict, title: str) -> str:
        calibration = [render_calibration(metrics["calibration"])] if "calibration" in metrics else []
        return "\n\n".join([render_report(metrics, title), render_summary(metrics), *calibration])

    def write_results(
        self,
        folder: Path,
        splits: dict[str, Split],
        results: dict[str, np.ndarray],
        report_split: str,
        step: int,
    ) -> dict:
        logits = {name: logits_of(splits[name], results[name]) for name in results}
        write_logits(folder / LOGITS, logits, self.dataset.label_names, step)
        train, report = (split_texts(split) for split in (self.dataset.splits["train"], splits[report_split]))
        more = {"baselines": baselines(train, report, len(self.dataset.label_names))}
        if FITTED_ON not in logits:
            return more
        calibration = calibrate(logits[FITTED_ON], logits[report_split], report_split)
        write_json(folder / CALIBRATION, calibration | {"step": step})
        return more | {"calibration": calibration}

    def write_predictions(self, path: Path, split: Split, results: np.ndarray) -> None:
        write_predictions(path, split, results, self.dataset.label_names)

    def write_page(
        self,
        path: Path,
        split: Split,
        results: np.ndarray,
        store: TokenStore,
        unknown_id: int | None,
        metrics: dict,
        title: str,
    ) -> None:
        names, train = self.dataset.label_names, self.dataset.splits["train"]
        scores = score_rows(split.labels, results)
        calibrated = None
        if "calibration" in metrics:
            calibrated = score_rows(split.labels, results, metrics["calibration"]["temperature"])
        rows = rows_of_split(split, train, store, unknown_id, scores, names)
        history = read_history(path.with_name("metrics.jsonl"))
        content = PageContent(title, rows, metrics, calibrated, history, self.dataset.statistics)
        write_text(path, render_page(content, self.config.output.language))

    def next_command(self, folder: Path) -> str:
        return f"classify text with: python predict.py --checkpoint {folder} 今天真开心"


class RowLoss:
    """The summed loss of a micro-batch: cross entropy with label smoothing and class weights."""

    def __init__(self, class_weights: torch.Tensor | None, label_smoothing: float) -> None:
        self.class_weights = class_weights
        self.label_smoothing = label_smoothing

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of logits (num_rows, num_labels) and labels
        (num_rows,)."""
        return cross_entropy(
            logits, labels, self.class_weights, reduction="sum", label_smoothing=self.label_smoothing
        )


def class_weights(setting: str | list[float], dataset: Dataset) -> torch.Tensor | None:
    """Return the factor on the loss of each class, (num_labels,) float32, or None if all are equal.

    Raises InputError unless the weights are finite numbers from 0, one for each class, and not all 0.
    """
    names = dataset.label_names
    if setting == "none":
        return None
    if setting == "balanced":
        counts = np.bincount(dataset.splits["train"].labels, minlength=len(names))
        return torch.tensor(counts.sum() / (len(names) * counts), dtype=torch.get_default_dtype())
    if len(setting) != len(names) or min(setting) < 0:
        raise InputError(
            f"train.class_weights must be {len(names)} numbers from 0, one for each of {listed(names)}; "
            f"found {setting}"
        )
    weights = torch.tensor(setting, dtype=torch.get_default_dtype())
    if not weights.isfinite().all() or not weights.any():
        raise InputError(
            "train.class_weights must be finite numbers in single precision, at least one of them above 0; "
            f"found {setting}; a weight of 1 counts a class as it is, 0 ignores it"
        )
    return weights
