"""A hierarchy of labels: what is above which label, and how probable it is."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

HIERARCHY = "label_hierarchy"  # in config.json and in the file of the decision: what is between two levels


def beginnings(path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return a path and all above it, the highest level first."""
    return [path[:end] for end in range(1, len(path) + 1)]


class Tree:
    """The nodes of labels that are paths: each label, and all above it.

    `paths` are the levels of each label, `label_nodes` (num_labels,) its node. `nodes` are the levels of each
    node, parents before their children, and `levels` (num_nodes,) the level of each, 0 the highest. A label
    that has others below it is a node and, where a path ends there, also an answer.
    """

    def __init__(self, label_names: list[str], separator: str) -> None:
        self.separator = separator
        self.paths = [tuple(name.split(separator)) for name in label_names]
        nodes = set()
        for path in self.paths:
            nodes.update(beginnings(path))
        self.nodes = sorted(nodes)
        self.ids = {node: node_id for node_id, node in enumerate(self.nodes)}
        self.label_nodes = [self.ids[path] for path in self.paths]
        self.levels = np.array([len(node) - 1 for node in self.nodes])
        self.depth = int(self.levels.max()) + 1
        parents = {node[:-1] for node in self.nodes if len(node) > 1}
        self.parents = sorted(self.ids[parent] for parent in parents)

    def name(self, node: int) -> str:
        """Return the name of a node, written as labels are."""
        return self.separator.join(self.nodes[node])

    @cached_property
    def members(self) -> Any:
        """Which labels are a node or below it, sparse (num_labels, num_nodes) of 0 and 1."""
        from scipy.sparse import csr_array

        node_ids: list[int] = []
        row_ends = [0]
        for path in self.paths:
            node_ids += [self.ids[node] for node in beginnings(path)]
            row_ends.append(len(node_ids))
        shape = (len(self.paths), len(self.nodes))
        return csr_array((np.ones(len(node_ids)), np.array(node_ids), np.array(row_ends)), shape)

    def deepest(self, probabilities: np.ndarray, threshold: float) -> tuple[str, float]:
        """Return name and probability of the deepest parent that is as probable as the threshold, of several
        the most probable; an empty name for none. `probabilities` (num_labels,) of the labels."""
        node_probabilities = probabilities @ self.members
        sure_parents = [node for node in self.parents if node_probabilities[node] >= threshold]
        if not sure_parents:
            return "", 0.0
        deepest = max(sure_parents, key=lambda node: (self.levels[node], node_probabilities[node], node))
        return self.name(deepest), float(node_probabilities[deepest])

    def nodes_of(self, labels: np.ndarray) -> Any:
        """Return the nodes of the labels of rows, sparse (num_rows, num_nodes) of 0 and 1. `labels` are class
        ids (num_rows,), or 0 and 1, (num_rows, num_labels)."""
        from scipy.sparse import csr_array

        if labels.ndim == 1:
            return self.members[labels]
        nodes = csr_array(labels.astype(np.float64)) @ self.members
        nodes.data[:] = 1
        return nodes
