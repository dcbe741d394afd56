"""What was fitted on dev, in the folder of a run or of an exported model, and read from there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..runtime.disk import read_json, write_json
from .tree import HIERARCHY, Tree

if TYPE_CHECKING:
    from .task import Task

DECISION = "decision.json"
FITTED_ON = "dev"  # never test, which measures


def write_decision_file(folder: Path, task: Task, step: int, effect: dict) -> None:
    """Write the decision for the model of `step` into its run folder, with its `effect` on some rows. Where
    nothing was fitted there is no file."""
    values = task.state()
    if values:
        write_json(folder / DECISION, values | effect | {"step": step})
    else:
        # A file that is there was fitted for other weights
        (folder / DECISION).unlink(missing_ok=True)


def read_decision_file(folder: Path, task: Task, calibrate: bool = True) -> None:
    """Let a task decide as the run in `folder` does; without the file by the defaults and by config.json.
    Without `calibrate`, probabilities are as the model gives them. Raises InputError for a damaged file."""
    path = folder / DECISION
    values = values_in_config(folder, task.config_keys)
    try:
        if path.exists():
            values |= read_json(path, dict)
        if HIERARCHY in task.config_keys:
            task.tree = Tree(task.label_names, values.pop(HIERARCHY))
        if values or path.exists():
            task.load(values)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: what was fitted for the decision is needed, there or in config.json, and cannot be "
            f"read: {error!r}; restore it, or remove the file to decide without"
        ) from error
    if not calibrate:
        task.calibration = {}


def values_in_config(folder: Path, keys: tuple[str, ...]) -> dict:
    """Return the values that config.json has for `keys`."""
    path = folder / "config.json"
    if not path.exists():
        return {}
    config = read_json(path, dict)
    return {key: config[key] for key in keys if config.get(key) is not None}


def number_between(name: str, value: Any, lowest: float = 0, highest: float = 1) -> float:
    """Return a number that was read from a file; raises ValueError for another value."""
    is_number = type(value) in (int, float)
    if not (is_number and lowest <= value <= highest):
        raise ValueError(f"{name} must be from {lowest:g} to {highest:g}, found {value!r}")
    return float(value)
