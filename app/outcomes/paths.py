"""Labels in a hierarchy: one path a row or several. Every answer is a label, and so a path from the top."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data.label_sets import without_ancestors
from ..errors import InputError
from ..evaluation.page.report_page import PageContent
from ..evaluation.text_table import short_label
from ..words import _
from .hierarchy import Hierarchy, PathCounts
from .label_report import classes_table
from .labelled_outcome import LabelledOutcome
from .metrics import Metric, metrics_of
from .multi_label import MultiLabel
from .path_page import folded
from .resampling import answer_values
from .single_label import SingleLabel

# In config.json and in the fitted file: what is between two levels
HIERARCHY = "label_hierarchy"
# Of the probabilities of a parent
BELOW = "*"


class PathOutcome(LabelledOutcome):
    """What one path a row and several have in common; comes first among the base classes."""

    @cached_property
    def tree(self) -> Hierarchy:
        """The hierarchy of the labels."""
        return Hierarchy(self.label_names, self.separator)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of the task, and of the levels that the hierarchy has above the lowest one."""
        depth = self.tree.depth if self.separator else 1
        of_level = {f"level_{level}_{kind}" for level in range(1, depth) for kind in ("accuracy", "f1")}
        of_task = metrics_of(self.task)
        return [one for one in of_task if one.key in of_level or not one.key.startswith("level_")]

    def prepare(self, config, dataset, tokenizer, device) -> None:
        super().prepare(config, dataset, tokenizer, device)
        self.separator = config.data.label_hierarchy

    def build_model(self, stores):
        """Return the model; its configuration has what is between two levels."""
        model = super().build_model(stores)
        model.model.config.update({HIERARCHY: self.separator})
        return model

    def without_fit(self) -> PathOutcome:
        outcome = super().without_fit()
        outcome.separator = self.separator
        return outcome

    def fitted_values(self) -> dict:
        return super().fitted_values() | {HIERARCHY: self.separator}

    def read_fitted(self, folder: Path, calibrate: bool = True) -> None:
        """Read also what is between two levels: from the configuration of the model, or `fitted_file`."""
        super().read_fitted(folder, calibrate)
        for name in ("config.json", self.fitted_file):
            path = folder / name
            if self.separator is None and path.exists():
                self.separator = json.loads(path.read_text(encoding="utf-8")).get(HIERARCHY)
        if not (isinstance(self.separator, str) and self.separator):
            raise InputError(
                f"{folder}: {HIERARCHY} in config.json must be what is between two levels of a label, found "
                f"{self.separator!r}; restore it"
            )

    def measure(self, scores: Any) -> dict:
        """Return also `parents`, the metrics of what is above the labels."""
        of_answers = answer_values(self, scores.labels, scores.predicted)
        parents = self.tree.scores(scores.labels, scores.predicted)
        return of_answers | super().measure(scores) | {"parents": parents}

    def count(self, labels: np.ndarray, predicted: np.ndarray) -> PathCounts:
        return PathCounts(super().count(labels, predicted), self.tree, labels, predicted)

    def node_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the probability of each node, (num_rows, num_nodes), of those of the labels."""
        raise NotImplementedError

    def probability_columns(self, probabilities: np.ndarray) -> dict[str, Any]:
        """Return also the probability of each parent, that of all below it: p_PARENT-*."""
        columns = super().probability_columns(probabilities)
        if len(columns) < len(self.label_names):
            return columns
        of_nodes = self.node_probabilities(probabilities[None])[0]
        names = {node: f"p_{self.tree.name(node)}{self.separator}{BELOW}" for node in self.tree.parents}
        parents = {name: round(float(of_nodes[node]), 6) for node, name in names.items()}
        return columns | parents

    def report_text(self, metrics: dict, start: dict, title: str) -> str:
        lines = classes_table({"classes": metrics["parents"]}, (), metrics["rows"])
        return "\n".join([super().report_text(metrics, start, title), "", *lines])

    def about_paths(self) -> str:
        """Return what the model card says of the hierarchy, with a field `separator`."""
        raise NotImplementedError

    def decision_paragraph(self, metrics: dict) -> str:
        about = self.about_paths().format(separator=self.separator)
        return f"{about}\n\n{super().decision_paragraph(metrics)}"

    def page_sections(self, content: PageContent) -> dict:
        metrics = content.metrics
        tree = folded(self.tree, metrics["classes"], metrics["parents"])
        return super().page_sections(content) | {"tree": tree}


class SinglePath(PathOutcome, SingleLabel):
    """One path a row: class ids. The probability of a parent is the sum of those of the labels below it."""

    task = "single_path"
    problem_type = "single_path_classification"
    log_metrics = ("loss", "accuracy", "hierarchical_f1", "macro_f1")
    beside_baselines = ("accuracy", "hierarchical_f1")
    fitted_rule = "label_hierarchy is needed, and a temperature above 0 where it has one"

    def use_fitted(self, values: dict) -> None:
        self.separator = values.get(HIERARCHY, self.separator)
        if "temperature" in values:
            super().use_fitted(values)

    def node_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        return self.tree.sums(probabilities)

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return also, with a threshold, how far the path is sure enough: `sure_label`, the deepest node with
        a probability from the threshold on, empty for none, and `sure_probability`. `decision` is partial
        where that is not a whole path."""
        record = super().columns(probabilities, threshold)
        if threshold is None:
            return record
        name, probability = self.label_names[int(probabilities.argmax())], record["probability"]
        if record["decision"] == "abstain":
            of_nodes = self.node_probabilities(probabilities[None])[0]
            sure = self.tree.parents[of_nodes[self.tree.parents] >= threshold]
            order = np.lexsort((of_nodes[sure], self.tree.levels[sure]))
            name, probability = "", 0.0
            if len(sure):
                deepest = int(sure[order[-1]])
                record["decision"] = "partial"
                name, probability = self.tree.name(deepest), round(float(of_nodes[deepest]), 6)
        first = {key: record[key] for key in ("probability", "decision")}
        return first | {"sure_label": name, "sure_probability": probability} | record

    def line(self, answer: str, probabilities: np.ndarray) -> str:
        of_nodes = self.node_probabilities(probabilities[None])[0]
        above = self.tree.above(int(probabilities.argmax()))
        parents = ", ".join(f"{short_label(self.tree.name(node))} {of_nodes[node]:.4f}" for node in above)
        return super().line(answer, probabilities) + (f" ({parents})" if parents else "")

    def card_words(self) -> dict[str, str]:
        what = _("A classifier of Chinese {texts} with {labels:,} labels in a hierarchy")
        return super().card_words() | {"what": what}

    def about_paths(self) -> str:
        return _(
            "**Hierarchy.** A label is a path of levels with `{separator}` between them. The probability of "
            "a parent is the sum of those of the labels below it. `predict.py --abstain` stops at the "
            "deepest level that is sure enough."
        )


