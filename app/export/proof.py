"""Comparing an exported model with the model that it was made from, on rows of the user."""

from dataclasses import dataclass

import numpy as np

from ..data.rows import Row
from ..prediction.predictor import Predictor
from ..report.bootstrap import Interval, differences
from ..report.metrics import BY_KEY, measure
from ..tasks.task import Task

# Rows that are also computed one by one, and as one batch of mixed lengths
OTHER_BATCHES = 64
# The model is sure of a row from this probability on; fewer rows than MIN_SURE say little
SURE, MIN_SURE = 0.6, 50


@dataclass(frozen=True)
class MetricChange:
    """The main metric of original and export, and its `change` with a 95 % paired bootstrap interval."""

    before: float
    after: float
    change: Interval


@dataclass(frozen=True)
class Proof:
    """How far the exported model is from the original on `rows` rows: the largest difference of a logit, and
    the number of rows whose prediction changed, `flipped`. Of `sure` rows the original was sure, and of these
    `sure_flipped` changed. `metric` is the main metric, and `change` its change on labelled rows, else
    None."""

    rows: int
    largest_logit_difference: float
    flipped: int
    sure: int
    sure_flipped: int
    metric: str
    change: MetricChange | None

    @property
    def flipped_share(self) -> float:
        return self.flipped / self.rows

    def problem(self, tolerance: float, max_loss: float) -> str | None:
        """Return why the exported model is not accepted, or None: more than the share `tolerance` of the rows
        changed of which the original was sure (of all rows where it was sure of few), or the main metric may
        be lower by more than `max_loss`, by the interval of its change."""
        changed, of, which = self.sure_flipped, self.sure, f" of which the model was sure (from {SURE:g} on)"
        if self.sure < MIN_SURE:
            changed, of, which = self.flipped, self.rows, ""
        if changed > tolerance * of:
            return (
                f"{changed:,} of {of:,} predictions{which} changed, allowed is a share of {tolerance:g} "
                "(--tolerance)"
            )
        if self.change is not None and -self.change.change[0] > max_loss:
            name, (low, high) = BY_KEY[self.metric].english, self.change.change
            return f"{name} changed by {low:+.4f} to {high:+.4f} (95 %), allowed is a loss of {max_loss:g}"
        return None

    def as_dict(self) -> dict:
        """Return the proof for the record; of rows without labels the metric is None."""
        values = {
            "rows": self.rows,
            "largest_logit_difference": self.largest_logit_difference,
            "flipped": self.flipped,
            "flipped_share": self.flipped_share,
            "sure": self.sure,
            "sure_flipped": self.sure_flipped,
        }
        keys = ("before", "after", "change")
        return values | {f"{self.metric}_{key}": getattr(self.change, key, None) for key in keys}

    def render(self) -> str:
        """Return the proof for people."""
        lines = [
            f"rows compared               {self.rows:,}",
            f"largest logit difference    {self.largest_logit_difference:.3g}",
            f"predictions that changed    {self.flipped:,} ({100 * self.flipped_share:.2f} %)",
            f"of those from {SURE:g} on          {self.sure_flipped:,} of {self.sure:,}",
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
    task = exported.task
    after = exported.logits(exported.tokenize(rows))
    few = rows[:OTHER_BATCHES]
    alone = np.concatenate([exported.logits(exported.tokenize([row])) for row in few])
    mixed = exported.logits(exported.tokenize(few), sort=False)
    pairs = [(before, after), (before[: len(few)], alone), (before[: len(few)], mixed)]
    changed = np.zeros(len(rows), dtype=bool)
    for one, other in pairs:
        changed[: len(one)] |= task.differ(one, other)
    # Not a number counts as an endless difference.
    largest = max(float(np.nan_to_num(np.abs(one - other), nan=np.inf).max()) for one, other in pairs)
    change = None if labels is None else _metric_change(task, labels, before, after)
    sure = task.confidence(task.probabilities(before)) >= SURE
    return Proof(
        len(rows),
        largest,
        int(changed.sum()),
        int(sure.sum()),
        int((sure & changed).sum()),
        task.main_metric,
        change,
    )


def _metric_change(task: Task, labels: np.ndarray, before: np.ndarray, after: np.ndarray) -> MetricChange:
    scores = [task.score(labels, np.nan_to_num(logits)) for logits in (before, after)]
    metric = task.main_metric
    values = [measure(task, of_model)[metric] for of_model in scores]
    return MetricChange(*values, differences(task, *scores)[metric][1])
