"""YAML files and the command line -> `Config`: all layers are merged first, then checked once.

An error names its source (file and line, or the command line), the key, what was found, and the nearest name
or value that is allowed.
"""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import yaml
from pydantic import ValidationError

from ..errors import InputError, nearest, shorten, show
from .allowed_values import MAPPING, describe, literal_values, member_types
from .earlier_values import REMOVED, RENAMED, with_present_names
from .help import help_text
from .other_names import setting_meant
from .rules import RuleError, check_rules
from .schema import CONTROL_CHARACTER, GROUPS, HINTS, RANDOM, SETTINGS, VERB, Config, DataConfig, ModelConfig
from .yaml_files import line_of_key, parse_yaml, read_yaml, yaml_text

NONE = "none"  # the word that unsets a setting, whatever its case
COMMAND_LINE = "command line"  # where a setting stands, for messages
SHORT_OPTIONS = {"resume": "output.resume", "verb": VERB}
VALUES_OF_FLAGS = {"output.resume": "auto"}  # of options that may stand without a value
MODEL_CONFIG = "model.config"  # has a key of the model's configuration, as in --model.config.hidden_size 64
FOR_RANDOM_WEIGHTS = ("model.architecture", "model.vocab_file")
LAUNCHER_OPTION = re.compile(r"--local[-_]rank(=|$)")  # torch.distributed.launch adds it
# A setting is suggested from this share of common characters on. The share is higher than usual, because the
# settings of a group begin alike.
NAME_CUTOFF = 0.7


class Value(NamedTuple):
    """The value of a setting, and where it stands: its file, the command line, or nowhere ("")."""

    value: Any
    source: str | Path


def load_config(argv: list[str], program: str = "python run_single.py", description: str = "") -> Config:
    """Return the configuration from the arguments `argv`; what they do not set has its default. Raises
    InputError naming the file or the command line, the key and the most similar setting. `--help` prints the
    settings that people use, `--help all` all, and exits."""
    argv = [word for word in argv if not LAUNCHER_OPTION.match(word)]
    if "-h" in argv or "--help" in argv:
        text = help_text(program, description, is_whole="all" in argv, defaults=Config())
        raise SystemExit(show(text))
    settings = [word for word in argv if word != "--print_config"]
    files, options = _read_arguments(settings)
    config = _merged(files, options)
    if "--print_config" in argv:
        text = yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)
        raise SystemExit(show(text))
    return config


def config_of(settings: Mapping[str, Any]) -> Config:
    """Return the configuration of settings by their dotted names; the others have their defaults."""
    values = {str(name): Value(value, "settings") for name, value in settings.items()}
    return _merged([], values)


def load_data_settings(path: Path) -> DataConfig:
    """Return the `data` settings of a run's file; those that do not exist any more are left out."""
    recorded = {}
    for name, setting in _read_layer(path).items():
        if name in HINTS and name.startswith("data."):
            recorded[name] = setting.value
    settings = with_present_names(recorded)
    return _validated({name: Value(value, path) for name, value in settings.items()}).data


def plain_value(name: str, text: str) -> Any:
    """Return the value of a word for a setting: as YAML has it, or the text where that may be a string. A
    space is a string too, and not null; `none` is None."""
    if name in HINTS and unset(text) is None:
        return None
    try:
        value = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    types = {get_origin(member) or member for member in member_types(HINTS.get(name))}
    if str not in types:
        return value
    is_other_type = type(value) in types - {str}
    return value if is_other_type and text.strip() else text


def unset(value: Any) -> Any:
    """Return None for the word none, which unsets a setting as null does; any other value as it is. Inside of
    lists and of `model.config` it is a word: labels may be called none, and transformers has values of this
    name."""
    if isinstance(value, str) and value.strip().lower() == NONE:
        return None
    return value


def _read_layer(path: Path) -> dict[str, Value]:
    """Return the settings of a YAML file by their dotted names; an unknown group is one setting."""
    values = read_yaml(path)
    if values is None:
        raise InputError(f"{path}: there are no settings in the file; write some, or leave --config out")
    if not isinstance(values, dict):
        raise _refusal(Value(values, path), "the file", MAPPING)
    layer = {}
    for group, settings in values.items():
        if group not in GROUPS:
            layer[str(group)] = Value(settings, path)
        elif isinstance(settings, dict):
            layer |= {f"{group}.{key}": Value(value, path) for key, value in settings.items()}
        else:
            raise _refusal(Value(settings, path), group, MAPPING)
    return layer


