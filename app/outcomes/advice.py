"""What next? The figures of a finished run -> at most five sentences, each with its figure and the setting to
add or the verb to run. They are said only where the evidence is clear; a run with nothing wrong gets none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..config.shipped import PROGRAM
from ..data.report import FEW_ROWS
from ..evaluation.measures.selective import Decisions, lower_bound
from ..evaluation.text_table import short_label
from ..words import N_, _
from .metrics import BY_KEY, Metric, best_baseline, is_better
from .outcome import Outcome

MAX_SENTENCES = 5
# Rows of dev or of the report; fewer say little
ENOUGH_ROWS = 100
# The loss on dev fell by at least this share in the last evaluation
STILL_FALLS = 0.02
# The loss on dev rose by this share above its lowest, and that of training is below this share of it
ROSE, FAR_BELOW = 0.1, 0.5
# Of the surest rows, how many there must be, and the share of wrong ones that is surely exceeded
SUREST, ENOUGH_SUREST, WRONG_LABELS = 0.25, 50, 0.05
# Rows taken for each other in both directions, and their share of both classes
CONFUSED_ROWS, CONFUSED_SHARE = 5, 0.15
# Rows not read whole
CUT_ROWS, CUT_SHARE = 30, 0.05


@dataclass(frozen=True)
class Advice:
    """One sentence: what it is about, its English with fields, and the values of these."""

    what: str
    text: str
    values: Mapping[str, Any]

    def sentence(self) -> str:
        """Return the sentence in the current language."""
        values = {
            key: value.name if isinstance(value, Metric) else value for key, value in self.values.items()
        }
        return _(self.text).format(program=PROGRAM, **values)


@dataclass(frozen=True)
class Evidence:
    """What is known of a finished run.

    `metrics` are those of report.json, `history` the evaluations on dev, in which `train_loss` is the mean
    loss of training since the one before (absent where it is another loss than that of dev). `decisions` are
    of rows that were not trained on; `class_rows` the training rows of each label.

    The others are settings, as on a command line: `longer` trains for twice as long, `enough` for as many
    steps as are usual (None where the run had them), `other_model` begins with another pretrained model,
    `pretrained` with one instead of random weights, and `reading_more` reads more of each text (None where
    all models read less).
    """

    metrics: Mapping
    history: Sequence[Mapping]
    decisions: Decisions | None
    class_rows: Mapping[str, int]
    dev_rows: int
    is_pretrained: bool
    longer: str
    enough: str | None
    other_model: str
    pretrained: str
    reading_more: str | None


def what_next(outcome: Outcome, evidence: Evidence) -> list[Advice]:
    """Return what to do next, the most important first; nothing where the figures show nothing wrong."""
    advice: list[Advice] = []
    for check in (no_better, still_falls):
        advice += check(outcome, evidence)
    # A model that is not good yet says little about labels and classes
    checks = (few_test_rows, few_rows, cut_texts)
    if not advice:
        checks = (few_test_rows, wrong_labels, few_rows, cut_texts, confused, by_heart)
    for check in checks:
        # Wrong labels alone make classes look alike
        if check is not confused or "wrong_labels" not in [one.what for one in advice]:
            advice += check(outcome, evidence)
    return advice[:MAX_SENTENCES]


def no_better(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """A linear model of characters is at least as good: then the model itself is the place to begin."""
    metrics, key = evidence.metrics, outcome.main_metric
    baseline = best_baseline(metrics, key)
    if baseline is None or metrics["rows"] < ENOUGH_ROWS:
        return
    name, best = baseline
    if is_better(metrics[key], best[key], key):
        return
    values = {"metric": BY_KEY[key], "ours": metrics[key], "baseline": name, "theirs": best[key]}
    if not evidence.is_pretrained:
        yield Advice(
            "random_weights",
            N_(
                "The model began with random weights and is no better than a linear model of characters: "
                "{metric} {ours:.4f}, {baseline} {theirs:.4f}. Begin with a pretrained model, without "
                "model.config and without a learning rate that was chosen for random weights: {setting}"
            ),
            values | {"setting": evidence.pretrained},
        )
    elif evidence.enough:
        yield Advice(
            "few_steps",
            N_(
                "The run was shorter than usual for such data, and the model is no better than a linear "
                "model of characters: {metric} {ours:.4f}, {baseline} {theirs:.4f}. Train as long as "
                "usual: {setting}"
            ),
            values | {"setting": evidence.enough},
        )
    else:
        yield Advice(
            "no_better",
            N_(
                "The model is no better than a linear model of characters: {metric} {ours:.4f}, "
                "{baseline} {theirs:.4f}. Try another pretrained model: {setting}"
            ),
            values | {"setting": evidence.other_model},
        )


def still_falls(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """The last evaluation on dev was the best, the loss still fell, and that of training is not far below it:
    at the end of a run the loss nearly always falls, as the learning rate does."""
    history = evidence.history
    if len(history) < 2 or evidence.dev_rows < ENOUGH_ROWS:
        return
    before, last, train = history[-2]["loss"], history[-1]["loss"], history[-1].get("train_loss")
    is_best = history[-1]["step"] == evidence.metrics.get("step")
    has_more_to_learn = train is not None and train > last * FAR_BELOW
    if is_best and has_more_to_learn and last < before * (1 - STILL_FALLS):
        values = {"before": before, "last": last, "fall": 1 - last / before, "train": train}
        yield Advice(
            "still_falls",
            N_(
                "The last checkpoint is the best, the loss on dev still fell by {fall:.0%} ({before:.4f} "
                "to {last:.4f}), and that of training is {train:.4f}, so there is more to learn. Train "
                "longer: {setting}"
            ),
            values | {"setting": evidence.longer},
        )


def few_test_rows(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """The figures themselves are uncertain."""
    metrics, key = evidence.metrics, outcome.main_metric
    if outcome.has_labels and metrics["rows"] < ENOUGH_ROWS:
        low, high = metrics["intervals"][key]
        values = {"rows": metrics["rows"], "metric": BY_KEY[key], "low": low, "high": high}
        yield Advice(
            "few_test_rows",
            N_(
                "The report is about {rows} rows only, so {metric} may be anything from {low:.2f} to "
                "{high:.2f}. A cross-validation tests every row: {program} cross-validate --folds 5, "
                "with the same settings."
            ),
            values,
        )


def wrong_labels(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """Even where the model is surest, it often differs from the label: it is the labels that are wrong. A
    model that is only weak is seldom wrong where it is surest."""
    rows = evidence.decisions
    if rows is None:
        return
    surest = (-rows.confidence).argsort(kind="stable")[: int(len(rows) * SUREST)]
    if len(surest) < ENOUGH_SUREST:
        return
    differ = int((~rows.correct[surest]).sum())
    at_least = lower_bound(differ, len(surest))
    if at_least > WRONG_LABELS:
        yield Advice(
            "wrong_labels",
            N_(
                "Of the {rows} rows of which the model is surest, {differ} have another label than it "
                "says: at least {at_least:.0%} of such labels seem wrong. List them, and correct them: "
                "{program} cross-validate --folds 5, with the same settings."
            ),
            {"rows": len(surest), "differ": differ, "at_least": at_least},
        )


def few_rows(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """Classes of which the model has seen hardly anything."""
    few = sorted((rows, name) for name, rows in evidence.class_rows.items() if rows < FEW_ROWS)
    if few:
        shown = ", ".join(f"{short_label(name)} ({rows})" for rows, name in few[:3])
        yield Advice(
            "few_rows",
            N_(
                "Classes with fewer than {limit} training rows: {classes}, the smallest {shown}. Label "
                "more texts: {program} suggest new.csv next.csv chooses the rows of a file without "
                "labels that are worth it."
            ),
            {"classes": len(few), "limit": FEW_ROWS, "shown": shown},
        )


def cut_texts(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """Many texts are not read whole, and the model is worse on them."""
    long = evidence.metrics.get("long_texts", {})
    if not {"whole", "not_whole"} <= set(long) or evidence.reading_more is None:
        return
    cut, whole = long["not_whole"], long["whole"]
    share = cut["rows"] / evidence.metrics["rows"]
    is_worse = cut["interval"][1] < whole["accuracy"] and cut["accuracy"] < whole["interval"][0]
    if cut["rows"] >= CUT_ROWS and share >= CUT_SHARE and is_worse:
        values = {"share": share, "cut": cut["accuracy"], "whole": whole["accuracy"]}
        values |= {"metric": BY_KEY[outcome.right_share], "setting": evidence.reading_more}
        yield Advice(
            "cut_texts",
            N_(
                "{share:.0%} of the texts are not read whole, and the model is worse on them: {metric} "
                "{cut:.4f}, else {whole:.4f}. Let it read more: {setting}"
            ),
            values,
        )


def confused(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """Two of several classes are taken for each other; of only two, the accuracy says as much."""
    pairs = [
        pair
        for pair in outcome.mixed_up(evidence.metrics)
        if min(pair.rows, pair.other_rows) >= CONFUSED_ROWS and pair.share >= CONFUSED_SHARE
    ]
    if len(evidence.class_rows) == 2:
        return
    for pair in sorted(pairs, key=lambda pair: -pair.share)[:1]:
        values = {
            "one": short_label(pair.label),
            "other": short_label(pair.other),
            "rows": pair.rows,
            "of": pair.of,
            "other_rows": pair.other_rows,
            "other_of": pair.other_of,
        }
        yield Advice(
            "confused",
            N_(
                "{one} and {other} are taken for each other ({rows} of {of} rows, and {other_rows} of "
                "{other_of}). Look at these rows: do people agree on the difference? {program} "
                "cross-validate --folds 5, with the same settings, lists them."
            ),
            values,
        )


def by_heart(outcome: Outcome, evidence: Evidence) -> Iterator[Advice]:
    """The loss on dev rose while that of training fell far below it: more rows help more than more epochs."""
    if not evidence.history or evidence.dev_rows < ENOUGH_ROWS:
        return
    lowest, last = min(line["loss"] for line in evidence.history), evidence.history[-1]
    train = last.get("train_loss")
    if train is not None and last["loss"] > lowest * (1 + ROSE) and train < lowest * FAR_BELOW:
        yield Advice(
            "by_heart",
            N_(
                "The model knows its training rows by heart (loss {train:.4f}), while the loss on dev "
                "rose from {lowest:.4f} to {last:.4f}. More rows are the usual remedy; {program} "
                "learning-curve, with the same settings, says whether they help."
            ),
            {"train": train, "last": last["loss"], "lowest": lowest},
        )


def render_advice(advice: Sequence[Advice]) -> str:
    """Return the sentences for a terminal."""
    return "\n".join([_("What next?"), *(f"  - {one.sentence()}" for one in advice)])
