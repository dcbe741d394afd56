"""Classification with any number of labels a row: the loss is a sum over rows and labels, each label has a
threshold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..batching.collate import Layout
from ..batching.loader import Batch, Loader
from ..config.schema import Config
from ..data.dataset import Dataset, Split
from ..data.label_sets import label_counts
from ..data.tokens import TokenStore
from ..errors import InputError, listed
from ..evaluation.baseline import split_texts
from ..evaluation.logits_file import LOGITS, logits_of, write_logits
from ..evaluation.measures.summary import render_summary
from ..evaluation.multi_label.baseline import label_set_baselines
from ..evaluation.multi_label.decisions import LabelRule, choose_thresholds, default_rule, sigmoid, write_rule
from ..evaluation.multi_label.metrics import label_set_metrics, render_label_sets
from ..evaluation.multi_label.page import render_label_set_page
from ..evaluation.multi_label.predictions import write_label_sets
from ..evaluation.multi_label.row_sets import NAMES, OF_BASELINES, decide_rows, summarize_sets
from ..evaluation.page.page import PageContent, read_history
from ..evaluation.page.rows import rows_of_split
from ..model.classifier import Classifier
from ..model.pretrained import build_model
from ..runtime.disk import write_text
from .losses import LabelSetLoss
from .task import Task

# Never on test, which is there to measure
CHOSEN_ON = "dev"


class LabelSetLoader(Loader):
    """A loader whose labels are (num_rows, num_labels) 0 and 1."""

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        """Return by what the sum of the losses of a global batch is divided: its rows times the labels."""
        return len(positions) * self.split.labels.shape[1]


class MultiLabel(Task):
    """A row's target is which labels it has, 0 or 1 for each; the model's outputs are logits (num_rows,
    num_labels).

    During the training, metrics on dev are at the thresholds that are best there; those of the report are at
    the thresholds of dev.
    """

    best_metrics = ("micro_f1", "macro_f1", "weighted_f1", "samples_f1", "subset_accuracy", "loss")
    has_card = True
    log_metrics = ("loss", "micro_f1", "macro_f1", "subset_accuracy")

    def __init__(self, config: Config, dataset: Dataset, tokenizer, device: torch.device) -> None:
        super().__init__(config, dataset, tokenizer, device)
        most, least = config.data.max_labels, config.data.min_labels
        if least > len(dataset.label_names):
            raise InputError(
                f"data.min_labels must be at most the number of labels, {len(dataset.label_names)}, found "
                f"{least}"
            )
        self.start_rule = default_rule(len(dataset.label_names), least, most)
        self.rule = self.start_rule
        weights = positive_weights(config.train.positive_weights, dataset)
        gamma = config.train.focal_gamma if config.train.loss == "focal" else 0.0
        self.loss = LabelSetLoss(None if weights is None else weights.to(device), gamma)

    def build_model(self, stores: dict[str, TokenStore]) -> Classifier:
        labels, max_length = self.dataset.label_names, self.config.data.max_length
        return build_model(
            self.config.model, self.tokenizer, labels, max_length, "multi_label_classification"
        )

    def loader(self, split: Split, store: TokenStore, layout: Layout) -> Loader:
        return LabelSetLoader(split, store, layout)

    def sampling_classes(self, split: Split) -> np.ndarray:
        """Return the rarest label of each row; rows without labels are one more class."""
        labels = np.asarray(split.labels)
        counts = label_counts(labels, labels.shape[1])
        rarest = np.where(labels, counts, len(labels) + 1).argmin(axis=1)
        return np.where(labels.any(axis=1), rarest, labels.shape[1])

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        return outputs

    def metrics(self, split: Split, results: np.ndarray) -> dict:
        rule = self.choose_rule(split, results) if split.name == CHOSEN_ON else self.start_rule
        return label_set_metrics(split.labels, results, rule, self.dataset.label_names)

    def right_rows(self, split: Split, results: np.ndarray) -> np.ndarray:
        return decide_rows(split.labels, results, self.rule).correct

    def choose_rule(self, split: Split, results: np.ndarray) -> LabelRule:
        """Return the thresholds that are best for the rows of a split."""
        thresholds = choose_thresholds(np.asarray(split.labels), sigmoid(results))
        limits = self.start_rule.min_labels, self.start_rule.max_labels
        return LabelRule(thresholds, *limits, split.name, len(split))

    def write_results(
        self,
        folder: Path,
        splits: dict[str, Split],
        results: dict[str, np.ndarray],
        report_split: str,
        step: int,
    ) -> dict:
        names = self.dataset.label_names
        logits = {name: logits_of(splits[name], results[name]) for name in results}
        write_logits(folder / LOGITS, logits, names, step)
        if CHOSEN_ON in results:
            self.rule = self.choose_rule(splits[CHOSEN_ON], results[CHOSEN_ON])
        write_rule(folder, self.rule, names, step)
        texts = {split.name: split_texts(split) for split in (self.dataset.splits["train"], *splits.values())}
        baselines = label_set_baselines(
            texts["train"], texts.get(CHOSEN_ON), texts[report_split], self.start_rule
        )
        labels, report = splits[report_split].labels, results[report_split]
        summary = summarize_sets(decide_rows(labels, report, self.rule))
        return label_set_metrics(labels, report, self.rule, names) | summary | {"baselines": baselines}

    def report(self, metrics: dict, start: dict, title: str) -> str:
        dev = self.dataset.splits.get(CHOSEN_ON)
        absent = (
            0 if dev is None else int((label_counts(dev.labels, len(self.dataset.label_names)) == 0).sum())
        )
        table = render_label_sets(metrics, self.rule, absent, title)
        return f"{table}\n\n{render_summary(metrics, NAMES, OF_BASELINES)}"

    def write_predictions(self, path: Path, split: Split, results: np.ndarray) -> None:
        write_label_sets(path, split, results, self.rule, self.dataset.label_names)

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
        scores = decide_rows(split.labels, results, self.rule)
        rows = rows_of_split(split, train, store, unknown_id, scores, names)
        history = read_history(path.with_name("metrics.jsonl"))
        content = PageContent(title, rows, metrics, None, history, self.dataset.statistics)
        write_text(path, render_label_set_page(content, self.rule, self.config.output.language))

    def next_command(self, folder: Path) -> str:
        return f"classify text with: python predict.py --checkpoint {folder} 今天真开心"


def positive_weights(setting: str | list[float], dataset: Dataset) -> torch.Tensor | None:
    """Return the factor on the loss of the rows that have each label, (num_labels,) float32, or None if all
    are 1.

    Raises InputError unless the weights are finite numbers above 0, one for each label.
    """
    names, train = dataset.label_names, dataset.splits["train"]
    if setting == "none":
        return None
    if setting == "balanced":
        counts = label_counts(train.labels, len(names))
        return torch.tensor(np.maximum(len(train) - counts, 1) / counts, dtype=torch.get_default_dtype())
    weights = torch.tensor(setting, dtype=torch.get_default_dtype())
    if len(weights) != len(names) or not weights.isfinite().all() or not (weights > 0).all():
        raise InputError(
            f"train.positive_weights must be {len(names)} finite numbers above 0, one for each of "
            f"{listed(names)}; found "
            f"{setting}"
        )
    return weights
