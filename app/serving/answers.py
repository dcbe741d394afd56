"""What a server says of one row: its labels, and how it was read."""

from __future__ import annotations

from ..data.rows import Row
from ..prediction.open_model import OpenedModel
from ..prediction.predictor import Prediction
from ..tasks.task import Task


def row_texts(row: Row) -> tuple[str, ...]:
    """Return the text of a row, or both of a pair."""
    return (row.text,) if row.pair is None else (row.text, row.pair)


def how_read(model: OpenedModel, row: Row) -> dict:
    """Return what the model reads of a row: its tokens, with the special ones, in how many windows; and of
    each text its number of characters, and which of them, from 0, each range [first, last) has."""
    texts, tokens = row_texts(row), model.predictor.tokenize([row])
    windows = tokens.windows().rows
    ranges = model.predictor.encoder.characters_read(texts)
    of_texts = [{"characters": len(text), "ranges": one} for text, one in zip(texts, ranges, strict=True)]
    return {
        "tokens": len(tokens.rows[0]),
        "windows": len(windows),
        "cut": bool(tokens.cut[0]),
        "texts": of_texts,
    }


def ranked(prediction: Prediction, task: Task, top_k: int | None) -> list[dict]:
    """Return the labels of one row by `Task.scored_label`, in the order of `ranked_labels`."""
    probabilities = prediction.probabilities
    order = task.ranked_labels(probabilities)[:top_k]
    return [task.scored_label(label, probabilities[label], prediction.answer) for label in order]


def how_sure(prediction: Prediction, task: Task, threshold: float) -> dict:
    """Return the `decision` on one row (accept, abstain or partial) as `predict` writes it, and of labels in
    a hierarchy the part that is sure."""
    columns = task.columns(prediction.probabilities, threshold)
    wanted = ("decision", "sure_label", "sure_probability", "sure_labels")
    return {name: columns[name] for name in wanted if name in columns}