def _read_arguments(argv: list[str]) -> tuple[list[str], dict[str, Value]]:
    """Return the files and settings that are given as `--NAME VALUE`, `--NAME=VALUE` and `NAME=VALUE`."""
    files: list[str] = []
    options: dict[str, Value] = {}
    words = deque(argv)
    while words:
        word = words.popleft()
        name, equals, value = word.removeprefix("--").partition("=")
        name = SHORT_OPTIONS.get(name, name)
        if name not in HINTS and name not in REMOVED:
            _check_option(word, name, Value(value, COMMAND_LINE))
        has_value = bool(equals)
        if not has_value and words and not _is_option(words[0]):
            value = words.popleft()
            has_value = True
        if not has_value:
            value = VALUES_OF_FLAGS.get(name, "")
        # "$FILE" is empty where this variable is not set; only a prefix may be empty
        if not value and not (has_value and name == "model.prefix"):
            raise _no_value(name)
        if name == "config":
            files.append(value)
        else:
            options[name] = Value(plain_value(name, value), COMMAND_LINE)
    return files, options


def _check_option(word: str, name: str, value: Value) -> None:
    """Raise InputError unless the word names --config or a key of the model's configuration."""
    if not word.startswith("--"):
        raise InputError(
            f"{COMMAND_LINE}: unrecognized argument: {shorten(word)}; a value needs the name of its setting "
            "before it, as in --data.train FILE (--help all lists them)"
        )
    if name != "config" and not name.startswith(f"{MODEL_CONFIG}."):
        raise _no_setting(value, name)


def _is_option(word: str) -> bool:
    """Return whether a word is an option, and not the value of the option before it."""
    name, equals, _value = word.partition("=")
    return word.startswith("--") or (bool(equals) and name in HINTS)


def _no_value(name: str) -> InputError:
    """Return the error for an option without a value, with what it may be."""
    values = describe(HINTS[name]) if name in HINTS else "a YAML file"
    return InputError(f"{COMMAND_LINE}: --{name} needs a value after it: {values}")


def _merged(files: list[str], options: dict[str, Value]) -> Config:
    """Return the configuration of the files, later ones on top of earlier ones, and of options on top."""
    layers = [_read_layer(Path(path)) for path in files]
    layers.append(options)
    merged: dict[str, Value] = {}
    last_layers: dict[str, int] = {}  # the number of the last layer that sets each of them
    for number, layer in enumerate(layers):
        for name, value in layer.items():
            if name.startswith(f"{MODEL_CONFIG}."):
                key = name.removeprefix(f"{MODEL_CONFIG}.")
                merged[MODEL_CONFIG] = _with_key(merged.get(MODEL_CONFIG), key, value)
            else:
                merged[name] = value
                last_layers[name] = number
    notes = _remove_overridden(merged, last_layers)
    config = _validated(merged)
    name = config.output.name or _run_name(files, config.data.train)
    output = replace(config.output, name=name)
    return replace(config, output=output, notes=tuple(notes), given=frozenset(merged))


def _with_key(before: Value | None, key: str, value: Value) -> Value:
    """Return the setting `model.config` with one more key."""
    keys = {}
    if before is not None and isinstance(before.value, dict):
        keys |= before.value
    keys[key] = value.value
    return Value(keys, value.source)


def _remove_overridden(merged: dict[str, Value], last_layers: dict[str, int]) -> list[str]:
    """Remove the settings of random weights from `merged` where a later layer names another model, as in
    `--config configs/tnews.yaml --model.name hfl/rbt3`; return a line for the log for each."""
    model = merged.get("model.name")
    if model is None or model.value == RANDOM:
        return []
    notes = []
    for name in FOR_RANDOM_WEIGHTS:
        if name in merged and last_layers[name] < last_layers["model.name"]:
            setting = merged.pop(name)
            value = unset(setting.value)
            default = getattr(ModelConfig(), name.removeprefix("model."))
            if value != default:
                source = _source_with_line(setting.source, name)
                notes.append(
                    f"{name} {value} ({source}) is not used: it is for random weights, and "
                    f"model.name is {model.value}."
                )
    return notes


