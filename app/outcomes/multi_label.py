"""Several labels a row: each label has a threshold, chosen on dev."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation.logits_file import SplitLogits
from ..evaluation.measures.selective import RowDecisions
from ..evaluation.page.report_page import PageContent
from ..evaluation.text_table import short_label
from ..words import _
from .baselines import multi_label_baselines
from .label_counts import LabelCounts, distinct_label_lists
from .label_issues import flag_lists, in_chunks, list_quality, wrong_labels
from .label_list_scores import LabelListScores
from .label_metrics import multi_label_metrics
from .label_report import interval_lines, multi_label_lines
from .labelled_outcome import LabelledOutcome
from .multi_label_page import page_sections
from .outcome import FITTED_ON
from .texts import Texts
from .thresholds import (
    choose_thresholds,
    default_rule,
    describe_rule,
    held_out_decisions,
    rule_of,
    rule_values,
    sigmoid,
)

if TYPE_CHECKING:
    import torch

    from ..batching.loader import Loader

# Frequent mistakes in JSON, and printed
MAX_PATTERNS, MAX_PRINTED = 1000, 10


class MultiLabel(LabelledOutcome):
    """Labels, predictions, logits and probabilities are (num_rows, num_labels). In training, metrics on dev
    are at the best thresholds there; those of the report are at the thresholds of dev."""

    task = "multi_label"
    right_share = "subset_accuracy"
    problem_type = "multi_label_classification"
    log_metrics = ("loss", "micro_f1", "macro_f1", "subset_accuracy")
    beside_baselines = ("micro_f1", "macro_f1")
    label_column = "labels"
    fitted_file = "thresholds.json"
    fitted_rule = "a threshold for each label is needed"
    fitted_remedy = "restore it, or remove it to use 0.5 for all"
    pipeline_arguments = ', top_k=None, function_to_apply="sigmoid"'

    def __init__(self, label_names: list[str]) -> None:
        super().__init__(label_names)
        self.rule = default_rule(len(label_names))
        self.decides_at_zero = False

    def prepare(self, config, dataset, tokenizer, device) -> None:
        super().prepare(config, dataset, tokenizer, device)
        from .losses import multi_label_loss

        self.rule = default_rule(len(self.label_names))
        labels = dataset.splits["train"].labels
        self.loss = multi_label_loss(config.train, labels, self.label_names, device)
        self.decides_at_zero = self.loss.decides_at_zero

    def head_bias(self) -> np.ndarray:
        from .label_weights import start_bias

        return start_bias(self.config.train, self.dataset.splits["train"].labels, self.label_names)

    def loader(self, split, store, layout) -> Loader:
        from ..batching.loader import Loader

        losses_per_row = len(self.label_names) if self.loss.is_per_label else 1
        return Loader(split, store, layout, losses_per_row=losses_per_row)

    def metrics_in_training(self, split, results: np.ndarray) -> dict:
        """Return the metrics, with the thresholds that are best for the rows."""
        self.choose_thresholds(split.labels, results)
        return super().metrics_in_training(split, results)

    def choose_thresholds(self, labels: np.ndarray, logits: np.ndarray) -> None:
        """Decide by the thresholds that are best for rows of dev, unless the loss says how to decide."""
        if self.decides_at_zero:
            return
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

    def score(
        self, labels: np.ndarray, logits: np.ndarray, predicted: np.ndarray | None = None
    ) -> LabelListScores:
        labels = np.asarray(labels, dtype=bool)
        if predicted is not None:
            return LabelListScores(labels, predicted, logits)
        return LabelListScores(labels, self.decide(logits), logits, self.rule)

    def measure(self, scores: LabelListScores) -> dict:
        return multi_label_metrics(scores, self.label_names)

    def distinct_rows(
        self, labels: np.ndarray, *predicted: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        return distinct_label_lists(labels, *predicted)

    def count(self, labels: np.ndarray, predicted: np.ndarray) -> LabelCounts:
        return LabelCounts.of_label_lists(labels, predicted)

    def baselines(self, train: Texts, dev: Texts | None, report: Texts) -> dict[str, dict]:
        return multi_label_baselines(self, train, dev, report)

    def label_quality(self, scores: LabelListScores, logits: np.ndarray) -> np.ndarray:
        return in_chunks(lambda *rows: list_quality(rows[0], sigmoid(rows[1])), scores.labels, logits)

    def flag_labels(self, scores: LabelListScores, logits: np.ndarray) -> tuple[np.ndarray, dict]:
        """Return the rows with a wrong label, and how often each label is missing or extra."""
        labels = scores.labels
        flagged = flag_lists(labels, sigmoid(logits))
        wrong = wrong_labels(flagged, labels, self.label_names)
        return flagged.any(axis=1), {"wrong_labels": wrong[:MAX_PATTERNS]}

    def pattern_lines(self, patterns: dict) -> list[str]:
        wrong = patterns.get("wrong_labels", ())[:MAX_PRINTED]
        return [f"  {short_label(of['label'])}  {of['kind']}  {of['rows']:,}" for of in wrong]

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

    def scored_label(self, label: int, probability: float, answer: list[str]) -> dict[str, Any]:
        """Return also whether the row has the label, `chosen`."""
        scored = super().scored_label(label, probability, answer)
        return scored | {"chosen": scored["label"] in answer}

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
        lines = multi_label_lines(metrics, describe_rule(self.rule))
        return "\n".join([title, *lines, "", interval_lines(metrics, self.beside_baselines)])

    def patterns_heading(self) -> str:
        return _(
            "Labels that confident learning takes for left out (missing) or put in by mistake (extra), and "
            "in how many rows:"
        )

    def note_on_runs(self) -> str:
        return _(
            "Each run decides by its own thresholds (thresholds.json), which have the best F1 of each label "
            "on its dev rows; without dev rows they are 0.5."
        )

    def card_words(self) -> dict[str, str]:
        return {
            "what": _(
                "A classifier of Chinese {texts} with {labels:,} labels, several of them possible for each"
            ),
            "label": _("label"),
            "labels": _("Labels"),
            "conflicting": _("different lists of labels"),
        }

    def decision_paragraph(self, metrics: dict) -> str:
        return _(
            "**Thresholds.** A text has the labels whose probability reaches the threshold of the label, in "
            "the table below and in `thresholds.json`. `predict.py` uses them; the pipeline above gives "
            "probabilities only."
        )

    def page_titles(self) -> dict[str, str]:
        return {
            "labels": _("Labels"),
            "errors": _("The rows with the most wrong labels"),
            "groups": _("Where all labels of a row are right"),
        }

    def page_sections(self, content: PageContent) -> dict:
        return page_sections(content, self.answer)
