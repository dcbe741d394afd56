"""Comparing an exported model with the model that it was made from, on rows of the user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.rows import Row
from ..evaluation.measures.intervals import Interval
from ..outcomes.labelled_outcome import LabelledOutcome
from ..outcomes.metrics import BY_KEY
from ..outcomes.resampling import compare
from ..prediction.predictor import Predictor

# Rows that are also computed one by one, and as one batch of mixed lengths
OTHER_BATCHES = 64


@dataclass(frozen=True)
class MetricChange:
    """The main metric of original and export on labelled rows, `before` and `after`, and the 95 % paired
    bootstrap interval of its `change`."""

    before: float
    after: float
    change: Interval


@dataclass(frozen=True)
class Proof:
    """How far the exported model is from the original on `rows` rows: the largest difference of a logit, and
    the number of rows whose prediction changed, `flipped`. `metric` is the main metric of the model, and
    `change` that of labelled rows, else None.
    """

    rows: int
    largest_logit_difference: float
    flipped: int
    metric: str
    change: MetricChange | None

    @property
    def flipped_share(self) -> float:
        return self.flipped / self.rows

    def as_dict(self) -> dict:
        """Return the proof for the record; of rows without labels the metric is None."""
        values = {
            "rows": self.rows,
            "largest_logit_difference": self.largest_logit_difference,
            "flipped": self.flipped,
            "flipped_share": self.flipped_share,
        }
        keys = ("before", "after", "change")
        return values | {f"{self.metric}_{key}": getattr(self.change, key, None) for key in keys}

    def render(self) -> str:
        """Return the proof for people."""
        lines = [
            f"rows compared               {self.rows:,}",
            f"largest logit difference    {self.largest_logit_difference:.3g}",
            f"predictions that changed    {self.flipped:,} ({100 * self.flipped_share:.2f} %)",
        ]
        if self.change is not None:
            name, (low, high) = BY_KEY[self.metric].english, self.change.change
            lines.append(f"{name} before, after      {self.change.before:.4f}, {self.change.after:.4f}")
            lines.append(f"its change                  {low:+.4f} to {high:+.4f} (95 % interval, same rows)")
        return "\n".join(lines)


def prove(before: np.ndarray, exported: Predictor, rows: list[Row], labels: np.ndarray | None) -> Proof:
    """Compare a predictor with the logits `before`, (num_rows, num_labels), of the original; `labels`
    (num_rows, ...) are those of the rows, None where they are not known.

    All rows are computed in batches of similar length, as files are; some of them also alone and in one batch
    of mixed lengths.
    """
    outcome = exported.outcome
    after = exported.logits(exported.tokenize(rows))
    few = rows[:OTHER_BATCHES]
    alone = np.concatenate([exported.logits(exported.tokenize([row])) for row in few])
    mixed = exported.logits(exported.tokenize(few), sort=False)
    pairs = [(before, after), (before[: len(few)], alone), (before[: len(few)], mixed)]
    changed = np.zeros(len(rows), dtype=bool)
    for one, other in pairs:
        first, second = (outcome.decide(logits).reshape(len(logits), -1) for logits in (one, other))
        changed[: len(one)] |= (first != second).any(axis=1)
    # Not a number counts as an endless difference.
    largest = max(float(np.nan_to_num(np.abs(one - other), nan=np.inf).max()) for one, other in pairs)
    change = None if labels is None else _metric_change(outcome, labels, before, after)
    return Proof(len(rows), largest, int(changed.sum()), outcome.main_metric, change)


def _metric_change(
    outcome: LabelledOutcome, labels: np.ndarray, before: np.ndarray, after: np.ndarray
) -> MetricChange:
    scores = [outcome.score(labels, np.nan_to_num(logits)) for logits in (before, after)]
    metric = outcome.main_metric
    values = [outcome.measure(of_model)[metric] for of_model in scores]
    return MetricChange(*values, compare(outcome, *scores).differences[metric][1])
