"""What next? The figures of a finished run -> at most five sentences, each with its figure and the setting to
add or the verb to run. They are said only where the evidence is clear; a run with nothing wrong gets none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..tasks.task import Task
from ..text_table import short_label
from ..words import _
from .commands import cross_validation_command, suggest_command
from .confidence import proportion_interval
from .metrics import BY_KEY, best_baseline, is_better

ENOUGH_ROWS = 100  # of dev or of the report; fewer say little
FEW_ROWS = 20  # of a class in train, from which a model learns little
STILL_FALLS = 0.02  # the share by which the loss on dev fell in the last evaluation
FAR_BELOW = 0.5  # of the loss on dev: with that of training below this, there is little more to learn
SUREST, ENOUGH_SUREST = 0.25, 200  # of the rows, and how many there must be
SURE = 0.75  # the mean confidence of these rows
WRONG_LABELS = 0.05  # the share of them that surely differ from their labels
WEAK = 0.33  # errors of a model that may not judge labels
# The share of errors of the surest rows, of that of the next as many: where only the model is wrong, it has
# far fewer errors where it is surer
FLAT = 0.7


def what_next(
    task: Task,
    metrics: Mapping,
    history: Sequence[Mapping],
    held_out: tuple[np.ndarray, np.ndarray] | None,
    class_rows: Mapping[str, int],
    dev_rows: int,
    longer: str,
    instead: str,
    folder: Path,
) -> dict[str, str]:
    """Return what to do next, the most important first, each with a sentence in the current language.

    `history` are the evaluations on dev, with `train_loss`, the mean loss of training since the one before,
    where it is the same loss. `held_out` says how sure and how right decisions are on rows that were not
    trained on, `class_rows` how many training rows each label has. `longer` and `instead` are settings: to
    train for twice as long, and to try where a linear model is as good. `folder` is that of the run. A
    sentence ends with its command, without a full stop, so that it can be copied.
    """
    key = task.main_metric
    advice: dict[str, str] = {}
    metric_name = BY_KEY[key].name
    name, best = best_baseline(metrics, key) or ("", None)
    if best and metrics["rows"] >= ENOUGH_ROWS and not is_better(metrics[key], best[key], key):
        advice["no_better"] = _(
            "The model is no better than a simple baseline: {metric} {ours:.4f}, {baseline} {theirs:.4f}. "
            "Train it in another way: {setting}"
        ).format(
            metric=metric_name,
            ours=metrics[key],
            baseline=_(name),
            theirs=best[key],
            setting=instead,
        )
    # At the end of a run the loss nearly always falls, as the learning rate does
    if len(history) > 1 and dev_rows >= ENOUGH_ROWS and history[-1]["step"] == metrics.get("step"):
        before, last, train = history[-2]["loss"], history[-1]["loss"], history[-1].get("train_loss")
        if train is not None and train > last * FAR_BELOW and last < before * (1 - STILL_FALLS):
            advice["still_falls"] = _(
                "The last checkpoint is the best, the loss on dev still fell by {fall:.0%} ({before:.4f} "
                "to {last:.4f}), and that of training is {train:.4f}, so there is more to learn. Train "
                "longer: {setting}"
            ).format(fall=1 - last / before, before=before, last=last, train=train, setting=longer)
    # A model that is not good yet says little about labels
    is_good_so_far = not advice
    if task.has_labels and metrics["rows"] < ENOUGH_ROWS:
        low, high = metrics["intervals"][key]  # by drawing rows again; where all are right, they stay so
        low = proportion_interval(metrics["rows"], metrics["rows"])[0] if low == high == 1 else low
        advice["few_test_rows"] = _(
            "The report is about {rows} rows only, so {metric} may be anything from {low:.2f} to "
            "{high:.2f}. A cross-validation with the same settings tests every row: {command}"
        ).format(
            rows=metrics["rows"],
            metric=metric_name,
            low=low,
            high=high,
            command=cross_validation_command(folder),
        )
    if is_good_so_far and held_out is not None:
        confidence, correct = held_out
        order, wrong = (-confidence).argsort(kind="stable"), ~correct
        rows = int(len(order) * SUREST)
        surest, next_ones = order[:rows], order[rows : 2 * rows]
        is_sure = wrong.mean() <= WEAK and confidence[surest].mean() >= SURE
        differ = int(wrong[surest].sum())
        limit = max(WRONG_LABELS, FLAT * wrong[next_ones].mean())
        if rows >= ENOUGH_SUREST and is_sure and proportion_interval(differ, rows, "greater")[0] > limit:
            advice["wrong_labels"] = _(
                "Of the {rows} rows of which the model is surest, {differ} have another label than it says, "
                "hardly fewer than of the next {rows}: the labels may be wrong. A cross-validation with the "
                "same settings lists them, to be looked at: {command}"
            ).format(rows=rows, differ=differ, command=cross_validation_command(folder))
    if few := sorted((rows, name) for name, rows in class_rows.items() if rows < FEW_ROWS):
        shown = ", ".join(f"{short_label(name)} ({rows})" for rows, name in few[:3])
        advice["few_rows"] = _(
            "Classes with fewer than {limit} training rows: {classes}, the smallest {shown}. Label "
            "more texts. Of a file without labels, here new.csv, this chooses the rows that are worth it: "
            "{command}"
        ).format(limit=FEW_ROWS, classes=len(few), shown=shown, command=suggest_command(folder))
    return advice


def render_advice(advice: Mapping[str, str]) -> str:
    return "\n".join([_("What next?"), *(f"  - {sentence}" for sentence in advice.values())])