def _run_name(files: list[str], train: str | list[str] | None) -> str:
    """Return the name of a run: that of its last configuration file, else of its training data, which may be
    a pattern: then of the folder."""
    if files:
        path = Path(files[-1])
    elif train and isinstance(train, list):
        path = Path(train[0])
    else:
        path = Path(train or "sample")
    for part in (path.stem, *reversed(path.parts)):
        if part and "*" not in part:
            return part
    return "files"


def _validated(layer: Mapping[str, Value]) -> Config:
    """Return the configuration of settings by their dotted names; raises InputError for a wrong one."""
    values: dict[str, dict] = {group: {} for group in GROUPS}
    for name, setting in layer.items():
        if name in REMOVED and unset(setting.value) is None:
            continue
        if name not in HINTS:
            raise _no_setting(setting, name)
        group, _dot, key = name.partition(".")
        values[group][key] = unset(setting.value)
    groups = {}
    for group, schema in GROUPS.items():
        try:
            groups[group] = schema(**values[group])
        except ValidationError as error:
            name = f"{group}.{error.errors()[0]['loc'][0]}"
            raise _refusal(layer[name], name, describe(HINTS[name])) from error
    config = Config(**groups)
    try:
        check_rules(config)
    except RuleError as error:
        setting = layer.get(error.name)
        if setting is None or unset(setting.value) is None:
            group, _dot, key = error.name.partition(".")
            setting = Value(getattr(groups[group], key), "")
        raise _refusal(setting, error.name, error.rule) from error
    return config


def _source_with_line(source: str | Path, name: str) -> str:
    """Return where a setting stands: a file with its line, or the command line."""
    line = line_of_key(source, name) if isinstance(source, Path) else None
    return str(source) if line is None else f"{source}, line {line}"


def _no_setting(setting: Value, name: str) -> InputError:
    """Return the error for a name that no setting has, with the one that was probably meant."""
    source = _source_with_line(setting.source, name)
    if name in REMOVED:
        return InputError(f"{source}: there is no setting '{name}' any more: {REMOVED[name]}")
    near = _nearest_setting(name)
    return InputError(f"{source}: there is no setting '{name}'{near} (--help all lists them)")


def _nearest_setting(name: str) -> str:
    """Return `; did you mean 'x'?` for the setting that was probably meant, or an empty string."""
    last_part = name.rpartition(".")[2].replace("-", "_")
    for known_name in SETTINGS:
        if known_name.endswith(f".{last_part}") and name not in GROUPS:
            return f"; did you mean '{known_name}'?"
    meant = setting_meant(last_part)
    if meant:
        return f"; did you mean '{meant}'?"
    if "." in name or name in GROUPS:
        return nearest(name, SETTINGS, NAME_CUTOFF)
    return nearest(name, [*GROUPS, *SETTINGS], NAME_CUTOFF)


def _refusal(setting: Value, name: str, rule: str) -> InputError:
    """Return the error for the value of a setting: its source, what it must be, and the nearest choice."""
    problem = f"{name} must be {rule}, found {_found(setting.value, name)}"
    if not setting.source:
        return InputError(problem)
    source = _source_with_line(setting.source, name)
    return InputError(f"{source}: {problem}")


def _found(value: Any, name: str) -> str:
    """Return the refused value of a setting in words, and what may help."""
    if unset(value) in (None, ""):
        return f"nothing; {_remedy_for_nothing(name)}"
    words = shorten(str(value), 80)
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, str) and CONTROL_CHARACTER.search(part) for part in parts):
        return f"{words}: in double quotes, YAML reads \\n as a line feed and \\t as a tab; use single quotes"
    choices = literal_values(HINTS.get(name))
    for part in parts:
        # A value that is right for another task is no slip of the keyboard
        if part not in choices:
            return words + nearest(part, choices)
    return words


def _remedy_for_nothing(name: str) -> str:
    """Return what to do about a setting that always has a value, and was set to none."""
    new_name = RENAMED.get(name, {}).get(NONE)
    if new_name:
        return f"give it a value (what was called {NONE} is called {new_name} now)"
    group, _dot, key = name.partition(".")
    if name not in SETTINGS:
        return "give it a value"
    default = yaml_text(getattr(GROUPS[group](), key))
    return f"give it a value, or leave it out for its default, {default}"
