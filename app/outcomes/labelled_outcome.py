"""The contract of outcomes whose rows have labels: decision, metrics, label issues, files and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.label_sets import label_form
from ..errors import InputError
from ..words import _
from .fitted_outcome import FittedOutcome

if TYPE_CHECKING:
    import torch

    from ..batching.loader import Batch
    from ..data.dataset import Split
    from ..data.labels import LabelForm
    from ..data.tokens import TokenStore
    from ..evaluation.logits_file import SplitLogits
    from ..evaluation.measures.selective import RowDecisions
    from ..evaluation.page.report_page import PageContent
    from ..model.packed_model import PackedModel
    from .label_counts import LabelCounts
    from .texts import Texts

MAX_COLUMNS = 50  # labels that have a column each in files
MOST_PROBABLE = 10  # labels that files have of more


class LabelledOutcome(FittedOutcome):
    """An answer for each row, learned from labels with the names `label_names`.

    `labels` are the true answers of rows and `predicted` those of a model, as arrays of the same shape and
    meaning, (num_rows, ...); `logits` are what the model gives, (num_rows, any) float32; `probabilities`
    (num_rows, num_labels) float64 are what people see of them. *Scores* are an object with arrays of one
    number a row: at least `labels`, `predicted`, `correct` (bool) and `loss`, and what a right row
    is, `right_rows`.

    `label_column` is the column of answers in files, `right_share` the metric of `correct` rows,
    `pipeline_arguments` what transformers' pipeline needs on the card, `separator` what is between levels.
    """

    has_labels = True
    label_column = "label"
    right_share = "accuracy"
    pipeline_arguments = ""
    separator: str | None = None
    # A decision is more or less sure, and one that is not sure enough may be left out
    has_confidence = True

    @property
    def form(self) -> LabelForm:
        """How files and datasets have the labels."""
        return label_form(self.task)

    def build_model(self, stores: dict[str, TokenStore]) -> PackedModel:
        """Return the model with the head of the outcome, on the CPU in fp32."""
        from ..model.linear_start import start_linear
        from ..model.pretrained import build_model

        settings, max_length = self.config.model, self.config.data.max_length
        names, head_bias = self.label_names, self.head_bias()
        model = build_model(settings, self.tokenizer, names, max_length, self.problem_type, head_bias)
        if settings.head == "linear":
            loader = self.loader(self.dataset.splits["train"], stores["train"], model.layout(model.can_pack))
            start_linear(model, loader, self.form.has_several)
        return model

    def check_model(self, num_labels: int) -> None:
        """Raise InputError for a model that has not as many outputs as the outcome needs."""
        if num_labels < 2:
            raise InputError(
                f"the model must choose from two or more labels, found {num_labels} label(s) and "
                f"problem_type {self.problem_type}"
            )

    def head_bias(self) -> np.ndarray | None:
        """Return the bias with which a new head starts, (num_labels,) float32; None for the usual one."""
        return None

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the logits of the rows."""
        return outputs

    def metrics_in_training(self, split: Split, results: np.ndarray) -> dict:
        return self.measure(self.score(split.labels, results))

    # The decision

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        """Return probabilities, (num_rows, num_labels) float64, fitted or as the model gives them."""
        raise NotImplementedError

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Return what the model predicts, `predicted` (num_rows, ...)."""
        raise NotImplementedError

    def differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return where two models, with these logits of the same rows, differ in answer, (num_rows,) bool."""
        first, second = (self.decide(logits).reshape(len(logits), -1) for logits in (one, other))
        return (first != second).any(axis=1)

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure a decision is, (num_rows,) from 0 to 1, to abstain below a threshold."""
        raise NotImplementedError

    def check_threshold(self, *wanted: float | None) -> None:
        """Raise InputError where a threshold of confidence, or a precision, is wanted and there is none."""
        if not self.has_confidence and any(value is not None for value in wanted):
            raise InputError("this model gives no probability; leave out --threshold and --abstain")

    def held_out_decisions(self, dev: SplitLogits) -> RowDecisions:
        """Return `confidence` and `correct` of dev rows, each decided without having been fitted on."""
        raise NotImplementedError

    def label_rule(self) -> dict | None:
        """Return the thresholds and limits by which labels are chosen, for JSON; None for other decisions."""
        return None

    # Metrics

    def score(self, labels: np.ndarray, logits: np.ndarray, predicted: np.ndarray | None = None) -> Any:
        """Return the scores of rows; `predicted` where other models decided than this one."""
        raise NotImplementedError

    def calibrated(self, labels: np.ndarray, logits: np.ndarray) -> Any | None:
        """Return the scores of rows with fitted probabilities; None where they are those of `score`."""
        return None

    def measure(self, scores: Any) -> dict:
        """Return the metrics of rows, as report.json has them, without those that only the table has."""
        raise NotImplementedError

    def distinct_rows(
        self, labels: np.ndarray, *predicted: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the rows of all arrays that differ, and how often each of them is there, (num_distinct,)."""
        raise NotImplementedError

    def count(self, labels: np.ndarray, predicted: np.ndarray) -> LabelCounts:
        """Return distinct rows as `Metric.of_counts` takes them."""
        raise NotImplementedError

    def baselines(self, train: Texts, dev: Texts | None, report: Texts) -> dict[str, dict]:
        """Return metrics, `intervals` and `rows` of simple models on the rows of the report, by name."""
        raise NotImplementedError

    # Label issues

    def constant_answer(self, scores: Any) -> np.ndarray:
        """Return which rows the one answer that is right most often has right, (num_rows,) bool."""
        (answers,), counts = self.distinct_rows(scores.labels)
        return (scores.labels == answers[counts.argmax()]).reshape(len(scores), -1).all(axis=1)

    def label_quality(self, scores: Any, logits: np.ndarray) -> np.ndarray:
        """Return how plausible labels are, (num_rows,) float64, by models that did not see the row."""
        raise NotImplementedError

    def flag_labels(self, scores: Any, logits: np.ndarray) -> tuple[np.ndarray, dict]:
        """Return which labels are taken for wrong, (num_rows,) bool, and frequent mistakes for JSON."""
        raise NotImplementedError

    def pattern_lines(self, patterns: dict) -> list[str]:
        """Return the most frequent mistakes of `flag_labels`, a line each."""
        return []

    # Files

    def answer(self, label: np.ndarray) -> str | list[str]:
        """Return one element of `labels` or `predicted` as people see it."""
        raise NotImplementedError

    def cell(self, label: np.ndarray) -> str:
        """Return one element of `labels` or `predicted` as a cell of a CSV file."""
        return str(self.answer(label))

    def probability_columns(self, probabilities: np.ndarray) -> dict[str, Any]:
        """Return the probability of each label of one row, (num_labels,), by the name of its column; of many
        labels, the most probable ones in one column."""
        if len(self.label_names) > MAX_COLUMNS:
            first = self.ranked_labels(probabilities)[:MOST_PROBABLE].tolist()
            pairs = [(self.label_names[label], round(float(probabilities[label]), 6)) for label in first]
            return {"most_probable": [{"label": name, "probability": share} for name, share in pairs]}
        by_label = zip(self.label_names, probabilities, strict=True)
        return {f"p_{name}": round(float(probability), 6) for name, probability in by_label}

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return what a file of predictions has of one row beside its answer, by column; `probabilities`
        (num_labels,). With a threshold of confidence there is `decision`, accept or abstain."""
        return self.probability_columns(probabilities)

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        """Return predictions as people see them, (num_rows,): strings, or lists of strings."""
        answers = np.empty(len(predicted), dtype=object)
        for row, label in enumerate(predicted):
            answers[row] = self.answer(label)
        return answers

    def ranked_labels(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the ids of all labels, the most probable first; `probabilities` (num_labels,)."""
        return np.argsort(-probabilities, kind="stable")

    def scored_label(self, label: int, probability: float, answer: str | list[str]) -> dict[str, Any]:
        """Return what a server says of one label of a row whose answer is `answer`."""
        return {"score": round(float(probability), 6), "label": self.label_names[label]}

    def arrow_type(self) -> Any:
        """Return the type of labels and predictions in a Parquet file."""
        return self.arrow_array(self.decide(np.zeros((0, len(self.label_names))))).type

    def arrow_array(self, labels: np.ndarray) -> Any:
        """Return labels or predictions as a column of a Parquet file."""
        raise NotImplementedError

    # Explanations, by torch

    def explained_labels(self, probabilities: np.ndarray) -> list[int]:
        """Return the ids of the labels to explain, the most probable first; `probabilities` (num_labels,)."""
        raise NotImplementedError

    def log_odds(self, logits: torch.Tensor, label: int) -> torch.Tensor:
        """Return log(p / (1 - p)) of a label, or a number's value, (num_rows,), of `scale_logits`."""
        raise NotImplementedError

    def scale_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits whose probabilities are those of the fitted decision."""
        return logits

    # Words

    def line(self, answer: str | list[str], probabilities: np.ndarray) -> str:
        """Return the answer on one row for a terminal, with its probability where it has one."""
        raise NotImplementedError

    def listed_labels(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the ids of the labels that follow `line` on a terminal, the most probable first."""
        return self.ranked_labels(probabilities)

    def issues_found(self) -> str:
        """Return what a cross-validation says of labels, with fields `ranked` and `flagged`."""
        return _(
            "{ranked:,} rows are predicted with other labels than they have, {flagged:,} of them are flagged "
            "by confident learning: label_issues.csv"
        )

    def cannot_judge(self) -> str:
        """Return why no label is judged, with fields `accuracy` and `majority`."""
        return _(
            "The models are right in {accuracy:.1%} of the rows, and so is the most frequent answer in "
            "{majority:.1%}."
        )

    def patterns_heading(self) -> str:
        """Return what stands above `pattern_lines`."""
        return _("Classes that overlap, and in about how many rows:")

    def note_on_runs(self) -> str:
        """Return how rows of several runs were decided, where that must be said."""
        return ""

    def card_words(self) -> dict[str, str]:
        """Return words of the model card: `what` it is of, with fields `texts` and `labels`, what a `label`
        and its `labels` are called, and `conflicting` ones of one text."""
        raise NotImplementedError

    def decision_paragraph(self, metrics: dict) -> str:
        """Return a paragraph of the model card, in Markdown: how a prediction follows from logits."""
        raise NotImplementedError

    def card_limits(self) -> list[str]:
        """Return what the model card says against the answers of every model."""
        return []

    def page_titles(self) -> dict[str, str]:
        """Return the titles of the outcome's own sections of the page by their ids, and that of `groups`
        where it has another one."""
        raise NotImplementedError

    def page_summary(self) -> str:
        """Return the first sentence of the page, with fields `rows`, `right`, `metric`, `value`, `low` and
        `high`."""
        return _(
            "The model is right about {right:,} of the {rows:,} texts of this report; {metric} is "
            "{value:.3f}, with other texts likely between {low:.3f} and {high:.3f}."
        )

    def page_sections(self, content: PageContent) -> dict:
        """Return what the outcome's template, templates/<task>.html.jinja, shows of evaluated rows."""
        raise NotImplementedError
