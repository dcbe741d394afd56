"""Results of finished runs that were tested on the same rows: their scores, and tables of their figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..checkpoints.model_record import check_record
from ..report.logits_file import LOGITS, SplitLogits, check_same_rows, read_run, split_of_report
from ..report.metrics import BY_KEY
from ..tasks.decision_file import DECISION
from ..tasks.scores import Scores
from ..tasks.task import Task
from ..text_table import text_table

FORMATS = {float: "{:.4f}", int: "{:,}", str: "{}"}  # how a cell of a table is written, by its type


@dataclass(frozen=True)
class ScoredRuns:
    """Runs that were tested on the same `num_rows` rows of `split`; `scores` has an element for each run."""

    task: Task
    split: str
    num_rows: int
    scores: list[Scores]


def read_checked_run(run: Path) -> tuple[Task, dict[str, SplitLogits]]:
    """Return what `read_run` does, of a run whose logits and decision are as the training wrote them. Raises
    InputError where they were changed."""
    check_record(run, LOGITS, DECISION)
    return read_run(run)


def read_scored_runs(folders: list[Path]) -> ScoredRuns:
    """Read the logits of finished runs. Raises InputError where the runs were tested on different rows."""
    scores = []
    first_rows: SplitLogits | None = None
    for folder in folders:
        task, splits = read_checked_run(folder)
        split = split_of_report(splits)
        rows = splits[split]
        if first_rows is None:
            first_rows = rows
        check_same_rows(first_rows, rows)
        scores.append(task.score(rows.labels, rows.logits))
    return ScoredRuns(task, split, len(first_rows), scores)


def metric_names(keys: Iterable[str]) -> list[str]:
    """Return the names that people read of the metrics with these keys."""
    return [BY_KEY[key].name for key in keys]


def figure_table(heading: list[str], rows: dict[str, list[float | int | str]]) -> str:
    """Return a table as text: a line for each name in `rows`, with the values of that name."""
    lines = []
    for name, values in rows.items():
        cells = [FORMATS[type(value)].format(value) for value in values]
        lines.append([name, *cells])
    return text_table(["", *heading], lines)
