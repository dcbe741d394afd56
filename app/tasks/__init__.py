"""Tasks: the kinds of answers that a model learns to give. Everything else asks one and names none."""

from ..errors import InputError, counted, excerpt
from .multi_label import MultiLabel
from .ordinal import Ordinal
from .paths import MultiPath, SinglePath
from .pretraining import Pretraining
from .regression import Regression
from .single_label import SingleLabel
from .task import Task

ALL_CLASSES: tuple[type[Task], ...] = (
    SingleLabel,
    MultiLabel,
    Ordinal,
    Regression,
    SinglePath,
    MultiPath,
    Pretraining,
)
TASK_CLASSES = {task_class.name: task_class for task_class in ALL_CLASSES}  # by data.task


def open_task(name: str, label_names: list[str]) -> Task:
    return TASK_CLASSES[name](label_names)


def unordered_task(has_several: bool, label_names: list[str]) -> Task:
    """Return the task of rows with one label, or with `has_several`, any number of them."""
    if has_several:
        return MultiLabel(label_names)
    return SingleLabel(label_names)


def task_of_model(problem_type: str | None, label_names: list[str]) -> Task:
    """Return the task of a checkpoint by `problem_type` of its config.json; raises InputError for an unknown
    one, and for a wrong number of labels. A checkpoint of another program may have no problem type; it is
    then one label a row."""
    if not problem_type:
        problem_type = SingleLabel.problem_type
    by_problem_type = {task_class.problem_type: task_class for task_class in ALL_CLASSES}
    task_class = by_problem_type.get(problem_type)
    if task_class is None:
        raise InputError(f"problem_type must be one that this program trains, found {excerpt(problem_type)}")
    num_labels = len(label_names)
    if task_class.predicts_number and num_labels > 1:
        rule = "give one number"
    elif not task_class.predicts_number and num_labels <= 1:
        rule = "choose from two or more labels"
    else:
        return task_class(label_names)
    raise InputError(
        f"the model must {rule}, found {counted(num_labels, 'label')} and problem_type {problem_type}"
    )
