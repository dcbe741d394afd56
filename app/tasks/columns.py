"""What files of predictions have of each row: probabilities, and whether an answer is sure enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.label_shares import ANSWER_PROBABILITY, BELOW_LEVEL, PREFIX

if TYPE_CHECKING:
    from .task import Task

MAX_COLUMNS = 50  # with more labels, files have no column for each
NUM_MOST_PROBABLE = 10  # labels that files have then
DIGITS = 6  # of a probability


def prediction_columns(
    task: Task, probabilities: np.ndarray, threshold: float | None = None
) -> dict[str, Any]:
    """Return what a file of predictions has of one row beside its answer, by column; `probabilities`
    (num_labels,). With a `threshold` of confidence also whether to accept the answer; of a single answer its
    margin, and of labels in a hierarchy the deepest part that is sure enough."""
    if task.predicts_number:
        return {}
    if not task.form.has_several:
        columns = single_answer_columns(task, probabilities, threshold)
    elif threshold is not None:
        confidence = float(task.confidence(probabilities[None])[0])
        columns = {
            "decision": decision_of(confidence, threshold),
            "confidence": round(confidence, DIGITS),
        }
    else:
        columns = {}
    return columns | probability_columns(task, probabilities)


def example_columns(task: Task, threshold: float | None = None) -> dict[str, Any]:
    """Return `prediction_columns` of a row, for their names and types: any probabilities show these."""
    return prediction_columns(task, np.full(len(task.label_names), 0.5), threshold)


def decision_of(confidence: float, threshold: float) -> str:
    if confidence >= threshold:
        return "accept"
    return "abstain"


def single_answer_columns(task: Task, probabilities: np.ndarray, threshold: float | None) -> dict[str, Any]:
    label = int(task.decide_by_probabilities(probabilities[None])[0])
    probability = float(probabilities[label])
    columns: dict[str, Any] = {ANSWER_PROBABILITY: round(probability, DIGITS)}
    if threshold is None:
        return columns
    columns["decision"] = decision_of(probability, threshold)
    if task.tree is not None:
        sure_label = task.label_names[label]
        sure_probability = probability
        if probability < threshold:
            sure_label, sure_probability = task.tree.deepest(probabilities, threshold)
            if sure_label:
                columns["decision"] = "partial"
        columns["sure_label"] = sure_label
        columns["sure_probability"] = round(sure_probability, DIGITS)
    next_probability = float(np.delete(probabilities, label).max())
    columns["margin"] = round(probability - next_probability, DIGITS)
    return columns


def probability_columns(task: Task, probabilities: np.ndarray) -> dict[str, Any]:
    """Return the probability of each label, and of each parent of a path, by the name of its column. Of many
    labels, one column has the most probable ones."""
    if task.predicts_number:
        return {}
    if len(task.label_names) > MAX_COLUMNS:
        return {"most_probable": most_probable(task, probabilities)}
    columns = {}
    for name, probability in zip(task.label_names, probabilities, strict=True):
        columns[PREFIX + name] = round(float(probability), DIGITS)
    tree = task.tree
    if tree is not None and not task.form.has_several:
        node_probabilities = probabilities @ tree.members
        for node in tree.parents:
            name = f"{PREFIX}{tree.name(node)}{tree.separator}{BELOW_LEVEL}"
            columns[name] = round(float(node_probabilities[node]), DIGITS)
    return columns


def most_probable(task: Task, probabilities: np.ndarray) -> list[dict[str, Any]]:
    """Return the names and probabilities of the most probable labels, the first one first."""
    order = np.argsort(-probabilities, kind="stable")
    labels = []
    for label in order[:NUM_MOST_PROBABLE].tolist():
        probability = round(float(probabilities[label]), DIGITS)
        labels.append({"label": task.label_names[label], "probability": probability})
    return labels


def ranked_labels(task: Task, probabilities: np.ndarray) -> np.ndarray:
    """Return the ids of all labels, (num_labels,): a single answer first, then the most probable."""
    ranked = np.argsort(-probabilities, kind="stable")
    if task.predicts_number or task.form.has_several:
        return ranked
    answer = task.decide_by_probabilities(probabilities[None])
    return np.concatenate([answer, ranked[ranked != answer]])


def answers_as_arrow(task: Task, labels: np.ndarray) -> Any:
    """Return labels or predictions, (num_rows, ...), as a column of a Parquet file."""
    import pyarrow as pa

    if task.predicts_number:
        return pa.array(np.asarray(labels, np.float64), pa.float64())
    answers = [task.answer(label) for label in labels]
    if task.form.has_several:
        return pa.array(answers, pa.list_(pa.string()))
    return pa.array(answers, pa.string())
