"""Values of settings that earlier versions called otherwise, and settings that are gone. The files of their
runs still have them."""

from collections.abc import Mapping
from typing import Any

from .schema import RANDOM

# The new name of each earlier value, by the dotted name of the setting
RENAMED: dict[str, dict[str | None, str | None]] = {
    "data.quoting": {"none": "never"},
    "model.name": {None: RANDOM},
    "train.class_weights": {"none": None},
}


# Why a setting is gone, by its dotted name; unset it is still in files of earlier versions
REMOVED = {
    "train.r_drop": "R-Drop was removed: over four data sets it raised no figure on the mean, for twice the "
    "time; leave it out",
}


def with_present_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings, by their dotted names, with the values that they have today."""
    present = {}
    for name, value in settings.items():
        if name not in REMOVED or value is not None:
            present[name] = value
    for name, new_names in RENAMED.items():
        value = present.get(name)
        if name in present and isinstance(value, (str, type(None))):
            present[name] = new_names.get(value, value)
    return present