class MultiPath(PathOutcome, MultiLabel):
    """Several paths a row, or none: 0 and 1, (num_rows, num_labels); of a predicted path and one that ends
    above it, the longer one stays."""

    task = "multi_path"
    problem_type = "multi_path_classification"
    log_metrics = ("loss", "micro_f1", "hierarchical_f1", "macro_f1")
    beside_baselines = ("micro_f1", "hierarchical_f1")
    fitted_rule = "label_hierarchy and a threshold for each label are needed"

    @cached_property
    def above(self) -> Any:
        """Which labels are above which other ones, sparse (num_labels, num_labels)."""
        return self.tree.labels_above()

    def decide(self, logits: np.ndarray) -> np.ndarray:
        decided = super().decide(logits)
        return decided & (decided.astype(np.float64) @ self.above == 0)

    def use_fitted(self, values: dict) -> None:
        self.separator = values.get(HIERARCHY, self.separator)
        super().use_fitted(values)

    def node_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        return self.tree.any_of(probabilities)

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return also, with a threshold, `sure_labels`: of each predicted path, the deepest part that is sure
        enough. `decision` is partial where these are not the whole paths."""
        record = super().columns(probabilities, threshold)
        if threshold is None:
            return record
        sure = self.sure_labels(probabilities, threshold)
        if record["decision"] == "abstain" and sure:
            record["decision"] = "partial"
        first = {key: record[key] for key in ("decision", "confidence")}
        return first | {"sure_labels": sure} | record

    def sure_labels(self, probabilities: np.ndarray, threshold: float) -> list[str]:
        """Return the deepest part of each predicted path that is sure; `probabilities` (num_labels,)."""
        moved = self.rule.moved(probabilities[None])
        of_nodes, tree, sure = self.node_probabilities(moved)[0], self.tree, []
        for label in np.flatnonzero(self.rule.decide(probabilities[None])[0]):
            certain = [(tree.name(node), of_nodes[node]) for node in tree.above(label)]
            certain.append((self.label_names[label], moved[0, label]))
            sure += [name for name, probability in certain if probability >= threshold][-1:]
        return without_ancestors(dict.fromkeys(sure), self.separator)

    def card_words(self) -> dict[str, str]:
        what = _(
            "A classifier of Chinese {texts} with {labels:,} labels in a hierarchy, several of them possible "
            "for each"
        )
        return super().card_words() | {"what": what}

    def about_paths(self) -> str:
        return _(
            "**Hierarchy.** A label is a path of levels with `{separator}` between them. A text that has a "
            "label has all that is above it."
        )
