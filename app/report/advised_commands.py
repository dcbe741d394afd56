"""The commands of advice: a run is trained again with a change, tested on every row, or gets more rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config.command_line import FOR_RANDOM_WEIGHTS
from .commands import path_word, quoted, training_command, verb_command

PLAIN_VALUE = re.compile("[^-=][^=]*$")  # is not taken for an option
# These parameters of the estimators have other names than their settings
PARAMETERS = {"model.name": "model"}


@dataclass(frozen=True)
class AdvisedCommands:
    """Commands for a shell. `given` are the settings that were given for the run, by dotted names."""

    given: Mapping[str, Any] = field(default_factory=dict)

    def training(self, changes: Mapping[str, Any]) -> str:
        """Return the command that trains with the settings `given` and `changes`, values by dotted names.
        Those of random weights are left out where the changes name a model."""
        settings = {**self.given, **changes}
        if "model.name" in changes:
            for name in ("model.config", *FOR_RANDOM_WEIGHTS):
                settings.pop(name, None)
        words = []
        for name, value in settings.items():
            text = option_text(value)
            if text and PLAIN_VALUE.match(text):
                words += [f"--{name}", quoted(text)]
            else:
                words.append(quoted(f"--{name}={text}"))
        return training_command(*words)

    def cross_validation(self, folder: Path) -> str:
        """Return the command of a cross-validation with the settings of the run in `folder`."""
        return five_runs(folder, "folds")

    def other_seeds(self, folder: Path) -> str:
        """Return the command that trains the run in `folder` again with five seeds."""
        return five_runs(folder, "seeds")

    def suggestion(self, folder: Path) -> str:
        """Return the command that chooses rows of new.csv by the run in `folder`."""
        return verb_command("suggest", path_word(folder), "new.csv", "next.csv")


@dataclass(frozen=True)
class CallsOfPython(AdvisedCommands):
    """Calls for the program that has the rows of a run: `classifier` is its estimator, `texts` and `labels`
    are what it was fitted on. Commands would need a file of these rows."""

    def training(self, changes: Mapping[str, Any]) -> str:
        parameters = []
        for name, value in changes.items():
            parameter = PARAMETERS.get(name, name.rpartition(".")[2])
            text = repr(value) if name == "model.name" else option_text(value)
            parameters.append(f"{parameter}={text}")
        parameters.append("output_dir='another-run'")
        return f"classifier.set_params({', '.join(parameters)}).fit(texts, labels)"

    def cross_validation(self, folder: Path) -> str:
        return "cross_val_predict(classifier.set_params(output_dir=None), texts, labels, cv=5)"

    def other_seeds(self, folder: Path) -> str:
        fitted = "clone(classifier).set_params(random_state=seed, output_dir=None).fit(texts, labels)"
        return f"[{fitted}.score(new_texts, new_labels) for seed in range(5)]"

    def suggestion(self, folder: Path) -> str:
        return "classifier.predict_proba(texts_of_new_csv).max(axis=1).argsort()[:50]"


def five_runs(folder: Path, what_differs: str) -> str:
    """Return the command of five runs with the settings of the run in `folder`, of which the `folds` or the
    `seeds` differ."""
    settings = path_word(folder / "config.yaml")
    output = path_word(f"{folder}-5-{what_differs}")
    return verb_command("cross-validate", f"--{what_differs} 5", "--config", settings, "--output.dir", output)


def option_text(value: Any) -> str:
    """Return the value of a setting as it stands on the command line, where a text stands as it is."""
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    return json.dumps(value, ensure_ascii=False)
