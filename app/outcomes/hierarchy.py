"""A hierarchy of labels, and how often true and predicted paths agree in it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from .label_counts import LabelCounts


class Hierarchy:
    """The nodes of labels that are paths: each label, and what is above it.

    `paths` are the levels of each label, `nodes` those of each node, parents before their children; `levels`
    (num_nodes,) is the level of each, 0 the highest. A label that has others below it is a node and, where a
    path ends there, also an answer.
    """

    def __init__(self, label_names: list[str], separator: str) -> None:
        self.separator = separator
        self.paths = [tuple(name.split(separator)) for name in label_names]
        self.nodes = sorted({path[:end] for path in self.paths for end in range(1, len(path) + 1)})
        self.ids = {node: number for number, node in enumerate(self.nodes)}
        self.levels = np.array([len(node) - 1 for node in self.nodes])
        self.depth = int(self.levels.max()) + 1
        is_parent = np.zeros(len(self.nodes), bool)
        is_parent[[self.ids[node[:-1]] for node in self.nodes if len(node) > 1]] = True
        self.parents = np.flatnonzero(is_parent)

    def name(self, node: int) -> str:
        """Return the name of a node, written as labels are."""
        return self.separator.join(self.nodes[node])

    @cached_property
    def members(self) -> Any:
        """Which labels are a node or below it, sparse (num_labels, num_nodes) of 0 and 1."""
        from scipy.sparse import csr_array

        places = [[self.ids[path[:end]] for end in range(1, len(path) + 1)] for path in self.paths]
        ends = np.cumsum([0, *map(len, places)])
        columns = np.concatenate(places)
        return csr_array((np.ones(len(columns)), columns, ends), (len(self.paths), len(self.nodes)))

    def above(self, label: int) -> list[int]:
        """Return the nodes above a label, the highest first."""
        path = self.paths[label]
        return [self.ids[path[:end]] for end in range(1, len(path))]

    def sums(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the sums of the labels' probabilities by node, (num_rows, num_nodes)."""
        return np.asarray(probabilities @ self.members)

    def any_of(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the probability that a node holds, (num_rows, num_nodes), were labels independent."""
        with np.errstate(divide="ignore"):
            none = np.log1p(-np.asarray(probabilities, np.float64))
        # A label that is certain makes its nodes certain
        return -np.expm1(np.maximum(none, -1e3) @ self.members)

    def nodes_of(self, labels: np.ndarray) -> Any:
        """Return the nodes of the labels of rows, sparse (num_rows, num_nodes) of 0 and 1; `labels` are class
        ids (num_rows,), or 0 and 1, (num_rows, num_labels)."""
        from scipy.sparse import csr_array

        if labels.ndim == 1:
            return self.members[labels]
        nodes = csr_array(labels.astype(np.float64)) @ self.members
        nodes.data[:] = 1
        return nodes

    def labels_above(self) -> Any:
        """Return which labels (columns) are above which (rows), sparse (num_labels, num_labels)."""
        from scipy.sparse import csr_array

        at = {path: label for label, path in enumerate(self.paths)}
        pairs = [
            (label, at[path[:end]])
            for label, path in enumerate(self.paths)
            for end in range(1, len(path))
            if path[:end] in at
        ]
        rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
        return csr_array((np.ones(len(pairs)), (rows, columns)), (len(self.paths),) * 2)

    def scores(self, labels: np.ndarray, predicted: np.ndarray) -> dict[str, dict]:
        """Return precision, recall, F1 and support of the nodes that have others below them, by name."""
        truth, answers = self.nodes_of(np.asarray(labels)), self.nodes_of(np.asarray(predicted))
        counts = [np.asarray(nodes.sum(axis=0)) for nodes in (truth.multiply(answers), truth, answers)]
        return {self.name(node): _scores(*(count[node] for count in counts)) for node in self.parents}


def _scores(right: float, true: float, predicted: float) -> dict:
    f1 = 2 * right / (true + predicted) if true + predicted else 0.0
    return {
        "precision": float(right / predicted) if predicted else 0.0,
        "recall": float(right / true) if true else 0.0,
        "f1": float(f1),
        "support": int(true),
    }


class PathCounts(LabelCounts):
    """Rows whose labels are paths. `rows_nodes` are those of a row at each level that are right, true and
    predicted, each (num_distinct, depth)."""

    def __init__(
        self, counts: LabelCounts, tree: Hierarchy, labels: np.ndarray, predicted: np.ndarray
    ) -> None:
        super().__init__(counts.rows_right, counts.rows_both, counts.is_right)
        truth, answers = tree.nodes_of(labels), tree.nodes_of(predicted)
        of_level = np.eye(tree.depth)[tree.levels]
        nodes = (truth.multiply(answers).tocsr(), truth, answers)
        self.rows_nodes = [np.asarray(of @ of_level) for of in nodes]
        common, true, answered = (np.cumsum(of, 1) for of in self.rows_nodes)
        # Down to each level, below which paths are cut, (num_distinct, depth)
        self.right_down_to = ((common == true) & (common == answered)).astype(np.float64)

    def level_accuracy(self, level: int) -> np.ndarray:
        """The share of rows that are right down to a level, from 1."""
        return self.counts @ self.right_down_to[:, level - 1] / self.num_rows

    def level_f1(self, level: int) -> np.ndarray:
        """The F1 over all nodes of a level, from 1."""
        return _f1(*(self.counts @ of[:, level - 1] for of in self.rows_nodes))

    @cached_property
    def nodes(self) -> list[np.ndarray]:
        """How many nodes are right, true and predicted, each (num_resamples,)."""
        return [self.counts @ of.sum(axis=1) for of in self.rows_nodes]

    @property
    def hierarchical_precision(self) -> np.ndarray:
        """The share of the nodes on predicted paths that are on true ones."""
        return self.nodes[0] / np.maximum(self.nodes[2], 1)

    @property
    def hierarchical_recall(self) -> np.ndarray:
        """The share of the nodes on true paths that are on predicted ones."""
        return self.nodes[0] / np.maximum(self.nodes[1], 1)

    @property
    def hierarchical_f1(self) -> np.ndarray:
        """The F1 over the nodes of all paths: Kiritchenko et al. 2006, https://doi.org/10.1007/11766247_34"""
        return _f1(*self.nodes)


def _f1(common: np.ndarray, true: np.ndarray, answered: np.ndarray) -> np.ndarray:
    return 2 * common / np.maximum(true + answered, 1)
