"""The settings that a search varies: `[1e-5, 5e-4, log]` is a range, `[cross_entropy, focal]` a choice."""

import json
from pathlib import Path
from typing import Any

import yaml
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from ..config.command_line import load_config, read_yaml
from ..config.data_settings import as_number
from ..config.schema import SETTINGS, members
from ..errors import InputError, nearest

PREFIX = "--space."
SYNTAX = "[1e-5, 5e-4], [1e-5, 5e-4, log], [cross_entropy, focal] or [16, 32, choice]"
USUAL = {"train.learning_rate": [1e-5, 5e-4, "log"], "train.epochs": [2, 8]}
USUAL_LOSSES = ("cross_entropy", "focal")
# A lucky seed is no better setting, best_metric judges the trials, and with other rows nothing is comparable
NOT_SEARCHED = ("train.seed", "train.best_metric")
OF_DATA = ("data.max_length", "data.long", "data.max_windows", "data.remove_spaces")
KNOWN = [name for name in SETTINGS if name.startswith(("model.", "train.")) and name not in NOT_SEARCHED]
KNOWN += OF_DATA


def split_words(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the words `--space.NAME VALUE`, by name, and all other words."""
    spaces, others, words = {}, [], iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name.startswith(PREFIX):
            spaces[name.removeprefix(PREFIX)] = value if equals else next(words, None)
        else:
            others.append(word)
    return spaces, others


def read_space(
    path: Path | None, words: dict[str, Any], settings: list[str], losses: tuple[str, ...]
) -> dict[str, BaseDistribution]:
    """Return the values to search of a YAML file and of `words`, which win; the usual ones without any, of
    settings that are not among the words for the trainer, `settings`. `losses` are those of the task. Raises
    InputError for what is no range, or cannot be searched, and for a value that is not allowed."""
    written = (read_yaml(path) if path else {}) | words
    fixed = {word[2:].partition("=")[0] for word in settings if word.startswith("--")}
    if both := sorted(fixed & set(written)):
        raise InputError(
            f"a setting is either fixed or searched, and {', '.join(both)} is both; leave out one"
        )
    if not written:
        usual = USUAL | {"train.loss": [loss for loss in USUAL_LOSSES if loss in losses]}
        written = {name: usual[name] for name in usual if name not in fixed and len(usual[name]) > 1}
    if not written:
        raise InputError(
            "all that is usually searched is fixed; leave a setting out, or name one to search: "
            f"{PREFIX}train.warmup '[0, 0.2]'"
        )
    space = {name: parse_values(name, value) for name, value in written.items()}
    for name, one in space.items():
        for value in one.choices if isinstance(one, CategoricalDistribution) else (one.low, one.high):
            load_config([*settings, *as_words({name: value})])
            if name == "train.loss" and value not in losses:
                raise InputError(f"{name} must be one of {', '.join(losses)} for this task, found {value}")
    return space


def parse_values(name: str, value: Any) -> BaseDistribution:
    """Return the values of a setting to search, from YAML or from a word of the command line."""
    if name not in KNOWN and not name.startswith("model.config."):
        raise InputError(
            f"{PREFIX}{name}: there is no setting '{name}' to search{nearest(name, KNOWN)}; settings of "
            f"train and model are, but {' and '.join(NOT_SEARCHED)}, and of data {', '.join(OF_DATA)}"
        )
    try:
        items = yaml.safe_load(value) if isinstance(value, str) else value
        values = [as_number(one) for one in items] if isinstance(items, list) else []
        kind = values.pop() if values and values[-1] in ("log", "choice") else None
        if len({repr(one) for one in values}) != max(2, len(values)):
            raise ValueError("two or more different values are needed")
        is_range = len(values) == 2 and all(type(one) in (int, float) for one in values)
        if kind == "choice" or not is_range:
            if kind == "log":
                raise ValueError("log needs two numbers")
            return CategoricalDistribution(values)
        is_whole = all(isinstance(one, int) for one in values) and float not in members(SETTINGS.get(name))
        return (IntDistribution if is_whole else FloatDistribution)(*values, log=kind == "log")
    except (ValueError, yaml.YAMLError) as error:
        rule = f"the values of {name} to search must be a list, as in {SYNTAX}"
        raise InputError(f"{rule}; found {value}: {error}") from error


def draw(trial: Trial, name: str, values: BaseDistribution) -> Any:
    """Return a trial's value of a setting."""
    if isinstance(values, CategoricalDistribution):
        return trial.suggest_categorical(name, values.choices)
    suggest = trial.suggest_int if isinstance(values, IntDistribution) else trial.suggest_float
    return suggest(name, values.low, values.high, log=values.log)


def as_words(values: dict[str, Any]) -> list[str]:
    """Return settings as the command line has them."""
    words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return [word for name, value in words.items() for word in (f"--{name}", value)]
