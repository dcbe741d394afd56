"""How an exported model compares with the original, and whether it is accepted."""

import numpy as np

from ..data.rows import Row
from ..prediction.predictor import Predictor
from ..report.bootstrap import differences
from ..report.measure import measure
from ..report.metrics import BY_KEY
from ..tasks.task import Task

OTHER_BATCHES = 64  # rows that are also computed one by one, and as one batch of mixed lengths
SURE = 0.6  # the model is sure of a row from this probability on
MIN_SURE = 50  # fewer sure rows say little
MAX_LOSS = 0.02  # of the main metric, by the lower end of the interval of its change


def prove(before: np.ndarray, exported: Predictor, rows: list[Row], labels: np.ndarray | None) -> dict:
    """Return how a predictor compares with the logits `before`, (num_rows, num_labels), of the original: all
    rows in batches of similar length, some also alone and in one batch of mixed lengths; where `labels`
    (num_rows, ...) are known with the change of the main metric and its 95 % interval, by a paired
    bootstrap."""
    task = exported.task
    first_rows = rows[:OTHER_BATCHES]
    after = exported.logits(exported.tokenize(rows))
    alone = np.concatenate([exported.logits(exported.tokenize([row])) for row in first_rows])
    mixed = exported.logits(exported.tokenize(first_rows), sort=False)
    is_changed = np.zeros(len(rows), dtype=bool)
    largest = 0.0
    for logits in (after, alone, mixed):
        original = before[: len(logits)]
        is_changed[: len(logits)] |= task.differ(original, logits)
        # A logit that is not a number differs by infinity
        distances = np.nan_to_num(np.abs(original - logits), nan=np.inf)
        largest = max(largest, float(distances.max()))
    is_sure = task.confidence(task.probabilities(before)) >= SURE
    proof = {
        "rows": len(rows),
        "largest_logit_difference": largest,
        "flipped": int(is_changed.sum()),
        "sure": int(is_sure.sum()),
        "sure_flipped": int((is_sure & is_changed).sum()),
    }
    if labels is not None:
        proof |= metric_change(task, labels, before, after)
    return proof


def metric_change(task: Task, labels: np.ndarray, before: np.ndarray, after: np.ndarray) -> dict:
    """Return the main metric of logits before and after, and the interval of its change."""
    metric = task.main_metric
    scores_before = task.score(labels, np.nan_to_num(before))
    scores_after = task.score(labels, np.nan_to_num(after))
    _change, interval = differences(task, scores_before, scores_after)[metric]
    low, high = interval
    return {
        "metric": metric,
        f"{metric}_before": measure(task, scores_before)[metric],
        f"{metric}_after": measure(task, scores_after)[metric],
        f"{metric}_change": [low, high],
    }


def reason_to_refuse(proof: dict, tolerance: float, logit_tolerance: float | None) -> str | None:
    """Return why an exported model is not accepted, or None: more than the share `tolerance` of the
    predictions changed of which the model was sure, the main metric fell, or a logit differs by more than
    `logit_tolerance`."""
    if proof["sure"] >= MIN_SURE:
        num_changed = proof["sure_flipped"]
        num_rows = proof["sure"]
        which = f" of which the model was sure (from {SURE:g} on)"
    else:
        num_changed = proof["flipped"]
        num_rows = proof["rows"]
        which = ""
    if num_changed > tolerance * num_rows:
        return (
            f"{num_changed:,} of {num_rows:,} predictions{which} changed, allowed is a share of {tolerance:g}"
        )
    if "metric" in proof:
        metric = proof["metric"]
        low, high = proof[f"{metric}_change"]
        if -low > MAX_LOSS:
            name = BY_KEY[metric].english
            return f"{name} changed by {low:+.4f} to {high:+.4f} (95 %), allowed is a loss of {MAX_LOSS:g}"
    largest = proof["largest_logit_difference"]
    if logit_tolerance is not None and not largest <= logit_tolerance:
        return f"a logit differs by {largest:.3g}, allowed is {logit_tolerance:g}"
    return None


def proof_text(proof: dict) -> str:
    """Return a proof for the terminal."""
    percent = 100 * proof["flipped"] / proof["rows"]
    lines = [
        f"rows compared               {proof['rows']:,}",
        f"largest logit difference    {proof['largest_logit_difference']:.3g}",
        f"predictions that changed    {proof['flipped']:,} ({percent:.2f} %)",
        f"of those from {SURE} on          {proof['sure_flipped']:,} of {proof['sure']:,}",
    ]
    if "metric" in proof:
        metric = proof["metric"]
        name = BY_KEY[metric].english
        low, high = proof[f"{metric}_change"]
        before = proof[f"{metric}_before"]
        after = proof[f"{metric}_after"]
        lines.append(f"{name} before, after      {before:.4f}, {after:.4f}")
        lines.append(f"its change                  {low:+.4f} to {high:+.4f} (95 % interval, same rows)")
    return "\n".join(lines)
