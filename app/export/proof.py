"""Comparing an exported model with the model that it was made from, on rows of the user."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ..data.rows import Row
from ..prediction.predictor import Predictor
from ..report.bootstrap import Interval, differences
from ..report.metrics import BY_KEY, measure

OTHER_BATCHES = 64  # rows that are also computed one by one, and as one batch of mixed lengths
SURE, MIN_SURE = 0.6, 50  # the model is sure of a row from this probability on; fewer sure rows say little
MAX_LOSS = 0.02  # of the main metric, by the lower end of the interval of its change


@dataclass(frozen=True)
class Proof:
    """How far the exported model is from the original on `rows` rows: the largest difference of a logit, and
    the number of rows whose prediction changed, `flipped`. Of `sure` rows the original was sure, and of these
    `sure_flipped` changed. `metric` is the main metric; on labelled rows `values` has it before and after,
    and `change` the 95 % interval of its change, by a paired bootstrap."""

    rows: int
    largest_logit_difference: float
    flipped: int
    sure: int
    sure_flipped: int
    metric: str
    values: tuple[float, float] | None = None
    change: Interval | None = None

    def problem(self, tolerance: float, logit_tolerance: float | None) -> str | None:
        """Return why the exported model is not accepted, or None: more than the share `tolerance` of the rows
        changed of which the original was sure (of all rows where it was sure of few), the main metric may be
        lower by more than `MAX_LOSS`, or a logit differs by more than `logit_tolerance` (None: any)."""
        changed, of, which = self.sure_flipped, self.sure, f" of which the model was sure (from {SURE:g} on)"
        if self.sure < MIN_SURE:
            changed, of, which = self.flipped, self.rows, ""
        if changed > tolerance * of:
            return f"{changed:,} of {of:,} predictions{which} changed, allowed is a share of {tolerance:g}"
        if self.change is not None and -self.change[0] > MAX_LOSS:
            name, (low, high) = BY_KEY[self.metric].english, self.change
            return f"{name} changed by {low:+.4f} to {high:+.4f} (95 %), allowed is a loss of {MAX_LOSS:g}"
        if logit_tolerance is not None and not self.largest_logit_difference <= logit_tolerance:
            return f"a logit differs by {self.largest_logit_difference:.3g}, allowed is {logit_tolerance:g}"
        return None

    def as_dict(self) -> dict:
        """Return the proof for the record; of rows without labels the metric is None."""
        kept = asdict(self)
        metric, change = kept.pop("metric"), kept.pop("change")
        before, after = kept.pop("values") or (None, None)
        return kept | {f"{metric}_before": before, f"{metric}_after": after, f"{metric}_change": change}

    def render(self) -> str:
        """Return the proof for people."""
        lines = [
            f"rows compared               {self.rows:,}",
            f"largest logit difference    {self.largest_logit_difference:.3g}",
            f"predictions that changed    {self.flipped:,} ({100 * self.flipped / self.rows:.2f} %)",
            f"of those from {SURE:g} on          {self.sure_flipped:,} of {self.sure:,}",
        ]
        if self.change is not None:
            name, (low, high) = BY_KEY[self.metric].english, self.change
            lines.append("{} before, after      {:.4f}, {:.4f}".format(name, *self.values))
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
    changed, largest = np.zeros(len(rows), dtype=bool), 0.0
    for logits in (after, alone, mixed):
        same = before[: len(logits)]
        changed[: len(logits)] |= task.differ(same, logits)
        # Not a number counts as an endless difference.
        largest = max(largest, float(np.nan_to_num(np.abs(same - logits), nan=np.inf).max()))
    sure = task.confidence(task.probabilities(before)) >= SURE
    counts = (int(changed.sum()), int(sure.sum()), int((sure & changed).sum()))
    metric = task.main_metric
    if labels is None:
        return Proof(len(rows), largest, *counts, metric)
    scores = [task.score(labels, np.nan_to_num(logits)) for logits in (before, after)]
    values = tuple(measure(task, of_model)[metric] for of_model in scores)
    return Proof(len(rows), largest, *counts, metric, values, differences(task, *scores)[metric][1])
