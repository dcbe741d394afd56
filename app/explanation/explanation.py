"""A text -> why the classifier gives it its label, and whether that is an explanation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..data.read import BadRow, ReadOptions
from ..data.rows import text_rows
from ..errors import InputError, excerpt, listed, nearest
from .faithfulness import Faithfulness, measure_faithfulness
from .integrated_gradients import Attributions, attribute
from .plain_model import PlainModel
from .text_units import TokenisedText, tokenise


@dataclass(frozen=True)
class Explanation:
    """Why `label`, a class id, has its probability; `probabilities` (num_labels,) in the order of
    `label_names`.

    `predicted` are the class ids of the labels that the model gives to the text. Where the model gives a
    number instead, that number is the only "probability", and stands for its log-odds too.
    """

    text: TokenisedText
    label_names: list[str]
    probabilities: np.ndarray
    predicted: list[int]
    label: int
    attributions: Attributions
    test: Faithfulness
    is_number: bool = False

    @cached_property
    def values(self) -> np.ndarray:
        """The attribution of each unit, (num_units,) float64, in log-odds; above 0: for the label."""
        return unit_values(self.text, self.attributions.values)

    @property
    def is_explanation(self) -> bool:
        """Whether the attributions add up, and pass the deletion test."""
        return self.attributions.has_converged and self.test.holds


def unit_values(text: TokenisedText, values: np.ndarray) -> np.ndarray:
    """Return the sum of the tokens' `values`, (num_tokens,), for each unit."""
    return np.array([values[list(unit.tokens)].sum() for unit in text.units])


def explain(
    model: PlainModel,
    texts: tuple[str, ...],
    remove_spaces: bool = False,
    label: str | None = None,
    draws: int = 50,
    seed: int = 0,
) -> list[Explanation]:
    """Return the explanation of a text, or of a pair of texts, for a label (None: for each predicted one).

    Where no label is predicted, it is the most probable one that is explained. The same arguments give the
    same explanation. Raises InputError for an empty text and an unknown label.
    """
    chosen = None if label is None else [find_label(label, model.task.label_names)]
    [row] = text_rows([texts if len(texts) > 1 else texts[0]], ReadOptions(remove_spaces=remove_spaces))
    if isinstance(row, BadRow):
        raise InputError(f"the text cannot be explained: {row.problem}")
    text = tokenise(model.encoder, row, model.tokenizer.unk_token_id)
    probabilities = model.probabilities(text.input_ids, text.token_types)
    predicted = model.task.explained_labels(probabilities)
    positions = [position for unit in text.units for position in unit.tokens]
    explanations = []
    for label_id in chosen or predicted or [int(probabilities.argmax())]:
        attributions = attribute(model, text.input_ids, text.token_types, positions, label_id)
        values = unit_values(text, attributions.values)
        test = measure_faithfulness(model, text, values, label_id, draws, seed)
        names, is_number = model.task.label_names, not model.task.has_confidence
        explanations.append(
            Explanation(text, names, probabilities, predicted, label_id, attributions, test, is_number)
        )
    return explanations


def find_label(name: str, label_names: list[str]) -> int:
    """Return the id of a label; raises InputError with the nearest name for an unknown one."""
    if name not in label_names:
        raise InputError(
            f"--label must be a label of the model, found {excerpt(name)}{nearest(name, label_names)} "
            f"(known: {listed(label_names)})"
        )
    return label_names.index(name)
