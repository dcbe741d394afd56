"""Tasks: the kinds of answers that a model learns to give. Everything else asks one and names none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..config.schema import Config
    from ..data.dataset import Dataset
    from .task import Objective

# The keys are values of data.task
TASKS = {
    "single_label": ".task:Task",
    "multi_label": ".multi_label:MultiLabel",
    "ordinal": ".ordinal:Ordinal",
    "regression": ".regression:Regression",
    "single_path": ".paths:SinglePath",
    "multi_path": ".paths:MultiPath",
    "masked_language_modelling": ".pretraining:Pretraining",
}


def task_class(name: str) -> type[Objective]:
    module, _, kind = TASKS[name].partition(":")
    return getattr(import_module(module, __package__), kind)


def open_task(name: str, label_names: list[str]) -> Objective:
    return task_class(name)(label_names)


def task_of_model(problem_type: str | None, label_names: list[str]) -> Objective | None:
    """Return the task of a checkpoint by `problem_type` of its config.json; None for an unknown one. A
    checkpoint of another program may have no problem type; it is then one label a row."""
    wanted = problem_type or "single_label_classification"
    return next((of(label_names) for of in map(task_class, TASKS) if of.problem_type == wanted), None)


def prepare_task(config: Config, dataset: Dataset, tokenizer, device: torch.device) -> Objective:
    """Return the task of a run, ready to train; raises InputError where settings do not fit the data."""
    task = open_task(config.data.task, dataset.label_names)
    task.prepare(config, dataset, tokenizer, device)
    return task
