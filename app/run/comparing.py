"""Two finished runs -> which one is better on the rows of their reports."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from ..checkpoints.run_contents import PREDICTIONS
from ..errors import InputError
from ..evaluation.comparison import Comparison, compare_rows
from ..evaluation.logits_file import LOGITS, SplitLogits, read_logits
from ..evaluation.multi_label.comparison import compare_sets
from ..evaluation.multi_label.decisions import read_rule
from ..evaluation.multi_label.predictions import list_of
from ..evaluation.multi_label.row_sets import NAMES as SET_NAMES
from ..evaluation.multi_label.row_sets import RowSets

# A report is about the first of these that the run has
SPLITS = ("test", "dev", "train")
NAMES = {"accuracy": "accuracy", "macro_f1": "macro F1", "loss": "loss"} | SET_NAMES


def compare_runs(one: Path, other: Path) -> Comparison:
    """Return how run `other` does against run `one`; raises InputError unless both are about the same rows
    and labels."""
    (first, names), (second, other_names) = _report_logits(one), _report_logits(other)
    if names != other_names:
        raise InputError(
            f"the runs must have the same labels, found {len(names):,} in {one} and {len(other_names):,} in "
            f"{other}"
        )
    try:
        if first.labels.ndim == second.labels.ndim == 2:
            return compare_sets(first, second, tuple(read_rule(run, names) for run in (one, other)))
        return compare_rows(first, second, len(names))
    except InputError as error:
        raise InputError(f"{one}, {other}: {error}") from error


def _report_logits(run: Path) -> tuple[SplitLogits, list[str]]:
    path = run / LOGITS
    if not path.exists():
        raise InputError(f"{run}: a finished run with {LOGITS} is needed; train it again with this version")
    splits, names = read_logits(path)
    return next(splits[name] for name in SPLITS if name in splits), names


def render_comparison(one: Path, other: Path, found: Comparison) -> str:
    """Return the comparison as text."""
    width = max(len(NAMES[name]) for name in found.differences) + 1
    lines = [f"B = {other} against A = {one}, on the same {len(found.one):,} rows"]
    for name, (difference, (low, high)) in found.differences.items():
        lines.append(
            f"  {NAMES[name]:{width}} B - A {difference:+.4f}   95 % interval {low:+.4f} to {high:+.4f}"
        )
    rows = "rows with all labels right" if isinstance(found.one, RowSets) else "rows"
    lines.append(
        f"  {rows} won by B {len(found.won):,}, lost {len(found.lost):,}; McNemar's exact test: p = "
        f"{found.p_value:.4g}"
    )
    return "\n".join(lines)


def write_changed_rows(path: Path, one: Path, found: Comparison) -> None:
    """Write a CSV of the rows that B has won and lost, with the columns of predictions.csv that say which row
    it is.

    Raises InputError for a file that exists, or that cannot be written, and where the predictions of run
    `one` are missing.
    """
    _, names = _report_logits(one)
    outcome = dict.fromkeys(found.won.tolist(), "won") | dict.fromkeys(found.lost.tolist(), "lost")
    try:
        with (
            (one / PREDICTIONS).open(encoding="utf-8", newline="") as rows,
            path.open("x", encoding="utf-8", newline="") as file,
        ):
            reader, writer = csv.reader(rows), csv.writer(file)
            header = next(reader)
            # row_id, line, text, text_pair, label or labels
            kept = header.index("predicted")
            columns = _columns_of(0, found, names)
            writer.writerow(["outcome", *header[:kept], *columns])
            for position, row in enumerate(reader):
                if position in outcome:
                    writer.writerow(
                        [outcome[position], *row[:kept], *_columns_of(position, found, names).values()]
                    )
    except FileExistsError as error:
        raise InputError(f"--output {path}: there is such a file; choose another name") from error
    except (OSError, StopIteration, ValueError) as error:
        raise InputError(
            f"--output {path}: the rows of {one / PREDICTIONS} cannot be written there: {error}"
        ) from error


def _columns_of(position: int, found: Comparison, names: list[str]) -> dict[str, str]:
    """Return what both runs predict for a row, by the name of the column."""
    cells = {}
    both = {"a": found.one, "b": found.other}
    for run, scores in both.items():
        predicted = scores.predicted[position]
        is_set = isinstance(scores, RowSets)
        cells[f"predicted_{run}"] = (
            json.dumps(list_of(predicted, names), ensure_ascii=False) if is_set else names[int(predicted)]
        )
    for run, scores in both.items():
        if isinstance(scores, RowSets):
            cells[f"wrong_labels_{run}"] = str(scores.num_wrong[position])
        else:
            cells[f"probability_{run}"] = f"{scores.confidence[position]:.6f}"
    return cells
