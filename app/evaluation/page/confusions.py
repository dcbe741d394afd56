"""Which class is taken for which, and the errors that the classifier is surest of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..measures.row_scores import RowScores
from .rows import EvaluatedRows

# With examples
MAX_PAIRS = 20
# Without
MAX_LISTED = 50
EXAMPLES = 3


@dataclass(frozen=True)
class Pair:
    """Rows of class `label` that were predicted as `predicted`, both class ids; `rows` of them."""

    label: int
    predicted: int
    rows: int


def confused_pairs(scores: RowScores, num_labels: int, most: int = MAX_LISTED) -> list[Pair]:
    """Return the most frequent pairs of true and predicted class, the most frequent first."""
    wrong = ~scores.correct
    cells, counts = np.unique(scores.labels[wrong] * num_labels + scores.predicted[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return [Pair(int(cells[i]) // num_labels, int(cells[i]) % num_labels, int(counts[i])) for i in order]


def confusion_matrix(scores: RowScores, num_labels: int) -> np.ndarray:
    """Return how many rows of each class (rows) were predicted as each class (columns), (num_labels,
    num_labels)."""
    cells = np.bincount(scores.labels * num_labels + scores.predicted, minlength=num_labels**2)
    return cells.reshape(num_labels, num_labels)


def surest_errors(scores: RowScores, pair: Pair, count: int = EXAMPLES) -> list[int]:
    """Return the positions of the errors of a pair with the largest confidence, the largest first."""
    positions = np.flatnonzero((scores.labels == pair.label) & (scores.predicted == pair.predicted))
    return positions[np.argsort(-scores.confidence[positions], kind="stable")[:count]].tolist()


def errors_of_pairs(rows: EvaluatedRows) -> list[dict]:
    """Return, for each of the most confused pairs, both names, the number of rows, and examples: text, place,
    confidence."""
    names, scores = rows.label_names, rows.scores
    return [
        {
            "label": names[pair.label],
            "predicted": names[pair.predicted],
            "rows": pair.rows,
            "examples": [
                {"text": rows.text(at), "where": rows.where(at), "confidence": float(scores.confidence[at])}
                for at in surest_errors(scores, pair)
            ],
        }
        for pair in confused_pairs(scores, len(names), MAX_PAIRS)
    ]
