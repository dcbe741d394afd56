"""Labels in a hierarchy: one path a row or several. Every answer is a label, and so a path from the top."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.label_sets import without_ancestors
from ..text_table import short_label
from ..words import N_
from .multi_label import MultiLabel
from .task import Task
from .tree import HIERARCHY


class SinglePath(Task):
    """One path a row: class ids. The probability of a parent is the sum of those of the labels below it."""

    name = "single_path"
    problem_type = "single_path_classification"
    log_metrics = ("loss", "accuracy", "hierarchical_f1", "macro_f1")
    beside_baselines = ("accuracy", "hierarchical_f1")
    in_config = (HIERARCHY,)
    words = Task.words | {
        "what": N_("A classifier of Chinese {texts} with {labels:,} labels in a hierarchy"),
        "decision": N_(
            "**Hierarchy.** A label is a path of levels with `{label_hierarchy}` between them. The "
            "probability of a parent is the sum of those of the labels below it. `predict.py --threshold` "
            "stops at the deepest level that is sure enough."
        ),
    }

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return also, with a threshold, how far the path is sure enough: `sure_label`, the deepest node with
        a probability from the threshold on, empty for none, and `sure_probability`. `decision` is partial
        where that is not a whole path."""
        record = super().columns(probabilities, threshold)
        if threshold is None:
            return record
        name, probability = self.label_names[int(probabilities.argmax())], record["probability"]
        if record["decision"] == "abstain":
            of_nodes, name, probability = self.node_probabilities(probabilities[None])[0], "", 0.0
            sure = [node for node in self.tree.parents if of_nodes[node] >= threshold]
            if sure:
                deepest = max(sure, key=lambda node: (self.tree.levels[node], of_nodes[node]))
                record["decision"] = "partial"
                name, probability = self.tree.name(deepest), round(float(of_nodes[deepest]), 6)
        first = {key: record[key] for key in ("probability", "decision")}
        return first | {"sure_label": name, "sure_probability": probability} | record

    def line(self, answer: str, probabilities: np.ndarray) -> str:
        of_nodes = self.node_probabilities(probabilities[None])[0]
        above = self.tree.above(int(probabilities.argmax()))
        parents = ", ".join(f"{short_label(self.tree.name(node))} {of_nodes[node]:.4f}" for node in above)
        return super().line(answer, probabilities) + (f" ({parents})" if parents else "")


class MultiPath(MultiLabel):
    """Several paths a row, or none: 0 and 1, (num_rows, num_labels); of a predicted path and one that ends
    above it, the longer one stays."""

    name = "multi_path"
    problem_type = "multi_path_classification"
    log_metrics = ("loss", "micro_f1", "hierarchical_f1", "macro_f1")
    beside_baselines = ("micro_f1", "hierarchical_f1")
    in_config = (HIERARCHY,)
    words = MultiLabel.words | {
        "what": N_(
            "A classifier of Chinese {texts} with {labels:,} labels in a hierarchy, several of them possible "
            "for each"
        ),
        "hierarchy": N_(
            "**Hierarchy.** A label is a path of levels with `{label_hierarchy}` between them. A text that "
            "has a label has all that is above it."
        ),
    }

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        reached = super().chosen(probabilities)
        return reached & (reached.astype(np.float64) @ self.tree.labels_above == 0)

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
        moved = self.moved(probabilities[None])
        of_nodes, tree, sure = self.node_probabilities(moved)[0], self.tree, []
        for label in np.flatnonzero(self.reached(probabilities[None])[0]):
            certain = [(tree.name(node), of_nodes[node]) for node in tree.above(label)]
            certain.append((self.label_names[label], moved[0, label]))
            sure += [name for name, probability in certain if probability >= threshold][-1:]
        return without_ancestors(dict.fromkeys(sure), self.separator)
