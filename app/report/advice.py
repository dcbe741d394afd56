"""What next? The figures of a finished run -> at most five sentences, each with its figure and the command to
run. They are said only where the evidence is clear; a run with nothing wrong gets none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..tasks.task import Task
from ..text_table import short_label
from ..words import _, joined, rows_in_words
from .advised_commands import AdvisedCommands
from .confidence import proportion_interval
from .metrics import BY_KEY, best_baseline, is_better
from .paired_differences import verdict_on

ENOUGH_ROWS = 100  # of dev or of the report; fewer say little
FEW_TRAINING_ROWS = 20  # of a class, from which a model learns little
MAX_NAMED = 3  # classes with few rows

# The loss on dev still falls: by how much, as a share of it, and how low the loss of training may be, as a
# share of the loss on dev. Where it is lower, there is little more to learn.
MIN_FALL = 0.02
MIN_TRAINING_LOSS = 0.5

# A model overfits: how far the loss on dev is above its lowest value, as a share of that, and how low the
# loss of training is, as a share of the loss on dev
MIN_RISE = 0.2
MAX_OVERFITTED_LOSS = 0.1

# Learning rates that train some encoder; others learn nothing, or forget what was pretrained
USUAL_RATES = (1e-6, 1e-2)

# Labels are doubted where the model is sure of rows and has many errors among these. All are shares of rows
# but for the number that there must be.
SUREST = 0.25
MIN_SUREST_ROWS = 200
MIN_CONFIDENCE = 0.75  # mean of the surest rows
MAX_ERRORS = 0.33  # of all rows; a worse model may not judge labels
MIN_SUREST_ERRORS = 0.05  # which the surest rows have with 95 % confidence
# A model that is wrong itself has far fewer errors where it is surer. Where the labels are wrong, the surest
# rows have nearly as large a share of errors as the rows that come next: more than this part of it.
MIN_ERROR_RATIO = 0.7


@dataclass(frozen=True)
class HeldOut:
    """How sure and how right decisions are on rows that were not trained on, (num_rows,) each."""

    confidence: np.ndarray
    correct: np.ndarray


@dataclass(frozen=True)
class Advice:
    """What to do next: a sentence in the current language, and the command for it, which can be copied."""

    sentence: str
    command: str

    @property
    def text(self) -> str:
        return f"{self.sentence} {self.command}"


@dataclass(frozen=True)
class Evidence:
    """What advice follows from: `metrics` are those of the report, with the `step` of the checkpoint.

    `history` are the evaluations on dev, with `train_loss`, the mean loss of training since the one before,
    where it is the same loss. `train_losses` are these means in any case, and `learning_rate` is the highest
    of the run. `class_rows` says how many training rows each label has. `longer` and `instead` are changes of
    the settings: to train for twice as long, and to try where a linear model is as good; `commands` make a
    command of them. `epochs` and `steps_per_epoch` are those of the run.
    """

    metrics: Mapping
    history: Sequence[Mapping]
    train_losses: Sequence[float]
    learning_rate: float
    held_out: HeldOut | None
    class_rows: Mapping[str, int]
    dev_rows: int
    commands: AdvisedCommands
    longer: Mapping[str, Any]
    instead: Mapping[str, Any]
    epochs: int
    steps_per_epoch: int


def what_next(task: Task, evidence: Evidence, folder: Path) -> dict[str, Advice]:
    """Return what to do next, the most important first; `folder` is that of the run."""
    advice = {"learned_nothing": advice_on_learning_rate(task, evidence)}
    if not advice["learned_nothing"]:
        advice["no_better"] = advice_on_baselines(task, evidence)
        advice["still_falls"] = advice_on_loss(evidence)
    # A model that is not good yet says little about labels
    is_good_so_far = not any(advice.values())
    advice["overfits"] = advice_on_overfitting(evidence)
    if is_good_so_far:
        advice["not_surely_better"] = advice_on_chance(task, evidence, folder)
    advice["few_test_rows"] = advice_on_test_rows(task, evidence, folder)
    if is_good_so_far:
        advice["wrong_labels"] = advice_on_labels(evidence, folder)
    advice["few_rows"] = advice_on_classes(evidence, folder)
    return {key: given for key, given in advice.items() if given}


def render_advice(advice: Mapping[str, Advice]) -> str:
    lines = [_("What next?")]
    for item in advice.values():
        lines.append(f"  - {item.text}")
    return "\n".join(lines)


def advice_on_learning_rate(task: Task, evidence: Evidence) -> Advice | None:
    """Return advice where the model has learned nothing, because of its learning rate as far as can be told;
    None otherwise, like the next ones. The loss of a model that is good may stay as it is."""
    rate = evidence.learning_rate
    lowest_rate, highest_rate = USUAL_RATES
    is_usual_rate = lowest_rate <= rate <= highest_rate
    key = task.main_metric
    baseline = best_baseline(evidence.metrics, key)
    is_poor = baseline is not None and not is_better(evidence.metrics[key], baseline[1][key], key)
    if is_usual_rate and not is_poor:
        return None
    losses = evidence.train_losses
    if len(losses) > 1 and not losses[-1] < losses[0] * (1 - MIN_FALL):
        sentence = _(
            "The loss of training did not fall: {first:.4f} until the first evaluation, {last:.4f} before "
            "the last. The learning rate was {rate:g}. Try another one:"
        ).format(first=losses[0], last=losses[-1], rate=rate)
        return Advice(sentence, command_with_other_rate(evidence))
    if is_usual_rate or not is_poor:
        return None
    sentence = _(
        "The model is no better than a simple baseline, and its learning rate was {rate:g}. Try another one:"
    ).format(rate=rate)
    return Advice(sentence, command_with_other_rate(evidence))


def command_with_other_rate(evidence: Evidence) -> str:
    """Return the command that trains with a learning rate that probably learns, where this one did not."""
    rate = evidence.learning_rate
    lowest_rate, highest_rate = USUAL_RATES
    other_rate = f"{3 * rate:.0e}"
    if rate > highest_rate:
        other_rate = "3e-5"
    if rate < lowest_rate:
        other_rate = "1e-4"
    return evidence.commands.training({"train.learning_rate": other_rate})


def advice_on_baselines(task: Task, evidence: Evidence) -> Advice | None:
    """Return advice where a simple baseline is as good."""
    key = task.main_metric
    metrics = evidence.metrics
    baseline = best_baseline(metrics, key)
    if baseline is None or metrics["rows"] < ENOUGH_ROWS:
        return None
    name, baseline_metrics = baseline
    if is_better(metrics[key], baseline_metrics[key], key):
        return None
    sentence = _(
        "The model is no better than a simple baseline: {metric} {ours:.4f}, {baseline} {theirs:.4f}. "
        "Train it in another way:"
    ).format(
        metric=BY_KEY[key].name,
        ours=metrics[key],
        baseline=_(name),
        theirs=baseline_metrics[key],
    )
    return Advice(sentence, evidence.commands.training(evidence.instead))


def advice_on_loss(evidence: Evidence) -> Advice | None:
    """Return advice where the loss on dev still fell, and the model has not learned its training rows yet."""
    history = evidence.history
    if len(history) < 2 or evidence.dev_rows < ENOUGH_ROWS:
        return None
    is_last_best = history[-1]["step"] == evidence.metrics.get("step")
    train_loss = history[-1].get("train_loss")
    if not is_last_best or train_loss is None:
        return None
    before = history[-2]["loss"]
    last = history[-1]["loss"]
    # At the end of a run the loss nearly always falls, as the learning rate does
    still_falls = last < before * (1 - MIN_FALL)
    if not still_falls or train_loss <= last * MIN_TRAINING_LOSS:
        return None
    sentence = _(
        "The last checkpoint is the best, the loss on dev still fell by {fall:.0%} ({before:.4f} "
        "to {last:.4f}), and that of training is {train:.4f}, so there is more to learn. Train longer:"
    ).format(fall=1 - last / before, before=before, last=last, train=train_loss)
    return Advice(sentence, evidence.commands.training(evidence.longer))


def advice_on_overfitting(evidence: Evidence) -> Advice | None:
    """Return advice where the model knows its training rows by heart, and the loss on dev has risen."""
    history = evidence.history
    if len(history) < 2 or evidence.dev_rows < ENOUGH_ROWS:
        return None
    last = history[-1]["loss"]
    train_loss = history[-1].get("train_loss")
    lowest = min(history, key=lambda evaluation: evaluation["loss"])
    rises = last > lowest["loss"] * (1 + MIN_RISE)
    if train_loss is None or not rises or train_loss > last * MAX_OVERFITTED_LOSS:
        return None
    epochs = max(1, -(-lowest["step"] // evidence.steps_per_epoch))
    if epochs < evidence.epochs:
        remedy = _("Train for fewer epochs:")
        change = {"train.epochs": epochs}
    else:
        remedy = _("Train with a lower learning rate:")
        change = {"train.learning_rate": f"{evidence.learning_rate / 3:.0e}"}
    sentence = _(
        "The model overfits: the loss of training fell to {train:.4f}, while that on dev rose from "
        "{lowest:.4f} at step {step} to {last:.4f}, so its probabilities are too sure."
    ).format(train=train_loss, lowest=lowest["loss"], step=lowest["step"], last=last)
    return Advice(f"{sentence} {remedy}", evidence.commands.training(change))


def advice_on_chance(task: Task, evidence: Evidence, folder: Path) -> Advice | None:
    """Return advice where chance may explain that the model is better than a baseline."""
    metrics = evidence.metrics
    verdict = verdict_on(metrics, task.main_metric)
    if verdict is None or verdict.is_sure or metrics["rows"] < ENOUGH_ROWS:
        return None
    sentence = _(
        "The model is not surely better than a simple baseline: {metric} {ours:.4f}, on {rows}; {baseline} "
        "is between {low:+.4f} and {high:+.4f} away. A cross-validation with the same settings tests every "
        "row:"
    )
    low, high = verdict.interval
    sentence = sentence.format(
        metric=verdict.metric.name,
        ours=metrics[verdict.metric.key],
        rows=rows_in_words(metrics["rows"]),
        baseline=_(verdict.baseline),
        low=-high,
        high=-low,
    )
    return Advice(sentence, evidence.commands.cross_validation(folder))


def advice_on_test_rows(task: Task, evidence: Evidence, folder: Path) -> Advice | None:
    """Return advice where the report is about few rows."""
    metrics = evidence.metrics
    num_rows = metrics["rows"]
    if not task.has_labels or num_rows >= ENOUGH_ROWS:
        return None
    key = task.main_metric
    low, high = metrics["intervals"][key]
    if low == high == 1:
        # Where all rows are right, all rows that are drawn again are right too
        low, _highest = proportion_interval(num_rows, num_rows)
    sentence = _(
        "The report is about {rows} only, so {metric} may be anything from {low:.2f} to "
        "{high:.2f}. A cross-validation with the same settings tests every row:"
    ).format(rows=rows_in_words(num_rows), metric=BY_KEY[key].name, low=low, high=high)
    return Advice(sentence, evidence.commands.cross_validation(folder))


def advice_on_labels(evidence: Evidence, folder: Path) -> Advice | None:
    """Return advice where labels may be wrong: of the surest rows nearly as many differ from their labels as
    of the rows that come next."""
    if evidence.held_out is None:
        return None
    confidence = evidence.held_out.confidence
    is_wrong = ~evidence.held_out.correct
    num_surest = int(len(confidence) * SUREST)
    surest_first = (-confidence).argsort(kind="stable")
    surest = surest_first[:num_surest]
    next_surest = surest_first[num_surest : 2 * num_surest]
    if num_surest < MIN_SUREST_ROWS or is_wrong.mean() > MAX_ERRORS:
        return None
    num_wrong = int(is_wrong[surest].sum())
    limit = max(MIN_SUREST_ERRORS, MIN_ERROR_RATIO * is_wrong[next_surest].mean())
    least_errors, _highest = proportion_interval(num_wrong, num_surest, "greater")
    if confidence[surest].mean() < MIN_CONFIDENCE or least_errors <= limit:
        return None
    sentence = _(
        "Of the {rows} rows of which the model is surest, {differ} have another label than it says, "
        "hardly fewer than of the next {rows}: the labels may be wrong. A cross-validation with the "
        "same settings lists them, to be looked at:"
    ).format(rows=num_surest, differ=num_wrong)
    return Advice(sentence, evidence.commands.cross_validation(folder))


def advice_on_classes(evidence: Evidence, folder: Path) -> Advice | None:
    """Return advice where classes have few training rows."""
    small_classes = []
    for name, num_rows in evidence.class_rows.items():
        if num_rows < FEW_TRAINING_ROWS:
            small_classes.append((num_rows, name))
    if not small_classes:
        return None
    small_classes.sort()
    smallest = []
    for num_rows, name in small_classes[:MAX_NAMED]:
        smallest.append(_("{name} ({rows})").format(name=short_label(name), rows=num_rows))
    sentence = _(
        "Classes with fewer than {limit} training rows: {classes}, the smallest {shown}. Label "
        "more texts. Of a file without labels, here new.csv, this chooses the rows that are worth it:"
    ).format(
        limit=FEW_TRAINING_ROWS,
        classes=len(small_classes),
        shown=joined(smallest),
    )
    return Advice(sentence, evidence.commands.suggestion(folder))
