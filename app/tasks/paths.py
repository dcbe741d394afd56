"""Labels in a hierarchy: a label is a path of levels, of which a row has one or several."""

import numpy as np

from .multi_label import MultiLabel
from .single_label import SingleLabel
from .tree import HIERARCHY


class SinglePath(SingleLabel):
    """One path a row, as class ids. A parent has the sum of the probabilities below it."""

    name = "single_path"
    problem_type = "single_path_classification"
    log_metrics = ("loss", "accuracy", "hierarchical_f1", "macro_f1")
    baseline_metrics = ("accuracy", "hierarchical_f1")
    config_keys = (HIERARCHY,)


class MultiPath(MultiLabel):
    """Several paths a row, or none; of a predicted path and one that ends above it, the longer one stays."""

    name = "multi_path"
    problem_type = "multi_path_classification"
    log_metrics = ("loss", "micro_f1", "hierarchical_f1", "macro_f1")
    baseline_metrics = ("micro_f1", "hierarchical_f1")
    config_keys = (HIERARCHY,)

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        is_reached = super().decide_by_probabilities(probabilities)
        num_at_or_below = is_reached.astype(np.float64) @ self.tree.members
        return is_reached & (num_at_or_below[:, self.tree.label_nodes] == 1)
