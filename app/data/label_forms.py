"""The form of the labels of each task."""

from .label_form import LabelForm, NoLabels, OneLabel
from .label_lists import LabelLists
from .label_paths import OnePath, PathLists
from .number_labels import NumberLabels
from .ordered_labels import OrderedLabels

# By data.task
LABEL_FORMS = {
    "single_label": OneLabel(),
    "multi_label": LabelLists(),
    "ordinal": OrderedLabels(),
    "regression": NumberLabels(),
    "single_path": OnePath(),
    "multi_path": PathLists(),
    "masked_language_modelling": NoLabels(),
}


def label_form(task: str | None) -> LabelForm:
    """Return the form of a task's labels: one label a row for an unknown task, of another program."""
    return LABEL_FORMS.get(task, LABEL_FORMS["single_label"])
