"""Two finished runs -> which one is better on the rows of their reports."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..checkpoints.run_folder import PREDICTIONS
from ..errors import InputError
from ..report.bootstrap import Interval, differences
from ..report.confidence import mcnemar
from ..report.logits_file import SplitLogits, check_same_rows, read_run, split_of_report
from ..report.metrics import BY_KEY
from ..tasks.task import Scores, Task


@dataclass(frozen=True)
class Comparison:
    """The scores of runs B, `other`, and A, `one`, on the same rows. `won` and `lost` are positions of rows,
    increasing: B is right and A wrong, and the reverse. `differences` are those of the figures, B - A, with
    their 95 % paired bootstrap intervals; `right_rows` is what a row is that is right."""

    one: Scores
    other: Scores
    won: np.ndarray
    lost: np.ndarray
    differences: dict[str, tuple[float, Interval]]
    right_rows: str

    @property
    def p_value(self) -> float:
        """How probable such a difference of won and lost is where both are equally good; two-sided."""
        return mcnemar(len(self.won), len(self.lost))


def compare(task: Task, one: Scores, other: Scores) -> Comparison:
    """Return how the scores `other` do against `one`; both are of the same rows, in the same order."""
    won, lost = np.flatnonzero(other.correct & ~one.correct), np.flatnonzero(one.correct & ~other.correct)
    return Comparison(one, other, won, lost, differences(task, one, other), task.right_rows)


def compare_runs(one: Path, other: Path) -> Comparison:
    """Return how run `other` does against `one`; raises InputError unless rows and labels are the same."""
    (first, first_rows), (second, second_rows) = _report_rows(one), _report_rows(other)
    # Ordered labels may be compared with the same ones without order
    common = first if isinstance(first, type(second)) else second
    are_alike = first.label_column == second.label_column
    if not (are_alike and isinstance(common, type(first)) and isinstance(common, type(second))):
        raise InputError(
            f"the runs must have the same data.task, found {first.name} in {one} and {second.name} in {other}"
        )
    if first.label_names != second.label_names:
        raise InputError(
            f"the runs must have the same labels, found {len(first.label_names):,} in {one} and "
            f"{len(second.label_names):,} in {other}"
        )
    try:
        check_same_rows(first_rows, second_rows)
    except InputError as error:
        raise InputError(f"{one}, {other}: {error}") from error
    scores = [of.score(rows.labels, rows.logits) for of, rows in ((first, first_rows), (second, second_rows))]
    return compare(common, *scores)


def _report_rows(run: Path) -> tuple[Task, SplitLogits]:
    task, splits = read_run(run)
    return task, splits[split_of_report(splits)]


def render_comparison(one: Path, other: Path, comparison: Comparison) -> str:
    """Return the comparison as text."""
    names = {key: BY_KEY[key].english for key in comparison.differences}
    width = max(map(len, names.values())) + 1
    lines = [f"B = {other} against A = {one}, on the same {len(comparison.one):,} rows"]
    for key, (difference, (low, high)) in comparison.differences.items():
        lines.append(
            f"  {names[key]:{width}} B - A {difference:+.4f}   95 % interval {low:+.4f} to {high:+.4f}"
        )
    lines.append(
        f"  {comparison.right_rows} won by B {len(comparison.won):,}, lost {len(comparison.lost):,}; "
        f"McNemar's exact test: p = {comparison.p_value:.4g}"
    )
    return "\n".join(lines)


def write_changed_rows(path: Path, one: Path, comparison: Comparison) -> None:
    """Write a CSV of the rows that B has won and lost: the columns of predictions.csv that name a row, and
    both predictions. Raises InputError for a file that exists or cannot be written, and without rows."""
    task, _ = read_run(one)
    changed = dict.fromkeys(comparison.won.tolist(), "won")
    changed |= dict.fromkeys(comparison.lost.tolist(), "lost")
    try:
        with (
            (one / PREDICTIONS).open(encoding="utf-8", newline="") as rows,
            path.open("x", encoding="utf-8", newline="") as file,
        ):
            reader, writer = csv.reader(rows), csv.writer(file)
            header = next(reader)
            # row_id, file, line, text, text_pair, label or labels
            kept = header.index("predicted")
            writer.writerow(["outcome", *header[:kept], "predicted_a", "predicted_b"])
            for position, row in enumerate(reader):
                if position in changed:
                    both = comparison.one, comparison.other
                    answers = [task.cell(scores.predicted[position]) for scores in both]
                    writer.writerow([changed[position], *row[:kept], *answers])
    except FileExistsError as error:
        raise InputError(f"--output {path}: there is such a file; choose another name") from error
    except (OSError, StopIteration, ValueError) as error:
        raise InputError(
            f"--output {path}: the rows of {one / PREDICTIONS} cannot be written there: {error}"
        ) from error
