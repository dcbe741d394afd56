"""Two runs compared on the rows that both were tested on."""

from pathlib import Path

from ..errors import InputError
from ..report.bootstrap import differences
from ..report.confidence import mcnemar
from ..report.logits_file import check_same_rows, split_of_report
from ..report.metrics import BY_KEY
from ..tasks.task import Task
from .results import read_checked_run


def compare_runs(run_a: Path, run_b: Path) -> str:
    """Return as text how run B does against run A. Raises InputError where their rows or labels differ."""
    task_a, splits_a = read_checked_run(run_a)
    task_b, splits_b = read_checked_run(run_b)
    rows_a = splits_a[split_of_report(splits_a)]
    rows_b = splits_b[split_of_report(splits_b)]
    task = common_task(task_a, task_b)
    if task is None:
        found_a = f"{task_a.name} with {len(task_a.label_names):,} labels in {run_a}"
        found_b = f"{task_b.name} with {len(task_b.label_names):,} labels in {run_b}"
        raise InputError(f"the runs must have the same data.task and labels, found {found_a} and {found_b}")
    check_same_rows(rows_a, rows_b)
    scores_a = task_a.score(rows_a.labels, rows_a.logits)
    scores_b = task_b.score(rows_b.labels, rows_b.logits)
    num_won = int((scores_b.correct & ~scores_a.correct).sum())
    num_lost = int((scores_a.correct & ~scores_b.correct).sum())
    p_value = mcnemar(num_won, num_lost)

    lines = [f"B = {run_b} against A = {run_a}, on the same {len(rows_a):,} rows"]
    by_metric = differences(task, scores_a, scores_b)
    width = max(len(BY_KEY[key].english) for key in by_metric) + 1
    for key, (difference, (low, high)) in by_metric.items():
        name = BY_KEY[key].english.ljust(width)
        lines.append(f"  {name} B - A {difference:+.4f}   95 % interval {low:+.4f} to {high:+.4f}")
    won_and_lost = f"{task.right_rows_name} won by B {num_won:,}, lost {num_lost:,}"
    lines.append(f"  {won_and_lost}; McNemar's exact test: p = {p_value:.4g}")
    return "\n".join(lines)


def common_task(task_a: Task, task_b: Task) -> Task | None:
    """Return the task whose metrics both runs have, or None. Runs with ordered labels can be compared with
    runs that have the same labels without order: the metrics are those of the ordered labels."""
    if task_a.answer_column != task_b.answer_column or task_a.label_names != task_b.label_names:
        return None
    if isinstance(task_a, type(task_b)):
        return task_a
    if isinstance(task_b, type(task_a)):
        return task_b
    return None
