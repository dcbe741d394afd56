"""What a search varies: the settings, and the values that a trial may draw for each."""

import math
import re
from dataclasses import dataclass
from typing import Any

import optuna
import yaml
from optuna.trial import BaseTrial

from ..config.allowed_values import member_types
from ..config.command_line import load_config
from ..config.schema import SETTINGS, TASKS, as_number
from ..errors import InputError
from ..program import file_here
from .series import as_arguments

LEARNING_RATE = "train.learning_rate"
USUAL = {LEARNING_RATE: "[1e-5, 5e-4, log]", "train.epochs": "[2, 8]"}
USUAL_LOSS = "[cross_entropy, focal]"  # for the tasks that have both
# A lucky seed is no better setting, best_metric judges the trials, and with other rows nothing is comparable
SEARCHED = re.compile(
    r"model\..*|train\.(?!seed|best_metric).*|data\.(max_length|long|max_windows|remove_spaces)"
)


@dataclass(frozen=True)
class SearchedSetting:
    """How a trial draws the value of a setting: the method of Optuna's trials that does it, and its
    arguments."""

    method: str
    options: dict[str, Any]

    def draw(self, trial: BaseTrial, name: str) -> Any:
        """Return the value of the setting `name` in a trial."""
        return getattr(trial, self.method)(name, **self.options)

    def has(self, value: Any) -> bool:
        """Return whether a trial may draw a value."""
        if "choices" in self.options:
            return value in self.options["choices"]
        return self.options["low"] <= value <= self.options["high"]


def with_rate(setting: SearchedSetting, rate: float) -> SearchedSetting:
    """Return a range of learning rates that has `rate`: the given one, or where it is outside of that, one
    that is as wide, with the rate in its middle, by orders of magnitude."""
    if setting.has(rate) or rate <= 0:
        return setting
    options = setting.options
    factor = math.sqrt(options["high"] / options["low"])
    return SearchedSetting(setting.method, options | {"low": rate / factor, "high": rate * factor})


def read_space(asked: dict[str, str], settings: list[str], task: str) -> dict[str, SearchedSetting]:
    """Return how each setting is drawn: from a range of two numbers, else by a choice. Without `asked`, they
    are the usual ones that are not among `settings`, the words for the trainer. Raises InputError for what is
    no range, cannot be searched, or has a value that is not allowed."""
    usual = usual_space(task)
    fixed = {word.removeprefix("--").partition("=")[0] for word in settings}
    searched = asked or {name: text for name, text in usual.items() if name not in fixed}
    both = fixed & set(searched or usual)
    if both:
        names = ", ".join(sorted(both))
        raise InputError(f"a setting is either fixed or searched, and {names} would be both; leave one out")
    space = {}
    trial = optuna.create_study().ask()
    for name, text in searched.items():
        try:
            values, is_log = read_values(text)
            space[name] = searched_setting(name, values, is_log)
            # Optuna checks the ends of a range
            space[name].draw(trial, name)
        except (ValueError, TypeError, LookupError, yaml.YAMLError) as error:
            raise InputError(
                f"the values of {name} to search must be a list, as in [1e-5, 5e-4], [1e-5, 5e-4, log] or "
                f"[cross_entropy, focal]; found {text}: {error}"
            ) from error
        for value in values:
            load_config([*settings, *as_arguments({name: value})])
        if not SEARCHED.fullmatch(name):
            page = file_here("docs/evaluation.md")
            raise InputError(f"--space {name}: this setting cannot be searched; {page} says why")
    return space


def usual_space(task: str) -> dict[str, str]:
    """Return what is searched where nothing is asked for, as texts of values."""
    if "focal" in TASKS[task].losses:
        return USUAL | {"train.loss": USUAL_LOSS}
    return USUAL


def read_values(text: str) -> tuple[list[Any], bool]:
    """Return the values of a list such as [1e-5, 5e-4, log], and whether it ends with "log". Raises
    ValueError for less than two different values, and other errors for what is no list."""
    values = [as_number(value) for value in yaml.safe_load(text)]
    is_log = values[-1] == "log"
    if is_log:
        values = values[:-1]
    num_different = len(set(map(repr, values)))
    if num_different < 2 or num_different < len(values):
        raise ValueError("two or more different values are needed")
    return values, is_log


def searched_setting(name: str, values: list[Any], is_log: bool) -> SearchedSetting:
    """Return how the setting `name` is drawn: two numbers are the ends of a range, of integers where the
    setting takes no other numbers; other values are a choice."""
    types = set(map(type, values))
    if len(values) != 2 or not types <= {int, float}:
        return SearchedSetting("suggest_categorical", {"choices": values})
    has_fractions = float in types or float in member_types(SETTINGS.get(name))
    method = "suggest_float" if has_fractions else "suggest_int"
    return SearchedSetting(method, {"low": values[0], "high": values[1], "log": is_log})
