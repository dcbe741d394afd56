"""Tasks: the kinds of answers that a model learns to give. Everything else asks one and names none."""

from ..errors import InputError, excerpt
from .multi_label import MultiLabel, MultiPath
from .ordinal import Ordinal
from .pretraining import Pretraining
from .regression import Regression
from .task import SinglePath, Task

KINDS = (Task, MultiLabel, Ordinal, Regression, SinglePath, MultiPath, Pretraining)
TASK_CLASSES = {kind.name: kind for kind in KINDS}  # by data.task


def open_task(name: str, label_names: list[str]) -> Task:
    return TASK_CLASSES[name](label_names)


def task_of_model(problem_type: str | None, label_names: list[str]) -> Task:
    """Return the task of a checkpoint by `problem_type` of its config.json; raises InputError for an unknown
    one, and for a wrong number of labels. A checkpoint of another program may have no problem type; it is
    then one label a row."""
    wanted = problem_type or Task.problem_type
    kind = next((kind for kind in KINDS if kind.problem_type == wanted), None)
    if kind is None:
        raise InputError(f"problem_type must be one that this program trains, found {excerpt(problem_type)}")
    if (len(label_names) > 1) != kind.has_confidence:
        rule = "choose from two or more labels" if kind.has_confidence else "give one number"
        found = f"found {len(label_names)} label(s) and problem_type {wanted}"
        raise InputError(f"the model must {rule}, {found}")
    return kind(label_names)
