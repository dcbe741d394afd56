"""Outcomes: the kinds of answers that a model learns to give. Everything else asks one and names none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..config.schema import Config
    from ..data.dataset import Dataset
    from .outcome import Outcome

# By data.task
OUTCOMES = {
    "single_label": ".single_label:SingleLabel",
    "multi_label": ".multi_label:MultiLabel",
    "ordinal": ".ordinal:Ordinal",
    "regression": ".regression:Regression",
    "single_path": ".paths:SinglePath",
    "multi_path": ".paths:MultiPath",
    "masked_language_modelling": ".masked_language_modelling:MaskedLanguageModelling",
}


def outcome_class(task: str) -> type[Outcome]:
    """Return the class of a value of data.task."""
    module, name = OUTCOMES[task].split(":")
    return getattr(import_module(module, __package__), name)


def open_outcome(task: str, label_names: list[str]) -> Outcome:
    """Return the outcome of a value of data.task, to predict or to look at predictions."""
    return outcome_class(task)(label_names)


def fitted_files() -> list[str]:
    """Return the names of the files with a fitted decision in a run folder, of all outcomes."""
    return [known.fitted_file for known in map(outcome_class, OUTCOMES) if known.has_labels]


def outcome_of_model(problem_type: str | None, label_names: list[str]) -> Outcome | None:
    """Return the outcome of a checkpoint by `problem_type` of its config.json; None for an unknown one. A
    checkpoint of another program may have no problem type; it is then one label a row."""
    wanted = problem_type or "single_label_classification"
    classes = map(outcome_class, OUTCOMES)
    return next((known(label_names) for known in classes if known.problem_type == wanted), None)


def prepare_outcome(config: Config, dataset: Dataset, tokenizer, device: torch.device) -> Outcome:
    """Return the outcome of a run, ready to train; raises InputError where settings do not fit the data."""
    outcome = open_outcome(config.data.task, dataset.label_names)
    outcome.prepare(config, dataset, tokenizer, device)
    return outcome
