"""A text -> what each of its tokens adds to the label's log-odds, by integrated gradients
(https://arxiv.org/abs/1703.01365), and whether that explains anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..data.bad_row import BadRow
from ..errors import InputError, excerpt, listed, nearest, needed
from ..ngrams.second_reader import SecondReader
from ..prediction.sources import text_rows
from ..tasks.columns import ranked_labels
from ..tasks.task import Task
from .deletion_test import DRAWS, MAX_P_VALUE, deletion_test
from .explained_model import ExplainedModel, rows_of_pass
from .tokenised_text import TokenisedText, tokenise

if TYPE_CHECKING:
    from captum.attr import IntegratedGradients

STEPS = 64  # of the integral, on the line from the neutral text to the text


@dataclass(frozen=True)
class SecondParts:
    """What a second reader adds to the logits: by each unit of the text, `of_units` (num_units, num_labels),
    and by the `remainder`, (num_labels,), which are its shift and the characters of no unit."""

    of_units: np.ndarray
    remainder: np.ndarray


@dataclass(frozen=True)
class Explanation:
    """Why `label`, a class id, has its probability. `probabilities` (num_labels,) are in the order of
    `label_names`; `predicted` are the class ids of the labels that the model gives to the text.

    `values` (num_units,) are what the units add to the label's log-odds, from `neutral`, those of a text of
    `[MASK]`, to `log_odds`. `p_value` is that of the deletion test, None for a text too short for it. With
    `is_number`, the model gives a number: it is the only "probability", and takes the place of log-odds too.
    """

    text: TokenisedText
    label_names: list[str]
    probabilities: np.ndarray
    predicted: list[int]
    label: int
    values: np.ndarray
    log_odds: float
    neutral: float
    p_value: float | None
    is_number: bool

    @property
    def is_explanation(self) -> bool:
        """Whether the attributions find what matters to the model better than chance."""
        return self.p_value is not None and self.p_value <= MAX_P_VALUE


def explain(
    model: ExplainedModel, texts: tuple[str, ...], label: str | None = None, draws: int = DRAWS
) -> list[Explanation]:
    """Return the explanation of a text, or of a pair of texts, for a label (None: for each predicted one;
    where none is predicted, for the most probable one). The same arguments give the same explanation. Raises
    InputError for an empty text, an unknown label, and where captum is not installed; TrainingError for a
    model whose logits are not finite."""
    task = model.task
    if label is not None and label not in task.label_names:
        raise InputError(
            f"--label must be a label of the model, found {excerpt(label)}{nearest(label, task.label_names)} "
            f"(known: {listed(task.label_names)})"
        )
    [row] = text_rows([texts], model.trained.reading.remove_spaces)
    if isinstance(row, BadRow):
        raise InputError(f"the text cannot be explained: {row.problem}")
    text = tokenise(model.encoder, row, model.tokenizer.unk_token_id)
    with needed("explain"):
        from captum.attr import IntegratedGradients
    parts = None
    integral = IntegratedGradients(model.log_odds)
    if model.second_reader is not None:
        parts = parts_of_second_reader(model.second_reader, text)
        integral = IntegratedGradients(model.log_odds_of_parts)
    added = added_to_texts(parts)
    tokens = torch.as_tensor(text.tokens[None], device=model.device)
    with torch.no_grad():
        added_to_text = None if added is None else model.tensor(added[:1])
        logits = model.logits(tokens[:, 0], tokens[:, 1], added_to_text)
    probabilities = task.probabilities(logits.double().cpu().numpy())[0]
    predicted = predicted_labels(task, probabilities)
    if label is not None:
        labels = [task.label_names.index(label)]
    elif predicted:
        labels = predicted
    else:
        labels = [int(probabilities.argmax())]
    neutral_tokens = neutral_text(text, model.neutral_id)
    explanations = []
    for label_id in labels:
        values = attributions(integral, model, text, neutral_tokens, label_id, parts)
        rows = [text.tokens, neutral_tokens]
        log_odds, neutral = model.log_odds_of_rows(rows, label_id, added).tolist()
        explanation = Explanation(
            text=text,
            label_names=task.label_names,
            probabilities=probabilities,
            predicted=predicted,
            label=label_id,
            values=values,
            log_odds=log_odds,
            neutral=neutral,
            p_value=deletion_test(model, text, values, label_id, draws),
            is_number=task.predicts_number,
        )
        explanations.append(explanation)
    return explanations


def predicted_labels(task: Task, probabilities: np.ndarray) -> list[int]:
    """Return the class ids that the model gives to a text, the most probable first. `probabilities`
    (num_labels,)."""
    answer = task.answer(task.decide_by_probabilities(probabilities[None])[0])
    names = answer if isinstance(answer, list) else [answer]
    ranked = ranked_labels(task, probabilities).tolist()
    return [label_id for label_id in ranked if task.label_names[label_id] in names]


def parts_of_second_reader(reader: SecondReader, text: TokenisedText) -> SecondParts:
    ranges = [(unit.start, unit.end) for unit in text.units]
    of_units, remainder = reader.parts(text.texts[0], ranges)
    return SecondParts(of_units, remainder)


def added_to_texts(parts: SecondParts | None) -> np.ndarray | None:
    """Return what a second reader adds to a text, and to its neutral text, (2, num_labels)."""
    if parts is None:
        return None
    return np.stack([parts.of_units.sum(axis=0) + parts.remainder, parts.remainder])


def neutral_text(text: TokenisedText, neutral_id: int) -> np.ndarray:
    """Return the tokens of a text, (2, num_tokens), with a neutral one in place of each that stands for
    characters. There the straight line of the integral begins."""
    tokens = text.tokens.copy()
    for unit in text.units:
        tokens[0, list(unit.tokens)] = neutral_id
    return tokens


def attributions(
    integral: IntegratedGradients,
    model: ExplainedModel,
    text: TokenisedText,
    neutral_tokens: np.ndarray,
    label: int,
    parts: SecondParts | None,
) -> np.ndarray:
    """Return what each unit adds to the log-odds of a label, (num_units,) float64: the integral of its
    gradients from the neutral tokens to those of the text. With a second reader, whose `parts` are linear in
    the units, also what it adds by them, on the same way."""
    both = torch.as_tensor(np.stack([text.tokens, neutral_tokens]), device=model.device)
    embeddings = model.model.get_input_embeddings()(both[:, 0])
    token_types = both[:1, 1]
    inputs = embeddings[:1]
    baselines = embeddings[1:]
    other_arguments: tuple = (token_types, label)
    if parts is not None:
        of_units = model.tensor(parts.of_units[None])
        inputs = (inputs, of_units)
        baselines = (baselines, torch.zeros_like(of_units))
        other_arguments = (token_types, label, model.tensor(parts.remainder[None]))
    gradients = integral.attribute(
        inputs,
        baselines,
        additional_forward_args=other_arguments,
        n_steps=STEPS,
        internal_batch_size=rows_of_pass(text.tokens.shape[1]),
    )
    values = np.zeros(len(text.units))
    if parts is not None:
        gradients, gradients_of_parts = gradients
        values += gradients_of_parts[0].double().sum(-1).cpu().numpy()
    token_values = gradients[0].double().sum(-1).cpu().numpy()
    return values + [token_values[list(unit.tokens)].sum() for unit in text.units]
