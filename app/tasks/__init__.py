"""Tasks: the kinds of answers that a model learns to give. Everything else asks one and names none."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import InputError, excerpt

if TYPE_CHECKING:
    from .task import Task

# The keys are values of data.task
TASK_CLASSES = {
    "single_label": ".task:Task",
    "multi_label": ".multi_label:MultiLabel",
    "ordinal": ".ordinal:Ordinal",
    "regression": ".regression:Regression",
    "single_path": ".task:SinglePath",
    "multi_path": ".multi_label:MultiPath",
    "masked_language_modelling": ".pretraining:Pretraining",
}


def task_class(name: str) -> type[Task]:
    module, _, kind = TASK_CLASSES[name].partition(":")
    return getattr(import_module(module, __package__), kind)


def open_task(name: str, label_names: list[str]) -> Task:
    return task_class(name)(label_names)


def task_of_model(problem_type: str | None, label_names: list[str]) -> Task:
    """Return the task of a checkpoint by `problem_type` of its config.json; raises InputError for an unknown
    one, and for a wrong number of labels. A checkpoint of another program may have no problem type; it is
    then one label a row."""
    wanted = problem_type or "single_label_classification"
    kinds = [kind for kind in map(task_class, TASK_CLASSES) if kind.problem_type == wanted]
    if not kinds:
        raise InputError(f"problem_type must be one that this program trains, found {excerpt(problem_type)}")
    if (len(label_names) > 1) != kinds[0].has_confidence:
        rule = "choose from two or more labels" if kinds[0].has_confidence else "give one number"
        raise InputError(
            f"the model must {rule}, found {len(label_names)} label(s) and problem_type {wanted}"
        )
    return kinds[0](label_names)
