"""Each task has a form of labels."""

from typing import get_args, get_type_hints

from app.config.schema import DataConfig
from app.data.label_sets import LABEL_FORMS, label_form


def test_each_task_of_the_settings_has_a_form():
    tasks = get_args(get_type_hints(DataConfig)["task"])
    assert set(LABEL_FORMS) == set(tasks)


def test_a_checkpoint_without_a_task_has_one_label_a_row():
    assert label_form(None) is LABEL_FORMS["single_label"]
