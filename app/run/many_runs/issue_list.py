"""Which labels of the train file may be wrong: label_issues.csv, and how many injected errors it finds."""

import csv
import logging
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np

from ...config.schema import Config
from ...data.dataset import Dataset
from ...data.relabel import Fixes, configured_fixes, written_hash
from ...outcomes.injected_errors import measure_injected
from ...outcomes.label_issues import LabelIssues, find_issues, judge, rank_issues
from ...runtime.disk import whole_file
from .cross_validation import fold_datasets, train_folds
from .out_of_fold import OutOfFold, gather_folds
from .series import Series

logger = logging.getLogger(__name__)
ISSUES, INJECTED = "label_issues.csv", "injected-errors-{fraction:g}"
# Rows with injected errors to test; more folds than needed for these are not trained a second time
ENOUGH_ERRORS = 100


def list_issues(folder: Path, oof_rows: OutOfFold) -> dict:
    """Write label_issues.csv, the least plausible label first; return the figures about it. Nothing is
    written where the models are no better than the most frequent answer."""
    scores = oof_rows.scores()
    judged = judge(oof_rows.outcome, scores)
    if not judged["can_judge"]:
        return judged
    issues = find_issues(oof_rows.outcome, scores, oof_rows.split.logits)
    write_issues(folder / ISSUES, oof_rows, issues)
    figures = judged | {"ranked": len(issues.order), "flagged": int(issues.flagged[issues.order].sum())}
    return figures | issues.patterns


def write_issues(path: Path, oof_rows: OutOfFold, issues: LabelIssues) -> None:
    """Write the ranked rows as CSV, with a column `label` for fixes, which data.relabel reads. What a person
    has filled in stays, in the row of its text, or at the end where the text is not ranked any more."""
    table, split, outcome = oof_rows.table, oof_rows.split, oof_rows.outcome
    pairs = ["text_pair"] if table.has_pairs else []
    header = [*("rank", "file", "line", "row_id", "text"), *pairs]
    header += ["given", "suggested", "score", "flagged", "text_hash", "label"]
    filled = filled_rows(path, header)
    with whole_file(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        carried = set()
        for rank, at in enumerate(issues.order.tolist(), 1):
            row = int(split.rows[at])
            texts = [table.text(row), *(table.pair(row) for _ in pairs)]
            given, suggested = (outcome.cell(labels[at]) for labels in (split.labels, oof_rows.predicted))
            about = [given, suggested, f"{issues.score[at]:.6f}", "yes" if issues.flagged[at] else "no"]
            line, text_hash = int(table.lines[row]), written_hash(int(split.hashes[at]))
            label = filled[text_hash][-1] if text_hash in filled else ""
            carried.add(text_hash)
            writer.writerow([rank, table.file_of(row), line, row, *texts, *about, text_hash, label])
        writer.writerows(row for text_hash, row in filled.items() if text_hash not in carried)


def filled_rows(path: Path, header: list[str]) -> dict[str, list[str]]:
    """Return the rows of a list of issues, by text_hash, whose last column a person has filled in: they stay.
    A file in another form, as a spreadsheet may have saved it, is renamed, with a warning."""
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            is_ours = next(reader, None) == header
            rows = list(reader)
        if not is_ours or any(len(row) != len(header) for row in rows if row):
            raise ValueError("its columns are others than those of a list of label issues")
        place = header.index("text_hash")
        filled = [row for row in rows if row and row[-1].strip()]
        if len({row[place] for row in filled}) < len({(row[place], row[-1]) for row in filled}):
            raise ValueError("one text has two labels")
    except (ValueError, csv.Error) as error:
        names = (f"{path.stem}.kept-{number}{path.suffix}" for number in count(1))
        kept = next(name for name in map(path.with_name, names) if not name.exists())
        path.rename(kept)
        logger.warning("%s is kept as %s: %s", path, kept.name, error)
        return {}
    return {row[place]: row for row in filled}


def measure_ranking(
    series: Series, config: Config, datasets: list[Dataset], oof_rows: OutOfFold, fraction: float
) -> tuple[dict, int]:
    """Inject errors, as a file of fixes, and train as many folds again as test enough of them; return how
    many of them the list of issues finds, and the number of these folds."""
    split, outcome = oof_rows.split, oof_rows.outcome
    at, wrong = outcome.inject_errors(split.labels, split.hashes, fraction, config.data.split_seed)
    if not len(at):
        return measure_injected(at, np.zeros(len(split), bool)), 0
    name, data = INJECTED.format(fraction=fraction), config.data
    path = series.folder / f"{name}.csv"
    write_injected(path, oof_rows, at, wrong, configured_fixes(data))
    words = ["--data.relabel", str(path)]
    has_error = np.isin(split.hashes, split.hashes[at])
    counts = np.cumsum(np.bincount(oof_rows.folds[has_error], minlength=len(datasets)))
    chosen = range(min(len(datasets), int(np.searchsorted(counts, ENOUGH_ERRORS)) + 1))
    changed = fold_datasets(replace(config, data=replace(data, relabel=str(path))), len(datasets))
    runs = train_folds(series, len(datasets), chosen, words, prefix=f"{name}-")
    again = gather_folds(runs, changed)
    tested = again.split
    order = rank_issues(outcome, again.scores(), tested.logits)
    return measure_injected(order, np.isin(tested.hashes, split.hashes[at])), len(chosen)


def write_injected(
    path: Path, oof_rows: OutOfFold, at: np.ndarray, wrong: np.ndarray, own: Fixes | None
) -> None:
    """Write the wrong labels as fixes, with those of the user's own fixes that are about other texts."""
    split = oof_rows.split
    injected = {
        int(split.hashes[row]): oof_rows.outcome.cell(label)
        for row, label in zip(at.tolist(), wrong, strict=True)
    }
    kept = dict(zip(own.hashes.tolist(), own.labels, strict=True)) if own else {}
    with whole_file(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text_hash", "label"])
        writer.writerows([written_hash(key), label] for key, label in (kept | injected).items())
