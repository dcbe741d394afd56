"""Comparing an exported model with the model that it was made from, on rows of the user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.rows import Row
from ..evaluation.comparison import compare_rows
from ..evaluation.logits_file import SplitLogits
from ..evaluation.metrics import compute_metrics
from ..evaluation.multi_label.decisions import sigmoid
from ..evaluation.multi_label.intervals import label_set_differences
from ..evaluation.multi_label.metrics import label_set_metrics
from ..prediction.label_sets import LabelSetPredictor
from ..prediction.predictor import Predictor

# Rows that are also computed one by one, and as one batch of mixed lengths
OTHER_BATCHES = 64
FIGURES = {"macro_f1": "macro F1", "micro_f1": "micro F1"}
SEED = 0


@dataclass(frozen=True)
class Scores:
    """How good original and export are on labelled rows: `name` of the figure, one of FIGURES, its value
    `before` and `after`, and the 95 % paired bootstrap interval of its `change`.
    """

    name: str
    before: float
    after: float
    change: tuple[float, float]


@dataclass(frozen=True)
class Proof:
    """How far the exported model is from the original on `rows` rows: the largest difference of a logit, and
    the number of rows whose label, or set of labels, `flipped`; `scores` of labelled rows, else None.
    """

    rows: int
    largest_logit_difference: float
    flipped: int
    scores: Scores | None
    what: str = "labels"

    @property
    def flipped_share(self) -> float:
        return self.flipped / self.rows

    def as_dict(self) -> dict:
        """Return the proof for the record; of rows without labels the figures are None."""
        found = {
            "rows": self.rows,
            "largest_logit_difference": self.largest_logit_difference,
            "flipped": self.flipped,
        }
        name = "micro_f1" if self.what == "label sets" else "macro_f1"
        found |= {f"{name}_{key}": getattr(self.scores, key, None) for key in ("before", "after", "change")}
        return found | {"flipped_share": self.flipped_share}

    def render(self) -> str:
        """Return the proof for people."""
        lines = [
            f"rows compared               {self.rows:,}",
            f"largest logit difference    {self.largest_logit_difference:.3g}",
            f"{self.what} that changed".ljust(28) + f"{self.flipped:,} ({100 * self.flipped_share:.2f} %)",
        ]
        if self.scores is not None:
            name, (low, high) = FIGURES[self.scores.name], self.scores.change
            lines.append(f"{name} before, after      {self.scores.before:.4f}, {self.scores.after:.4f}")
            lines.append(f"its change                  {low:+.4f} to {high:+.4f} (95 % interval, same rows)")
        return "\n".join(lines)


def compare(before: np.ndarray, exported: Predictor, rows: list[Row], labels: np.ndarray | None) -> Proof:
    """Compare a predictor with the logits `before`, (num_rows, num_labels), of the original; `labels`
    (num_rows,) are class ids, for a model of label sets (num_rows, num_labels) 0 and 1; None where they are
    not known.

    All rows are computed in batches of similar length, as files are; some of them also alone and in one batch
    of mixed lengths.
    """
    after = exported.logits(exported.tokenize(rows))
    few = rows[:OTHER_BATCHES]
    alone = np.concatenate([exported.logits(exported.tokenize([row])) for row in few])
    mixed = exported.logits(exported.tokenize(few), sort=False)
    ways = [(before, after), (before[: len(few)], alone), (before[: len(few)], mixed)]
    is_sets = isinstance(exported, LabelSetPredictor)
    scores = None
    if labels is not None:
        scores = (_set_scores if is_sets else _scores)(labels, before, after, exported)
    changed = np.zeros(len(rows), dtype=bool)
    for one, other in ways:
        first, second = (_decided(logits, exported) for logits in (one, other))
        changed[: len(one)] |= (first != second).any(axis=1)
    # Not a number counts as an endless difference.
    largest = max(float(np.nan_to_num(np.abs(one - other), nan=np.inf).max()) for one, other in ways)
    return Proof(len(rows), largest, int(changed.sum()), scores, "label sets" if is_sets else "labels")


def _decided(logits: np.ndarray, predictor: Predictor) -> np.ndarray:
    """Return what logits, (num_rows, num_labels), decide: the label, (num_rows, 1), or which labels,
    (num_rows, num_labels)."""
    if isinstance(predictor, LabelSetPredictor):
        return predictor.rule.decide(sigmoid(logits))
    return logits.argmax(axis=1, keepdims=True)


def _scores(labels: np.ndarray, before: np.ndarray, after: np.ndarray, exported: Predictor) -> Scores:
    names = exported.label_names
    scores = [compute_metrics(labels, logits, names)["macro_f1"] for logits in (before, after)]
    same = np.arange(len(labels)), labels, np.zeros(len(labels), np.uint64)
    pair = [SplitLogits(*same, np.nan_to_num(logits)) for logits in (before, after)]
    return Scores("macro_f1", *scores, compare_rows(*pair, len(names)).differences["macro_f1"][1])


def _set_scores(
    labels: np.ndarray, before: np.ndarray, after: np.ndarray, exported: LabelSetPredictor
) -> Scores:
    names, rule = exported.label_names, exported.rule
    pair = [np.nan_to_num(logits) for logits in (before, after)]
    scores = [label_set_metrics(labels, logits, rule, names)["micro_f1"] for logits in pair]
    decided = (_decided(logits, exported) for logits in pair)
    differences = label_set_differences(labels, *decided, np.random.default_rng(SEED))
    return Scores("micro_f1", *scores, differences["micro_f1"][1])
