"""Whether what a report says beside a teacher holds: its intervals, and thresholds for a wanted precision.

python -m benchmarks.teachers

Of each job, character n-grams are fitted on some rows, and answer all others. The teacher is simulated:
labels of which one in ten is changed, by a confusion of neighbouring labels, or twice as often where the
n-grams are unsure. Then rows are drawn 200 times, with the label of a person and without, and each draw gets
the figures of a report. Exit status: 0; 2 for bad input.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.errors import say
from app.ngrams.fit import fit_characters
from app.report.teacher import NO_LABEL, TaughtRows, share_interval, teacher_metrics
from app.tasks.probabilities import log_softmax
from app.text_table import text_table
from benchmarks.harness.command import command_parser, run_benchmark
from benchmarks.quality.texts import open_job, rows_by_part

JOBS = ("waimai_10k", "smp2020_ewect_usual", "csl13")
TRAIN_ROWS = 4000  # that the n-grams are fitted on
LABELLED_ROWS = 200  # with the label of a person, in each draw
OTHER_ROWS = 3000  # with that of the teacher only
DRAWS = 200
TEACHER_ACCURACY = 0.9
PRECISION_ABOVE_ACCURACY = 0.5  # of the way from the accuracy to 1 to the wanted precision
TEACHERS = ("confusion", "unsure")
HEADER = ["job", "teacher", "model", "wanted", "plain", "powered", "width", "holds", "found", "decided"]


def teacher_of(kind: str, labels: np.ndarray, confidence: np.ndarray, seed: int) -> np.ndarray:
    """Return labels of which nine in ten are right, (num_rows,). A wrong one is the next label, more often of
    even labels than of odd ones; or any other, twice as often for the less sure half of the rows."""
    generator = np.random.default_rng(seed)
    num_labels = int(labels.max()) + 1
    if kind == "confusion":
        weights = np.where(labels % 2 == 0, 1.5, 0.5)
        steps = np.ones(len(labels), np.int64)
    else:
        weights = np.where(confidence < np.median(confidence), 2.0, 1.0)
        steps = generator.integers(1, num_labels, len(labels))
    chances = (1 - TEACHER_ACCURACY) * weights / weights.mean()
    is_wrong = generator.random(len(labels)) < chances
    return np.where(is_wrong, (labels + steps) % num_labels, labels)


def draw(rows: TaughtRows, generator: np.random.Generator) -> TaughtRows:
    """Return rows drawn with replacement, of which the first have the label of a person."""
    chosen = generator.integers(0, len(rows.labels), LABELLED_ROWS + OTHER_ROWS)
    labels = rows.labels[chosen]
    labels[LABELLED_ROWS:] = NO_LABEL
    return TaughtRows(
        column=rows.column,
        labels=labels,
        teacher=rows.teacher[chosen],
        predicted=rows.predicted[chosen],
        confidence=rows.confidence[chosen],
    )


def holds(interval: list[float] | tuple[float, float], value: float) -> bool:
    return interval[0] <= value <= interval[1]


def simulate(rows: TaughtRows, num_draws: int, seed: int) -> dict:
    """Return how often the intervals and the thresholds of draws of rows hold for all of them."""
    generator = np.random.default_rng(seed)
    correct = rows.predicted == rows.labels
    accuracy = float(correct.mean())
    wanted = round(accuracy + PRECISION_ABOVE_ACCURACY * (1 - accuracy), 2)
    plain_holds = []
    powered_holds = []
    widths = []
    threshold_holds = []
    decided = []
    for _draw in range(num_draws):
        metrics = teacher_metrics(draw(rows, generator), precision=wanted)
        plain_holds.append(holds(metrics["model"]["interval"], accuracy))
        powered_holds.append(holds(metrics["powered"]["interval"], accuracy))
        widths.append(metrics["powered"]["relative_width"])
        if "threshold" not in metrics:
            # Nothing is promised then
            threshold_holds.append(True)
            continue
        is_sure = rows.confidence >= metrics["threshold"]["confidence"]
        threshold_holds.append(bool(correct[is_sure].mean() >= wanted))
        decided.append(float(is_sure.mean()))
    return {
        "accuracy": accuracy,
        "teacher_accuracy": float((rows.teacher == rows.labels).mean()),
        "accuracy_interval": share_interval(accuracy, len(correct)),
        "wanted": wanted,
        "plain_covers": float(np.mean(plain_holds)),
        "powered_covers": float(np.mean(powered_holds)),
        "width": float(np.mean(widths)),
        "threshold_holds": float(np.mean(threshold_holds)),
        "found": len(decided) / num_draws,
        "decided": float(np.mean(decided)) if decided else 0.0,
    }


def answered_rows(texts: list[str], labels: np.ndarray, train_rows: int) -> TaughtRows:
    """Return the rows that are not trained on, with the answers of n-grams of those that are; the teacher is
    to come."""
    order = np.random.default_rng(0).permutation(len(texts))
    train = order[:train_rows]
    others = order[train_rows:]
    num_labels = int(labels.max()) + 1
    model = fit_characters([texts[row] for row in train], labels[train], num_labels)
    log_probabilities = log_softmax(model.outputs([texts[row] for row in others]))
    return TaughtRows(
        column="teacher",
        labels=labels[others],
        teacher=labels[others],
        predicted=log_probabilities.argmax(axis=1),
        confidence=np.exp(log_probabilities.max(axis=1)),
    )


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Simulate each job and print the table."""
    lines = []
    for job in JOBS:
        say(f"{job} ...")
        _settings, dataset = open_job(f"configs/{job}.yaml")
        parts = rows_by_part(dataset).values()
        texts = sum([part.text.tolist() for part in parts], [])
        labels = np.concatenate([part.label.to_numpy() for part in parts])
        answered = answered_rows(texts, labels, TRAIN_ROWS)
        for kind in TEACHERS:
            teacher = teacher_of(kind, answered.labels, answered.confidence, seed=1)
            rows = replace(answered, teacher=teacher)
            figures = simulate(rows, DRAWS, seed=2)
            report[f"{job}, {kind}"] = figures
            shares = ("accuracy", "wanted", "plain_covers", "powered_covers", "width")
            shares += ("threshold_holds", "found", "decided")
            lines.append([job, kind, *(f"{figures[key]:.3f}" for key in shares)])
    print(f"\n{text_table(HEADER, lines)}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(run_benchmark(command_parser("teachers", __doc__), measure))
