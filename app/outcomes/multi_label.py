"""Several labels a row: each label is decided by a threshold of its own, which is chosen on dev."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.label_cells import decode_set
from ..data.label_sets import label_counts
from ..data.labels import resolve_label
from ..errors import InputError
from ..evaluation.baseline import Texts
from ..evaluation.labels.issues import LabelIssues, least_plausible
from ..evaluation.labels.planted import choose_set_flips
from ..evaluation.labels.set_issues import find_set_issues, score_sets
from ..evaluation.logits_file import SplitLogits
from ..evaluation.measures.selective import RowDecisions
from ..evaluation.measures.summary import render_summary
from ..evaluation.multi_label.abstaining import held_out_decisions
from ..evaluation.multi_label.baseline import label_set_baselines
from ..evaluation.multi_label.decisions import (
    choose_thresholds,
    default_rule,
    read_rule,
    rule_of,
    rule_values,
    sigmoid,
    write_rule,
)
from ..evaluation.multi_label.metrics import render_label_sets, row_set_metrics
from ..evaluation.multi_label.page import render_label_set_page
from ..evaluation.multi_label.row_sets import OF_BASELINES, RowSets
from ..evaluation.page.page import PageContent
from ..evaluation.text_table import short_label
from .label_counts import LabelCounts, distinct_label_lists
from .outcome import FITTED_ON, Outcome

if TYPE_CHECKING:
    import torch

    from ..batching.loader import Loader

MAX_PATTERNS = 1000


class MultiLabel(Outcome):
    """Labels and predictions are 0 and 1, (num_rows, num_labels), as are logits and probabilities.

    During the training, metrics on dev are at the thresholds that are best there; those of the report are at
    the thresholds of dev.
    """

    task = "multi_label"
    problem_type = "multi_label_classification"
    best_metrics = ("micro_f1", "macro_f1", "weighted_f1", "samples_f1", "subset_accuracy", "loss")
    log_metrics = ("loss", "micro_f1", "macro_f1", "subset_accuracy")
    label_column = "labels"
    note = (
        "Each run decides by its own thresholds (thresholds.json), which have the best F1 of each label on "
        "its dev rows; without dev rows they are 0.5."
    )

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.rule = default_rule(len(label_names))

    def prepare(self, config, dataset, tokenizer, device) -> None:
        super().prepare(config, dataset, tokenizer, device)
        from .losses import multi_label_loss

        least, num_labels = config.data.min_labels, len(self.label_names)
        if least > num_labels:
            raise InputError(
                f"data.min_labels must be at most the number of labels, {num_labels}, found {least}"
            )
        self.rule = self.start_rule = default_rule(num_labels, least, config.data.max_labels)
        labels = dataset.splits["train"].labels
        self.loss = multi_label_loss(config.train, labels, self.label_names, device)

    def loader(self, split, store, layout) -> Loader:
        from ..batching.loader import Loader

        return Loader(split, store, layout, losses_per_row=len(self.label_names))

    def sampling_classes(self, labels: np.ndarray) -> np.ndarray:
        """Return the rarest label of each row; rows without labels are one more class."""
        labels = np.asarray(labels)
        counts = label_counts(labels, labels.shape[1])
        rarest = np.where(labels, counts, len(labels) + 1).argmin(axis=1)
        return np.where(labels.any(axis=1), rarest, labels.shape[1])

    def metrics_in_training(self, split, results: np.ndarray) -> dict:
        """Return the metrics, on dev with the thresholds that are best for its rows."""
        if split.name == FITTED_ON:
            self.choose_thresholds(split.labels, results)
        else:
            self.rule = self.start_rule
        return super().metrics_in_training(split, results)

    def choose_thresholds(self, labels: np.ndarray, logits: np.ndarray) -> None:
        """Decide by the thresholds that are best for rows of dev."""
        thresholds = choose_thresholds(np.asarray(labels), sigmoid(logits))
        self.rule = self.rule.with_thresholds(thresholds, FITTED_ON, labels)

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        return sigmoid(logits)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return self.rule.decide(sigmoid(logits))

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the confidence of the least certain label of each row."""
        return self.rule.confidence(probabilities)

    def held_out_decisions(self, dev: SplitLogits) -> RowDecisions:
        return held_out_decisions(dev, self.rule)

    def fit(self, dev: SplitLogits) -> None:
        self.choose_thresholds(dev.labels, dev.logits)

    def fitted_values(self) -> dict:
        return rule_values(self.rule, self.label_names)

    def label_rule(self) -> dict:
        return self.fitted_values()

    def use_fitted(self, values: dict) -> None:
        self.rule = rule_of(values, self.label_names)

    def write_fitted(self, folder: Path, step: int, effect: dict) -> None:
        write_rule(folder, self.rule, self.label_names, step)

    def read_fitted(self, folder: Path, calibrate: bool = True) -> None:
        self.rule = read_rule(folder, self.label_names)

    def score(self, labels: np.ndarray, logits: np.ndarray, predicted: np.ndarray | None = None) -> RowSets:
        labels = np.asarray(labels, dtype=bool)
        if predicted is not None:
            return RowSets(labels, predicted, logits)
        return RowSets(labels, self.decide(logits), logits, self.rule)

    def measure(self, scores: RowSets) -> dict:
        return row_set_metrics(scores, self.label_names)

    def distinct_rows(
        self, labels: np.ndarray, *predicted: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        return distinct_label_lists(labels, *predicted)

    def count(self, labels: np.ndarray, predicted: np.ndarray) -> LabelCounts:
        return LabelCounts.of_label_lists(labels, predicted)

    def baselines(self, train: Texts, dev: Texts | None, report: Texts) -> dict[str, dict]:
        limits = default_rule(len(self.label_names), self.rule.min_labels, self.rule.max_labels)
        return label_set_baselines(train, dev, report, limits)

    def find_issues(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> LabelIssues:
        return find_set_issues(labels, logits, predicted)

    def rank_issues(self, labels: np.ndarray, predicted: np.ndarray, logits: np.ndarray) -> np.ndarray:
        return least_plausible((predicted != labels).any(axis=1), score_sets(labels, logits))

    def issue_patterns(self, issues: LabelIssues) -> dict:
        """Return in how many rows each label is taken for left out or put in by mistake, the most first."""
        counts = [
            (kind, label, int(rows))
            for kind in ("missing", "extra")
            for label, rows in enumerate(getattr(issues, kind))
        ]
        counts.sort(key=lambda entry: -entry[2])
        names = self.label_names
        wrong = [{"label": names[label], "kind": kind, "rows": rows} for kind, label, rows in counts if rows]
        return {"wrong_labels": wrong[:MAX_PATTERNS]}

    def inject_errors(
        self, labels: np.ndarray, hashes: np.ndarray, fraction: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        return choose_set_flips(labels, hashes, fraction, seed)

    def target(self, text: str) -> np.ndarray | None:
        ids = [resolve_label(label, self.label_names) for label in decode_set(text)]
        if None in ids:
            return None
        target = np.zeros(len(self.label_names), dtype=bool)
        target[ids] = True
        return target

    def answer(self, label: np.ndarray) -> list[str]:
        return [self.label_names[index] for index in np.flatnonzero(label)]

    def cell(self, label: np.ndarray) -> str:
        """Return the labels of a row as a JSON list."""
        return json.dumps(self.answer(label), ensure_ascii=False)

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return the probabilities, with a threshold `decision` and `confidence` before them."""
        record: dict[str, Any] = {}
        if threshold is not None:
            confidence = float(self.confidence(probabilities[None])[0])
            record |= {"decision": "accept" if confidence >= threshold else "abstain"}
            record |= {"confidence": round(confidence, 6)}
        return record | self.probability_columns(probabilities)

    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.list_(pa.string())

    def arrow_array(self, labels: np.ndarray) -> Any:
        import pyarrow as pa

        rows, ids = np.nonzero(labels)
        ends = np.searchsorted(rows, np.arange(len(labels) + 1))
        names = pa.DictionaryArray.from_arrays(ids.astype(np.int32), pa.array(self.label_names, pa.string()))
        return pa.ListArray.from_arrays(ends.astype(np.int32), names.dictionary_decode())

    def explained_labels(self, probabilities: np.ndarray) -> list[int]:
        chosen = np.flatnonzero(self.rule.decide(probabilities[None])[0])
        return chosen[np.argsort(-probabilities[chosen], kind="stable")].tolist()

    def log_odds(self, logits: torch.Tensor, label: int) -> torch.Tensor:
        return logits[:, label]

    def line(self, answer: list[str], probabilities: np.ndarray) -> str:
        return ", ".join(map(short_label, answer)) or "(no label)"

    def report_text(self, metrics: dict, start: dict, title: str) -> str:
        table = render_label_sets(metrics, self.rule, title)
        return f"{table}\n\n{render_summary(metrics, of_baselines=OF_BASELINES)}"

    def render_page(self, content: PageContent, language: str) -> str:
        return render_label_set_page(content, self.rule, language)
