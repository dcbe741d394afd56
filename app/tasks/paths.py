"""Labels in a hierarchy: one path a row or several. Every answer is a label, and so a path from the top."""

from __future__ import annotations

import numpy as np

from ..data.labels import without_ancestors
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


class MultiPath(MultiLabel):
    """Several paths a row, or none: 0 and 1, (num_rows, num_labels); of a predicted path and one that ends
    above it, the longer one stays."""

    name = "multi_path"
    problem_type = "multi_path_classification"
    log_metrics = ("loss", "micro_f1", "hierarchical_f1", "macro_f1")
    beside_baselines = ("micro_f1", "hierarchical_f1")
    in_config = (HIERARCHY,)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        reached = super().chosen(probabilities)
        return reached & (reached.astype(np.float64) @ self.tree.labels_above == 0)

    def node_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        return self.tree.any_of(probabilities)

    def sure_labels(self, probabilities: np.ndarray, threshold: float) -> list[str]:
        """Return the deepest part of each predicted path that is sure; `probabilities` (num_labels,)."""
        moved = self.moved(probabilities[None])
        of_nodes, tree, sure = self.node_probabilities(moved)[0], self.tree, []
        for label in np.flatnonzero(self.reached(probabilities[None])[0]):
            certain = [(tree.name(node), of_nodes[node]) for node in tree.above(label)]
            certain.append((self.label_names[label], moved[0, label]))
            sure += [name for name, probability in certain if probability >= threshold][-1:]
        return without_ancestors(dict.fromkeys(sure), self.separator)
