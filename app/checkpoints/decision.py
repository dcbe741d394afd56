"""The decision of the best model so far: what was fitted on dev for its weights, such as thresholds.

Its file is beside the weights, and must never stay there with other weights. So it is removed just before new
weights take the place of the old ones, and the new decision is written after that.
"""

import shutil
from contextlib import suppress
from copy import copy
from pathlib import Path

import numpy as np

from ..data.dataset import Split
from ..errors import InputError
from ..ngrams.second_reader import remove_second_reader, step_of_second_reader
from ..report.logits_file import logits_of
from ..runtime.disk import read_json, whole_file, write_json
from ..tasks.decision_file import DECISION
from ..tasks.task import Task


def fit_decision(task: Task, dev: Split | None, logits: np.ndarray | None, step: int) -> dict:
    """Return the decision for the model of `step` as values for JSON, empty where the task has none. It is
    fitted on the rows of `dev`, of which `logits` (num_rows, any) are that model's; None without dev rows."""
    # Evaluations during the training compare models without a decision, so the task of the run stays as it is
    fitted = copy(task)
    if dev is not None:
        rows = logits_of(dev, logits)
        fitted.fit(rows.labels, rows.logits, rows.hashes)
    values = fitted.state()
    if not values:
        return {}
    return values | {"step": step}


def remove_decision(folder: Path) -> None:
    """Remove what was fitted on dev for the weights in `folder`, and what says that they have a second
    reader."""
    (folder / DECISION).unlink(missing_ok=True)
    remove_second_reader(folder)


def write_decision(folder: Path, values: dict) -> None:
    """Write a decision of `fit_decision` beside the weights in `folder`."""
    if values:
        write_json(folder / DECISION, values)


def step_of_decision(folder: Path) -> int | None:
    """Return of which step the model is that the decision in `folder` is for; None where there is none, or it
    cannot be read."""
    with suppress(InputError, LookupError, TypeError):
        return read_json(folder / DECISION)["step"]
    return None


def is_of_other_weights(folder: Path, source: Path, step: int) -> bool:
    """Return whether the decision in `folder` has to go before the weights of `step` come from `source`: it
    is for another step, or missing while `source` has it. A damaged file is kept where nothing can replace
    it: reading it is an error, which says more than its absence. A second reader of another step has to go
    too."""
    if step_of_second_reader(folder) not in (None, step):
        return True
    decision_step = step_of_decision(folder)
    if decision_step == step:
        return False
    return decision_step is not None or step_of_decision(source) == step


def copy_decision(source: Path, folder: Path, step: int) -> None:
    """Copy the decision for the model of `step` from one folder to another, where there is one."""
    if step_of_decision(source) != step:
        return
    with (source / DECISION).open("rb") as file, whole_file(folder / DECISION) as target:
        shutil.copyfileobj(file, target)
