"""What a server says of one row: its labels, and how it was read."""

from __future__ import annotations

from ..data.rows import Row
from ..prediction.open_model import OpenedModel
from ..prediction.predictor import Prediction


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


def answer_on(prediction: Prediction, model: OpenedModel, top_k: int | None, beside: dict) -> list | dict:
    """Return the labels of one row by `Task.scored_label`, in the order of `ranked_labels`. With something
    `beside` them it is an object, which also has the `decision` on the row where the model has a threshold,
    as `predict` writes it, and of labels in a hierarchy the part that is sure."""
    task, probabilities = model.predictor.task, prediction.probabilities
    order = task.ranked_labels(probabilities)[:top_k]
    labels = [task.scored_label(label, probabilities[label], prediction.answer) for label in order]
    if not beside:
        return labels
    decision = {}
    if model.threshold is not None:
        columns = task.columns(probabilities, model.threshold)
        wanted = ("decision", "sure_label", "sure_probability", "sure_labels")
        decision = {name: columns[name] for name in wanted if name in columns}
    return {"labels": labels} | beside | decision
