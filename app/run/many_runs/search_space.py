"""The settings that a search varies: `[1e-5, 5e-4, log]` is a range, `[cross_entropy, focal]` a choice."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...config.command_line import load_config, read_yaml
from ...config.data_settings import as_number
from ...config.schema import SETTINGS, Config, members
from ...errors import InputError, nearest

PREFIX = "--space."
# The other settings of data decide which rows are dev: values on other rows cannot be compared
OF_DATA = ("max_length", "long", "max_windows", "remove_spaces")
NOT_SEARCHED = {
    "train.best_metric": "it judges the trials",
    "train.seed": "a lucky seed on dev is not a better setting; cross-validate --seeds shows their spread",
}
SYNTAX = "[1e-5, 5e-4], [1e-5, 5e-4, log], [cross_entropy, focal] or [16, 32, choice]"
# Of a search without a space; None: all losses of the task that contradict no other setting
USUAL = {
    "train.learning_rate": "[1e-5, 5e-4, log]",
    "train.epochs": "[2, 8]",
    "train.loss": None,
}


@dataclass(frozen=True)
class Range:
    """A setting with its values: from `low` to `high`, integers where both are; or one of `choices`."""

    name: str
    low: float = 0
    high: float = 0
    is_log: bool = False
    choices: tuple = ()

    def __str__(self) -> str:
        words = self.choices or (self.low, self.high, *(["log"] if self.is_log else []))
        is_choice_of_two = len(self.choices) == 2 and all(map(_is_number, self.choices))
        return f"[{', '.join(map(word, words))}{', choice' if is_choice_of_two else ''}]"

    def suggest(self, trial) -> Any:
        """Return the value of an Optuna trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        suggest = trial.suggest_int if isinstance(self.low, int) else trial.suggest_float
        return suggest(self.name, self.low, self.high, log=self.is_log)


def word(value: Any) -> str:
    """Return a value as the command line has it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def split_words(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the spaces of the words `--space.NAME VALUE`, by name, and all other words."""
    spaces, others, words = {}, [], iter(argv)
    for item in words:
        if not item.startswith(PREFIX):
            others.append(item)
            continue
        name, equals, value = item.removeprefix(PREFIX).partition("=")
        value = value if equals else next(words, None)
        if value is None or name in spaces:
            problem = "has no value" if value is None else "is given twice"
            raise InputError(f"{PREFIX}{name} {problem}; write it once, as in {PREFIX}{name} '{SYNTAX[:12]}'")
        spaces[name] = value
    return spaces, others


def read_space(
    path: Path | None, words: dict[str, str], settings: list[str], losses: tuple[str, ...]
) -> list[Range]:
    """Return the ranges of a YAML file and of `words`, which win; the usual ones where there are none.

    `settings` are the words for the trainer, `losses` the values of train.loss for its task. Raises
    InputError for what is no range, for a setting that is unknown, given in `settings` too, or that a search
    must not vary, and for a value that it does not allow.
    """
    written = (_flat(read_yaml(path), str(path)) if path else {}) | words
    if not written:
        return usual_space(settings, losses)
    fixed = set(written) & _given(settings)
    if fixed:
        raise InputError(
            f"a setting is either fixed or searched, and {', '.join(sorted(fixed))} is both; leave out "
            "one of them"
        )
    space = [parse_range(name, value) for name, value in written.items()]
    for one in space:
        for value in one.choices or (one.low, one.high):
            load_config([*settings, f"--{one.name}", word(value)])
            if one.name == "train.loss" and value not in losses:
                raise InputError(
                    f"train.loss must be one of {', '.join(losses)} for this task, found {value}"
                )
    return space


