"""The part of a decision that is fitted on dev: a run folder keeps it in a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from ..runtime.disk import read_json, write_json
from .outcome import Outcome

if TYPE_CHECKING:
    from ..evaluation.logits_file import SplitLogits


class FittedOutcome(Outcome):
    """An outcome whose decision may be fitted. `fitted_file` is what a run folder has of the fitted decision;
    `fitted_rule` and `fitted_remedy` are words for a damaged one."""

    fitted_file: str
    fitted_rule: str
    fitted_remedy: str

    def fit(self, dev: SplitLogits) -> None:
        """Fit the decision on the rows of dev: a temperature, thresholds, or nothing."""

    def fitted_values(self) -> dict:
        """Return what `fit` found as values for JSON; empty where nothing was fitted."""
        return {}

    def use_fitted(self, values: dict) -> None:
        """Decide by earlier `fitted_values`; raises ValueError, LookupError or TypeError for damaged ones."""

    def write_fitted(self, folder: Path, step: int, effect: dict) -> None:
        """Write what was fitted for the model of `step` into its run folder, with its `effect_of_fit`."""
        if values := self.fitted_values():
            write_json(folder / self.fitted_file, values | effect | {"step": step})

    def read_fitted(self, folder: Path, calibrate: bool = True) -> None:
        """Decide as the run in `folder` does; without its file by the defaults. Without `calibrate`,
        probabilities are as the model gives them. Raises InputError for a damaged file."""
        path = folder / self.fitted_file
        if not path.exists():
            return
        try:
            self.use_fitted(read_json(path))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{path}: {self.fitted_rule}, and this file cannot be read: {error!r}; {self.fitted_remedy}"
            ) from error

    def effect_of_fit(self, labels: np.ndarray, logits: np.ndarray, measured_on: str) -> dict:
        """Return what the fitted part changes on rows, for people; empty where nothing is to be said."""
        return {}
