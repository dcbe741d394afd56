"""What next? The figures of a finished run -> at most five sentences, each with its figure and the setting to
add or the verb to run. They are said only where the evidence is clear; a run with nothing wrong gets none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..config.shipped import PROGRAM
from ..tasks.task import Task
from ..text_table import short_label
from ..words import N_, _
from .confidence import lower_bound
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


@dataclass(frozen=True)
class Advice:
    """One sentence: what it is about, its English with fields, and the values of these."""

    what: str
    text: str
    values: Mapping[str, Any]

    def sentence(self) -> str:
        """Return the sentence in the current language."""
        return _(self.text).format(**self.values)


@dataclass(frozen=True)
class Evidence:
    """What is known of a finished run.

    `metrics` are those of report.json, `history` the evaluations on dev, in which `train_loss` is the mean
    loss of training since the one before (absent where it is another loss than that of dev). `confidence` and
    `correct` are of rows that were not trained on (None: there are none), `class_rows` the training rows of
    each label. As on a command line, `longer` trains for twice as long, and `instead` is what to try where a
    linear model is as good.
    """

    metrics: Mapping
    history: Sequence[Mapping]
    confidence: np.ndarray | None
    correct: np.ndarray | None
    class_rows: Mapping[str, int]
    dev_rows: int
    longer: str
    instead: str


def what_next(task: Task, evidence: Evidence) -> list[Advice]:
    """Return what to do next, the most important first; nothing where the figures show nothing wrong."""
    metrics, history, key, advice = evidence.metrics, evidence.history, task.main_metric, []

    def say(what: str, text: str, **values: Any) -> None:
        advice.append(Advice(what, text, {"program": PROGRAM, "metric": BY_KEY[key]} | values))

    name, best = best_baseline(metrics, key) or ("", None)
    if best and metrics["rows"] >= ENOUGH_ROWS and not is_better(metrics[key], best[key], key):
        text = N_(
            "The model is no better than a linear model of characters: {metric} {ours:.4f}, {baseline} "
            "{theirs:.4f}. Train it in another way: {setting}"
        )
        figures = {"ours": metrics[key], "baseline": name, "theirs": best[key]}
        say("no_better", text, setting=evidence.instead, **figures)
    # At the end of a run the loss nearly always falls, as the learning rate does
    if len(history) > 1 and evidence.dev_rows >= ENOUGH_ROWS and history[-1]["step"] == metrics.get("step"):
        before, last, train = history[-2]["loss"], history[-1]["loss"], history[-1].get("train_loss")
        if train is not None and train > last * FAR_BELOW and last < before * (1 - STILL_FALLS):
            text = N_(
                "The last checkpoint is the best, the loss on dev still fell by {fall:.0%} ({before:.4f} "
                "to {last:.4f}), and that of training is {train:.4f}, so there is more to learn. Train "
                "longer: {setting}"
            )
            figures = {"before": before, "last": last, "fall": 1 - last / before, "train": train}
            say("still_falls", text, setting=evidence.longer, **figures)
    # A model that is not good yet says little about labels
    is_good_so_far = not advice
    if task.has_labels and metrics["rows"] < ENOUGH_ROWS:
        text = N_(
            "The report is about {rows} rows only, so {metric} may be anything from {low:.2f} to "
            "{high:.2f}. A cross-validation tests every row: {program} cross-validate --folds 5, "
            "with the same settings."
        )
        low, high = metrics["intervals"][key]
        say("few_test_rows", text, rows=metrics["rows"], low=low, high=high)
    if is_good_so_far and evidence.correct is not None:
        order, wrong = (-evidence.confidence).argsort(kind="stable"), ~evidence.correct
        rows = int(len(order) * SUREST)
        surest, next_ones = order[:rows], order[rows : 2 * rows]
        is_sure = wrong.mean() <= WEAK and evidence.confidence[surest].mean() >= SURE
        differ = int(wrong[surest].sum())
        limit = max(WRONG_LABELS, FLAT * wrong[next_ones].mean())
        if rows >= ENOUGH_SUREST and is_sure and lower_bound(differ, rows) > limit:
            text = N_(
                "Of the {rows} rows of which the model is surest, {differ} have another label than it says, "
                "hardly fewer than of the next {rows}: the labels may be wrong. List and look at them: "
                "{program} cross-validate --folds 5, with the same settings."
            )
            say("wrong_labels", text, rows=rows, differ=differ)
    if few := sorted((rows, name) for name, rows in evidence.class_rows.items() if rows < FEW_ROWS):
        text = N_(
            "Classes with fewer than {limit} training rows: {classes}, the smallest {shown}. Label "
            "more texts: {program} suggest new.csv next.csv chooses the rows of a file without "
            "labels that are worth it."
        )
        shown = ", ".join(f"{short_label(name)} ({rows})" for rows, name in few[:3])
        say("few_rows", text, classes=len(few), limit=FEW_ROWS, shown=shown)
    return advice


def render_advice(advice: Sequence[Advice]) -> str:
    """Return the sentences for a terminal."""
    return "\n".join([_("What next?"), *(f"  - {one.sentence()}" for one in advice)])
