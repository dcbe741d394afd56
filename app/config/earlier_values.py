"""Values of settings that earlier versions called otherwise. The files of their runs still have them."""

from collections.abc import Mapping
from typing import Any

from .schema import RANDOM

# The new name of each earlier value, by the dotted name of the setting
RENAMED: dict[str, dict[str | None, str | None]] = {
    "data.quoting": {"none": "never"},
    "model.name": {None: RANDOM},
    "train.class_weights": {"none": None},
}


def with_present_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings, by their dotted names, with the values that they have today."""
    present = dict(settings)
    for name, new_names in RENAMED.items():
        value = present.get(name)
        if name in present and isinstance(value, (str, type(None))):
            present[name] = new_names.get(value, value)
    return present
