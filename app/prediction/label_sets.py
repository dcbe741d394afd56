"""Predictions of any number of labels a row: the predictor, and what its rows look like in files and on the
terminal."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TextIO

import numpy as np

from ..data.rows import Row
from ..evaluation.multi_label.decisions import LabelRule, default_rule, rule_values, sigmoid
from ..evaluation.text_table import short_label
from .excel import write_sheet
from .output import MAX_LABELS, without_controls
from .predictor import Prediction, Predictor

if TYPE_CHECKING:
    from ..evaluation.logits_file import SplitLogits
    from ..evaluation.measures.selective import RowDecisions


class LabelSetPredictor(Predictor):
    """Finds the labels of rows in their order; its predictions have a list of labels, and sigmoid(logits) as
    probabilities."""

    has_label_sets = True

    def __init__(self, *arguments, **settings) -> None:
        super().__init__(*arguments, **settings)
        self.rule: LabelRule = default_rule(len(self.label_names))

    def label_rule(self) -> dict:
        return rule_values(self.rule, self.label_names)

    def decisions_on(self, dev: SplitLogits) -> RowDecisions:
        from ..evaluation.multi_label.abstaining import held_out_decisions

        return held_out_decisions(dev, self.rule)

    def predictions(self, rows: list[Row], logits: np.ndarray) -> list[Prediction]:
        self._check_finite(rows, logits)
        probabilities = sigmoid(logits)
        return [
            Prediction(row, [self.label_names[label] for label in np.flatnonzero(chosen)], by_label)
            for row, chosen, by_label in zip(
                rows, self.rule.decide(probabilities), probabilities, strict=True
            )
        ]


@dataclass(frozen=True)
class Abstention:
    """Label sets are accepted from the confidence `threshold` on; see `LabelRule.confidence`."""

    rule: LabelRule
    threshold: float

    def decision(self, probabilities: np.ndarray) -> dict[str, str | float]:
        """Return whether the label set of one row is accepted, and its confidence; `probabilities`
        (num_labels,)."""
        confidence = float(self.rule.confidence(probabilities[None])[0])
        decided = "accept" if confidence >= self.threshold else "abstain"
        return {"decision": decided, "confidence": round(confidence, 6)}


def _records(
    predictions: Iterable[Prediction], label_names: list[str], has_pairs: bool, abstention: Abstention | None
) -> Iterator[dict]:
    """Yield for each prediction the values of the columns of `write_csv`, by their names."""
    for row, labels, probabilities in predictions:
        record = {"line": row.line, "text": row.text} | ({"text_pair": row.pair} if has_pairs else {})
        record |= {"labels": labels} | ({} if abstention is None else abstention.decision(probabilities))
        by_label = zip(label_names, probabilities, strict=True)
        yield record | {f"p_{name}": round(float(value), 6) for name, value in by_label}


def _json_lists(records: Iterable[dict]) -> Iterator[dict]:
    return (record | {"labels": json.dumps(record["labels"], ensure_ascii=False)} for record in records)


def write_csv(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    abstention: Abstention | None = None,
) -> None:
    """Write predictions as CSV with a header: line, text, text_pair, labels, p_<label> for each label.

    The labels of a row are a JSON list, which training reads too. With an abstention, decision and confidence
    follow them.
    """
    writer = csv.writer(file)
    pairs = ["text_pair"] if has_pairs else []
    decided = [] if abstention is None else ["decision", "confidence"]
    writer.writerow(["line", "text", *pairs, "labels", *decided, *(f"p_{name}" for name in label_names)])
    for record in _json_lists(_records(predictions, label_names, has_pairs, abstention)):
        writer.writerow(f"{value:.6f}" if isinstance(value, float) else value for value in record.values())


def write_jsonl(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    abstention: Abstention | None = None,
) -> None:
    """Write predictions as JSON Lines, one object a line."""
    for record in _records(predictions, label_names, has_pairs, abstention):
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_xlsx(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    abstention: Abstention | None = None,
) -> None:
    """Write predictions as an Excel file with the columns of `write_csv`, all at the end."""
    records = _json_lists(_records(predictions, label_names, has_pairs, abstention))
    first = next(records, {})
    write_sheet(file, list(first), (record.values() for record in chain([first] if first else [], records)))


def write_lines(
    file: TextIO,
    predictions: Iterable[Prediction],
    label_names: list[str],
    has_pairs: bool,
    abstention: Abstention | None = None,
) -> None:
    """Write predictions for people: labels and text, then the most probable labels with their probabilities."""
    for row, labels, probabilities in predictions:
        ranked = sorted(zip(probabilities, label_names, strict=True), reverse=True)
        shown = [f"{short_label(name)} {probability:.4f}" for probability, name in ranked[:MAX_LABELS]]
        shown += [f"and {len(ranked) - MAX_LABELS:,} more labels"] if len(ranked) > MAX_LABELS else []
        names = ", ".join(map(short_label, labels)) or "(no label)"
        decided = "" if abstention is None else f"  {abstention.decision(probabilities)['decision']}"
        for line in (f"{names}{decided}  {' '.join(row.text.split())}", f"    {'  '.join(shown)}"):
            file.write(without_controls(line) + "\n")


LABEL_SET_WRITERS = {"csv": write_csv, "jsonl": write_jsonl, "xlsx": write_xlsx, "lines": write_lines}
