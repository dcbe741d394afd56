"""Comparing an exported model with the model that it was made from, on rows of the user."""

from pathlib import Path

import numpy as np

from ..data.rows import Row
from ..prediction.predictor import Predictor
from ..report.bootstrap import differences
from ..report.metrics import BY_KEY, measure
from ..report.text import page_environment

OTHER_BATCHES = 64  # rows that are also computed one by one, and as one batch of mixed lengths
SURE, MIN_SURE = 0.6, 50  # the model is sure of a row from this probability on; fewer sure rows say little
MAX_LOSS = 0.02  # of the main metric, by the lower end of the interval of its change


def prove(before: np.ndarray, exported: Predictor, rows: list[Row], labels: np.ndarray | None) -> dict:
    """Compare a predictor with the logits `before`, (num_rows, num_labels), of the original; all rows are
    computed in batches of similar length, as files are, some also alone and in one batch of mixed lengths.

    Return the number of `rows`, the `largest_logit_difference`, how many predictions changed, `flipped`, of
    how many rows the original was `sure`, and `sure_flipped`; where `labels` (num_rows, ...) are known, also
    `metric`, the main one, METRIC_before and METRIC_after, and METRIC_change, the 95 % interval of its
    change by a paired bootstrap.
    """
    task, few = exported.task, rows[:OTHER_BATCHES]
    after = exported.logits(exported.tokenize(rows))
    alone = np.concatenate([exported.logits(exported.tokenize([row])) for row in few])
    mixed = exported.logits(exported.tokenize(few), sort=False)
    changed, largest = np.zeros(len(rows), dtype=bool), 0.0
    for logits in (after, alone, mixed):
        same = before[: len(logits)]
        changed[: len(logits)] |= task.differ(same, logits)
        # Not a number counts as an endless difference
        largest = max(largest, float(np.nan_to_num(np.abs(same - logits), nan=np.inf).max()))
    sure = task.confidence(task.probabilities(before)) >= SURE
    proof = {"rows": len(rows), "largest_logit_difference": largest, "flipped": int(changed.sum())}
    proof |= {"sure": int(sure.sum()), "sure_flipped": int((sure & changed).sum())}
    if labels is not None:
        metric = task.main_metric
        scores = [task.score(labels, np.nan_to_num(logits)) for logits in (before, after)]
        values, change = [measure(task, one)[metric] for one in scores], differences(task, *scores)[metric][1]
        proof |= {"metric": metric, f"{metric}_before": values[0], f"{metric}_after": values[1]}
        proof[f"{metric}_change"] = list(change)
    return proof


def problem(proof: dict, tolerance: float, logit_tolerance: float | None) -> str | None:
    """Return why an exported model is not accepted, or None: more than the share `tolerance` of the rows
    changed of which the original was sure (of all rows where it was sure of few), the main metric may be
    lower by more than `MAX_LOSS`, or a logit differs by more than `logit_tolerance` (None: any)."""
    changed, of, which = (
        proof["sure_flipped"],
        proof["sure"],
        f" of which the model was sure (from {SURE:g} on)",
    )
    if proof["sure"] < MIN_SURE:
        changed, of, which = proof["flipped"], proof["rows"], ""
    if changed > tolerance * of:
        return f"{changed:,} of {of:,} predictions{which} changed, allowed is a share of {tolerance:g}"
    low, high = proof.get(f"{proof.get('metric')}_change", (0, 0))
    if -low > MAX_LOSS:
        name = BY_KEY[proof["metric"]].english
        return f"{name} changed by {low:+.4f} to {high:+.4f} (95 %), allowed is a loss of {MAX_LOSS:g}"
    difference = proof["largest_logit_difference"]
    if logit_tolerance is not None and not difference <= logit_tolerance:
        return f"a logit differs by {difference:.3g}, allowed is {logit_tolerance:g}"
    return None


def render(proof: dict) -> str:
    """Return a proof for people."""
    key = proof.get("metric")
    of_metric = {name: proof.get(f"{key}_{name}") for name in ("before", "after", "change")}
    of_metric["change"] = tuple(of_metric["change"] or ())
    template = page_environment(Path(__file__).parent, autoescape=False).get_template("proof.txt.jinja")
    return template.render(**proof | of_metric | {"metric": BY_KEY.get(key)}, threshold=SURE).rstrip()