def usual_space(settings: list[str], losses: tuple[str, ...]) -> list[Range]:
    """Return the usual ranges of the settings that are fixed neither on the command line nor in a file."""
    files = [value for name, value in zip(settings, settings[1:], strict=False) if name == "--config"]
    files += [item.removeprefix("--config=") for item in settings if item.startswith("--config=")]
    fixed = _given(settings).union(*(_flat(read_yaml(Path(path)), path) for path in files))
    space = []
    for name, value in USUAL.items():
        allowed = tuple(choice for choice in losses if _is_allowed(settings, name, choice))
        if name not in fixed and (value or len(allowed) > 1):
            space.append(parse_range(name, value) if value else Range(name, choices=allowed))
    if not space:
        raise InputError(
            f"{', '.join(USUAL)} are searched where nothing else is said, and all of them are fixed; leave "
            f"one out, or name what to search: {PREFIX}train.learning_rate '[1e-5, 5e-4, log]'"
        )
    return space


def _is_allowed(settings: list[str], name: str, value: Any) -> bool:
    try:
        load_config([*settings, f"--{name}", word(value)])
    except InputError:
        return False
    return True


def _given(settings: list[str]) -> set[str]:
    return {re.split("[=+]", item[2:])[0] for item in settings if item.startswith("--")}


def _flat(values: Any, source: str) -> dict[str, Any]:
    """Return nested mappings with dotted names; a file may also have the dotted names themselves."""
    if not isinstance(values, dict):
        raise InputError(f"{source} must be a mapping of settings to their values, found {values!r}")
    flat = {}
    for name, value in values.items():
        inner = _flat(value, source) if isinstance(value, dict) else None
        flat |= (
            {f"{name}.{key}": one for key, one in inner.items()} if inner is not None else {str(name): value}
        )
    return flat


def parse_range(name: str, value: Any) -> Range:
    """Return the range of a setting, from YAML or from a word of the command line."""
    check_name(name)
    try:
        items = yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        items = None
    rule = f"the values of {name} to search must be two or more, as in {SYNTAX}"
    if not isinstance(items, list):
        raise InputError(f"{rule}; found {value}")
    values = [as_number(one) for one in items]
    last = values[-1] if values and values[-1] in ("log", "choice") else None
    values = values[: -1 if last else None]
    is_range = last != "choice" and len(values) == 2 and all(map(_is_number, values))
    if last == "log" and not is_range:
        raise InputError(f"{rule}; log needs two numbers, found {value}")
    if len({repr(one) for one in values}) != max(2, len(values)) or any(
        isinstance(one, list | dict) for one in values
    ):
        raise InputError(f"{rule}, and different; found {value}")
    if not is_range:
        return Range(name, choices=tuple(values))
    low, high = values
    if low >= high or (last and low <= 0):
        raise InputError(f"{rule}; low must be below high, and above 0 with log, found {value}")
    if not _takes_integers(name, values):
        low, high = float(low), float(high)
    return Range(name, low, high, last == "log")


def _takes_integers(name: str, values: list) -> bool:
    """Return whether a range has integers only: by the type of the setting, or of both ends."""
    return all(isinstance(one, int) for one in values) and float not in members(SETTINGS.get(name))


def check_name(name: str) -> None:
    """Raise InputError for what is no setting, and for one that a search must not vary."""
    group, _, key = name.partition(".")
    known = [one for one in SETTINGS if one.partition(".")[0] in ("data", "model", "train")]
    if name not in known and not name.startswith("model.config."):
        raise InputError(f"{PREFIX}{name}: there is no setting '{name}' to search{nearest(name, known)}")
    reason = NOT_SEARCHED.get(name)
    if group == "data" and key not in OF_DATA:
        reason = "with other rows the dev values could not be compared"
    if reason:
        raise InputError(f"{name} cannot be searched: {reason}")


def without_defaults(config: Config) -> dict[str, dict]:
    """Return the settings that are not the defaults, as a YAML file has them; not where and how it writes."""
    defaults, values = Config().to_dict(), config.to_dict()
    values["output"] = {key: values["output"][key] for key in ("name", "language")}
    changed = {
        group: {key: value for key, value in settings.items() if value != defaults[group][key]}
        for group, settings in values.items()
    }
    return {group: settings for group, settings in changed.items() if settings}
