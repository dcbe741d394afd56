"""Two finished runs -> which one is better on the rows of their reports."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ..checkpoints.run_folder import PREDICTIONS
from ..errors import InputError
from ..report.bootstrap import Interval, differences
from ..report.confidence import mcnemar
from ..report.logits_file import check_same_rows, read_run, split_of_report
from ..report.metrics import BY_KEY
from ..runtime.disk import check_new
from ..tasks.task import Scores, Task
from .series import rendered


@dataclass(frozen=True)
class Comparison:
    """The scores of runs B, `other`, and A, `one`, on the same rows. `won` and `lost` are positions of rows,
    increasing: B is right and A wrong, and the reverse. `differences` are those of the figures, B - A, with
    their 95 % paired bootstrap intervals."""

    task: Task
    one: Scores
    other: Scores
    won: np.ndarray
    lost: np.ndarray
    differences: dict[str, tuple[float, Interval]]


def compare(task: Task, one: Scores, other: Scores) -> Comparison:
    """Return how the scores `other` do against `one`; both are of the same rows, in the same order."""
    won, lost = np.flatnonzero(other.correct & ~one.correct), np.flatnonzero(one.correct & ~other.correct)
    return Comparison(task, one, other, won, lost, differences(task, one, other))


def compare_runs(one: Path, other: Path) -> Comparison:
    """Return how run `other` does against `one`; raises InputError unless rows and labels are the same."""
    (first, splits), (second, others) = read_run(one), read_run(other)
    rows, other_rows = splits[split_of_report(splits)], others[split_of_report(others)]
    # Ordered labels may be compared with the same ones without order
    common = first if isinstance(first, type(second)) else second
    is_alike = isinstance(common, type(first)) and isinstance(common, type(second))
    if not is_alike or first.label_column != second.label_column or first.label_names != second.label_names:
        found = [f"{task.name} with {len(task.label_names):,} labels" for task in (first, second)]
        raise InputError(
            f"the runs must have the same data.task and labels, found {found[0]} in {one} and {found[1]} in "
            f"{other}"
        )
    check_same_rows(rows, other_rows)
    scores = [task.score(of.labels, of.logits) for task, of in ((first, rows), (second, other_rows))]
    return compare(common, *scores)


def render_comparison(one: Path, other: Path, comparison: Comparison) -> str:
    """Return the comparison as text."""
    width = max(len(BY_KEY[key].english) for key in comparison.differences) + 1
    p_value = mcnemar(len(comparison.won), len(comparison.lost))
    return rendered("comparison", one=one, other=other, found=comparison, width=width, p_value=p_value)


def write_changed_rows(path: Path, run: Path, comparison: Comparison) -> None:
    """Write a CSV of the rows that B has won and lost: the columns of predictions.csv that name a row, and
    both predictions. Raises InputError for a file that exists or cannot be written."""
    check_new(path)
    at = np.sort(np.concatenate([comparison.won, comparison.lost]))
    try:
        rows = pd.read_csv(run / PREDICTIONS, dtype=str, keep_default_na=False)
        # row_id, file, line, text, text_pair, label or labels
        changed = rows.iloc[at, : rows.columns.get_loc("predicted")]
        changed.insert(0, "outcome", np.where(np.isin(at, comparison.won), "won", "lost"))
        for name, scores in (("predicted_a", comparison.one), ("predicted_b", comparison.other)):
            changed[name] = [comparison.task.cell(scores.predicted[row]) for row in at]
        changed.to_csv(path, index=False)
    except (OSError, LookupError, ValueError) as error:
        raise InputError(f"--output {path}: cannot be written, from {run / PREDICTIONS}: {error}") from error
