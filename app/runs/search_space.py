"""The settings that a search varies: `[1e-5, 5e-4, log]` is a range, `[cross_entropy, focal]` a choice."""

import json
import re
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
USUAL = {"train.learning_rate": [1e-5, 5e-4, "log"], "train.epochs": [2, 8], "train.loss": []}
# All others of data decide which rows are dev, so that values could not be compared
OF_DATA = ("data.max_length", "data.long", "data.max_windows", "data.remove_spaces")
NOT_SEARCHED = {
    "train.best_metric": "it judges the trials",
    "train.seed": "a lucky seed on dev is not a better setting; cross-validate --seeds shows their spread",
}


def split_words(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the words `--space.NAME VALUE`, by name, and all other words."""
    spaces, others, words = {}, [], iter(argv)
    for word in words:
        name, equals, value = word.removeprefix(PREFIX).partition("=")
        if not word.startswith(PREFIX):
            others.append(word)
        elif name in spaces:
            raise InputError(f"{word} is given twice; write it once")
        else:
            spaces[name] = value if equals else next(words, None)
    return spaces, others


def read_space(
    path: Path | None, words: dict[str, Any], settings: list[str], losses: tuple[str, ...]
) -> dict[str, BaseDistribution]:
    """Return the values to search of a YAML file and of `words`, which win; the usual ones without any.

    `settings` are the words for the trainer, `losses` the values of train.loss for its task. Raises
    InputError for what is no range, for a setting that is unknown, given in `settings` too, or that a search
    must not vary, and for a value that it does not allow.
    """
    fixed = {re.split("[=+]", word[2:])[0] for word in settings if word.startswith("--")}
    written = (_flat(read_yaml(path)) if path else {}) | words
    if both := sorted(fixed & set(written)):
        raise InputError(
            f"a setting is either fixed or searched, and {', '.join(both)} is both; leave out one"
        )
    if not written:
        files = [value for name, value in zip(settings, settings[1:], strict=False) if name == "--config"]
        files += [word.removeprefix("--config=") for word in settings if word.startswith("--config=")]
        fixed = fixed.union(*(_flat(read_yaml(Path(file))) for file in files))
        fitting = [loss for loss in losses if _fits(settings, loss)]
        usual = USUAL | {"train.loss": fitting}
        written = {name: usual[name] for name in usual if name not in fixed and len(usual[name]) > 1}
        if not written:
            raise InputError(
                f"{', '.join(USUAL)} are searched where nothing else is said, and all of them are fixed; "
                f"leave one out, or name what to search: {PREFIX}train.learning_rate '[1e-5, 5e-4, log]'"
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
    known = [one for one in SETTINGS if one.partition(".")[0] in ("data", "model", "train")]
    if name not in known and not name.startswith("model.config."):
        raise InputError(f"{PREFIX}{name}: there is no setting '{name}' to search{nearest(name, known)}")
    if name in NOT_SEARCHED or (name.startswith("data.") and name not in OF_DATA):
        reason = NOT_SEARCHED.get(name, "with other rows the dev values could not be compared")
        raise InputError(f"{name} cannot be searched: {reason}")
    try:
        items = yaml.safe_load(value) if isinstance(value, str) else value
        values = [as_number(one) for one in items] if isinstance(items, list) else []
        kind = values.pop() if values and values[-1] in ("log", "choice") else None
        if len({repr(one) for one in values}) != max(2, len(values)):
            raise ValueError("two or more different values are needed")
        is_range = len(values) == 2 and all(isinstance(one, int | float) for one in values)
        if kind == "choice" or not is_range or isinstance(values[0], bool):
            if kind == "log":
                raise ValueError("log needs two numbers")
            return CategoricalDistribution(values)
        if all(isinstance(one, int) for one in values) and float not in members(SETTINGS.get(name)):
            return IntDistribution(*values, log=kind == "log")
        return FloatDistribution(*values, log=kind == "log")
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
    return [word for name, value in values.items() for word in (f"--{name}", _word(value))]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _fits(settings: list[str], loss: str) -> bool:
    try:
        load_config([*settings, "--train.loss", loss])
    except InputError:
        return False
    return True


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings with dotted names; a file may also have the dotted names themselves."""
    if not isinstance(values, dict):
        return {prefix: values}
    inner = (_flat(value, f"{prefix}.{name}".strip(".")) for name, value in values.items())
    return {name: value for of_name in inner for name, value in of_name.items()}
