"""Labels that may be wrong, found by models that were trained without the rows that they judge."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ..errors import say
from ..program import file_here
from ..report.confidence import mcnemar
from ..report.drawn_rows import distinct_rows
from ..runtime.disk import write_frame
from ..tasks.scores import Scores
from ..tasks.task import Task
from ..words import _, ngettext
from .out_of_fold import OutOfFold, written_hash

MAX_P_VALUE = 0.05  # of the test whether models are better than the most frequent answer
FAR_OFF = 4.5  # median errors, about three standard deviations: a number further off may be wrong


@dataclass(frozen=True)
class FoundIssues:
    """What models say about the labels of rows. `order` (num_listed,) are the positions of the rows whose
    prediction is another one than their label, the least plausible label first. `plausibility` (num_rows,) is
    how plausible the label of each row is; `is_flagged` (num_rows,) bool, whether it is probably wrong."""

    order: np.ndarray
    plausibility: np.ndarray
    is_flagged: np.ndarray


def list_issues(path: Path, rows: OutOfFold, overwrite: bool = False) -> dict:
    """Write the rows whose label may be wrong as CSV, the least plausible label first; return the figures
    about it. Nothing is written where the models are no better than the most frequent answer. The column
    `label` is for fixes, which data.relabel reads; a list that is there may have some, and is replaced only
    with `overwrite`."""
    judged = judge(rows.scores)
    if not judged["can_judge"]:
        return judged
    issues = find_issues(rows.task, rows.scores, rows.split.logits)
    order = issues.order
    if path.exists() and not overwrite:
        say(f"{path} stays as it was: it may have labels that you filled in; --overwrite writes it again")
    else:
        write_frame(path, issue_table(rows, issues))
    return judged | {"ranked": len(order), "flagged": int(issues.is_flagged[order].sum())}


def issue_table(rows: OutOfFold, issues: FoundIssues) -> pd.DataFrame:
    """Return the columns of the list of issues, with a line for each row in `issues.order`."""
    task = rows.task
    order = issues.order
    row_ids = rows.split.rows[order].tolist()
    columns = {
        "rank": range(1, len(order) + 1),
        "file": list(map(rows.table.file_of, row_ids)),
        "line": rows.table.column("line", row_ids),
        "row_id": row_ids,
        "text": rows.table.column("text", row_ids),
    }
    if rows.table.has_pairs:
        columns["text_pair"] = rows.table.column("pair", row_ids)
    columns["given"] = list(map(task.cell_text, rows.split.labels[order]))
    columns["suggested"] = list(map(task.cell_text, rows.scores.predicted[order]))
    columns["score"] = [f"{plausibility:.6f}" for plausibility in issues.plausibility[order]]
    columns["flagged"] = np.where(issues.is_flagged[order], "yes", "no")
    columns["text_hash"] = list(map(written_hash, rows.split.hashes[order].tolist()))
    columns["label"] = ""
    return pd.DataFrame(columns)


def judge(scores: Scores) -> dict:
    """Return whether models may judge the labels of rows that they have not seen, `can_judge`: whether they
    are better than always giving one answer (the most frequent one, or the mean), by McNemar's test. Also
    their `accuracy`, and that of the one answer, `majority`."""
    if scores.error is None:
        (answers,), counts = distinct_rows(scores.labels)
        most_frequent = answers[counts.argmax()]
        is_same = scores.labels == most_frequent
        is_constant_right = is_same.reshape(len(scores), -1).all(axis=1)
    else:
        distance = np.abs(scores.labels - scores.labels.mean())
        is_constant_right = distance <= scores.figures["near_distance"]
    num_won = int((scores.correct & ~is_constant_right).sum())
    num_lost = int((is_constant_right & ~scores.correct).sum())
    return {
        "can_judge": num_won > num_lost and mcnemar(num_won, num_lost) < MAX_P_VALUE,
        "accuracy": float(scores.correct.mean()),
        "majority": float(is_constant_right.mean()),
    }


def find_issues(task: Task, scores: Scores, logits: np.ndarray) -> FoundIssues:
    """Return which labels may be wrong, by the scores and logits of models that were trained without these
    rows. A row is flagged where cleanlab's confident learning takes its label for wrong; with several labels
    a row, each of them, given or not, is judged by itself. A number is flagged where it is far off."""
    if scores.error is not None:
        plausibility = np.exp(-scores.error / (2 * scores.figures["near_distance"]))
        is_flagged = scores.error > FAR_OFF * np.median(scores.error)
    else:
        probabilities = task.probabilities(logits, calibrated=False)
        if scores.labels.ndim == 1:
            plausibility, is_flagged = judge_one_label(scores.labels, probabilities)
        else:
            plausibility, is_flagged = judge_several_labels(scores.labels, probabilities)
    wrong = np.flatnonzero(~scores.correct)
    order = wrong[np.argsort(plausibility[wrong], kind="stable")]
    return FoundIssues(order, plausibility, is_flagged)


def judge_one_label(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the plausibility of each label and whether it is flagged; `labels` (num_rows,) are class ids,
    `probabilities` (num_rows, num_labels)."""
    from cleanlab.filter import find_label_issues

    plausibility = probabilities[np.arange(len(labels)), labels]
    return plausibility, find_label_issues(labels, probabilities, n_jobs=1)


def judge_several_labels(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the plausibility of the least plausible label of each row, and whether any is flagged; `labels`
    (num_rows, num_labels) are 0 and 1, `probabilities` are of the same shape."""
    from cleanlab.filter import find_label_issues

    plausibility = np.where(labels, probabilities, 1 - probabilities).min(axis=1)
    is_flagged = np.zeros(len(labels), bool)
    for label in range(labels.shape[1]):
        has_label = labels[:, label].astype(int)
        # A label that all rows have, or none, has nothing to learn from
        if 0 < has_label.sum() < len(labels):
            chance = probabilities[:, label]
            is_flagged |= find_label_issues(has_label, np.c_[1 - chance, chance], n_jobs=1)
    return plausibility, is_flagged


def issues_text(figures: dict, answer_column: str) -> str:
    """Return what was found about labels in one or two sentences; `figures` are those of `list_issues`, and
    `answer_column` is the task's: "score" where labels are numbers."""
    are_numbers = answer_column == "score"
    if figures["can_judge"]:
        if are_numbers:
            sentence = ngettext(
                "{ranked:,} row is more than half a standard deviation off; flagged, because its error is "
                "far from the usual ones: {flagged:,}: label_issues.csv",
                "{ranked:,} rows are more than half a standard deviation off, {flagged:,} of them are "
                "flagged, whose error is far from the usual ones: label_issues.csv",
                figures["ranked"],
            )
        else:
            sentence = ngettext(
                "{ranked:,} row is predicted with another label than it has; flagged by confident learning: "
                "{flagged:,}: label_issues.csv",
                "{ranked:,} rows are predicted with other labels than they have, {flagged:,} of them are "
                "flagged by confident learning: label_issues.csv",
                figures["ranked"],
            )
        return sentence.format(**figures)
    if are_numbers:
        sentence = _(
            "The models are at most half a standard deviation off in {accuracy:.1%} of the rows, and so is "
            "the mean in {majority:.1%}."
        )
    else:
        sentence = _(
            "The models are right in {accuracy:.1%} of the rows, and so is the most frequent answer in "
            "{majority:.1%}."
        )
    advice = _(
        " Models that are not better than that cannot judge labels: no rows are listed. How to get a better "
        "model: {guide}"
    )
    return sentence.format(**figures) + advice.format(guide=file_here("docs/guide.md"))
