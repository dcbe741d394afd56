"""Which labels of the train file may be wrong: label_issues.csv, and how many injected errors such a list
finds."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...config.schema import Config
from ...data.dataset import Dataset
from ...data.relabel import Fixes, configured_fixes, written_hash
from ...outcomes.injected_errors import measure_injected
from ...outcomes.label_issues import LabelIssues, find_issues, judge, rank_issues
from .cross_validation import fold_datasets, train_folds
from .filled_labels import filled_rows
from .out_of_fold import OutOfFold, gather_folds
from .series import Series

ISSUES, INJECTED = "label_issues.csv", "injected-errors-{fraction:g}"
# Rows with injected errors to test; more folds than needed for these are not trained a second time
ENOUGH_ERRORS = 100


def list_issues(folder: Path, found: OutOfFold) -> dict:
    """Write label_issues.csv, the least plausible label first; return the figures about it.

    Nothing is written where the models are no better than the most frequent answer.
    """
    scores = found.scores()
    judged = judge(found.outcome, scores)
    if not judged["can_judge"]:
        return judged
    issues = find_issues(found.outcome, scores, found.split.logits)
    write_issues(folder / ISSUES, found, issues)
    figures = judged | {"ranked": len(issues.order), "flagged": int(issues.flagged[issues.order].sum())}
    return figures | issues.patterns


def write_issues(path: Path, found: OutOfFold, issues: LabelIssues) -> None:
    """Write the ranked rows as CSV.

    The column `label` is for fixes, which data.relabel reads. What a person has filled in before stays: in
    the row of its text, or in its own row at the end where the text is not ranked any more.
    """
    table, split, outcome = found.table, found.split, found.outcome
    pairs = ["text_pair"] if table.has_pairs else []
    header = [
        "rank",
        "file",
        "line",
        "row_id",
        "text",
        *pairs,
        "given",
        "suggested",
        "score",
        "flagged",
        "text_hash",
        "label",
    ]
    filled = filled_rows(path, header)
    aside = path.with_name(f".{path.name}")
    with aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        carried = set()
        for rank, at in enumerate(issues.order.tolist(), 1):
            row = int(split.rows[at])
            texts = [table.text(row), *(table.pair(row) for _ in pairs)]
            given, suggested = (outcome.cell(labels[at]) for labels in (split.labels, found.predicted))
            about = [given, suggested, f"{issues.score[at]:.6f}", "yes" if issues.flagged[at] else "no"]
            line, text_hash = int(table.lines[row]), written_hash(int(split.hashes[at]))
            label = filled[text_hash][-1] if text_hash in filled else ""
            carried.add(text_hash)
            writer.writerow([rank, table.file_of(row), line, row, *texts, *about, text_hash, label])
        writer.writerows(row for text_hash, row in filled.items() if text_hash not in carried)
    aside.replace(path)


def measure_ranking(
    series: Series, config: Config, datasets: list[Dataset], found: OutOfFold, fraction: float
) -> tuple[dict, int]:
    """Inject errors into labels, train as many folds again as test enough of them; return how many the list
    finds, and the number of these folds.

    The wrong labels are a file of fixes in the series' folder, so the data stay as they are.
    """
    split, outcome = found.split, found.outcome
    at, wrong = outcome.inject_errors(split.labels, split.hashes, fraction, config.data.split_seed)
    if not len(at):
        return measure_injected(at, np.zeros(len(split), bool)).to_dict(), 0
    name, data = INJECTED.format(fraction=fraction), config.data
    path = series.folder / f"{name}.csv"
    write_injected(path, found, at, wrong, configured_fixes(data))
    words = ["--data.relabel", str(path)]
    has_error = np.isin(split.hashes, split.hashes[at])
    counts = np.cumsum(np.bincount(found.folds[has_error], minlength=len(datasets)))
    chosen = range(min(len(datasets), int(np.searchsorted(counts, ENOUGH_ERRORS)) + 1))
    changed = fold_datasets(replace(config, data=replace(data, relabel=str(path))), len(datasets))
    runs = train_folds(series, len(datasets), chosen, words, prefix=f"{name}-")
    again = gather_folds(runs, changed)
    tested = again.split
    order = rank_issues(outcome, again.scores(), tested.logits)
    result = measure_injected(order, np.isin(tested.hashes, split.hashes[at]))
    return result.to_dict(), len(chosen)


def write_injected(
    path: Path, found: OutOfFold, at: np.ndarray, wrong: np.ndarray, own: Fixes | None
) -> None:
    """Write the wrong labels as fixes, with those of the user's own fixes that are about other texts."""
    split = found.split
    injected = {
        int(split.hashes[row]): found.outcome.cell(label)
        for row, label in zip(at.tolist(), wrong, strict=True)
    }
    kept = dict(zip(own.hashes.tolist(), own.labels, strict=True)) if own else {}
    aside = path.with_name(f".{path.name}")
    with aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text_hash", "label"])
        writer.writerows([written_hash(key), label] for key, label in (kept | injected).items())
    aside.replace(path)
