"""YAML files and the command line -> `Config`: all layers are merged first, then checked once.

An error names its source (file and line, or the command line), the key, what was found, and the nearest name
or value that is allowed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import yaml
from pydantic import ValidationError

from ..errors import InputError, nearest, shorten, show
from .allowed_values import MAPPING, describe, literal_values, member_types
from .help import help_text
from .rules import RuleError, check_rules
from .schema import GROUPS, HINTS, RANDOM, SETTINGS, VERB, Config, DataConfig, ModelConfig
from .yaml_files import line_of_key, parse_yaml, read_yaml

COMMAND_LINE = "command line"  # where a setting stands, for messages
SHORT_OPTIONS = {"resume": "output.resume", "verb": VERB}
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


def load_config(argv: list[str], command: str = "run_single.py", description: str = "") -> Config:
    """Return the configuration from the arguments `argv`; what they do not set has its default. Raises
    InputError naming the file or the command line, the key and the most similar setting. `--help` prints the
    settings that people use, `--help all` all, and exits."""
    argv = [word for word in argv if not LAUNCHER_OPTION.match(word)]
    if "-h" in argv or "--help" in argv:
        text = help_text(command, description, is_whole="all" in argv, defaults=Config())
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
    layer = _read_layer(path)
    names = [name for name in HINTS if name in layer and name.startswith("data.")]
    return _validated({name: layer[name] for name in names}).data


def plain_value(name: str, text: str) -> Any:
    """Return the value of a word for a setting: as YAML has it, or the text where that may be a string. A
    space is a string too, and not null."""
    try:
        value = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    types = {get_origin(member) or member for member in member_types(HINTS.get(name))}
    if str not in types:
        return value
    is_other_type = type(value) in types - {str}
    return value if is_other_type and text.strip() else text


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
    words = iter(argv)
    for word in words:
        name, equals, text = word.removeprefix("--").partition("=")
        name = SHORT_OPTIONS.get(name, name)
        if name not in HINTS:
            _check_option(word, name, Value(text, COMMAND_LINE))
        value = text if equals else _next_value(words, name)
        # "$FILE" is empty where this variable is not set; only a prefix may be empty
        if not value and name != "model.prefix":
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


def _next_value(words: Iterator[str], name: str) -> str:
    """Return the next word; raises InputError where there is none, or it is an option."""
    value = next(words, None)
    if value is None or value.startswith("--"):
        raise _no_value(name)
    return value


def _no_value(name: str) -> InputError:
    return InputError(f"{COMMAND_LINE}: --{name} needs a value after it")


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
    return replace(config, output=replace(config.output, name=name), notes=tuple(notes))


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
            default = getattr(ModelConfig(), name.removeprefix("model."))
            if setting.value != default:
                source = _source_with_line(setting.source, name)
                notes.append(
                    f"{name} {setting.value} ({source}) is not used: it is for random weights, and "
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
        if name not in HINTS:
            raise _no_setting(setting, name)
        group, _dot, key = name.partition(".")
        values[group][key] = setting.value
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
        if setting is None:
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
    last_part = name.rpartition(".")[2].replace("-", "_")
    known_names = [known_name for known_name in SETTINGS if known_name.endswith(f".{last_part}")]
    meant = known_names[0] if known_names else name
    if "." in name or name in GROUPS:
        near = nearest(meant, SETTINGS, NAME_CUTOFF)
    else:
        near = nearest(meant, [*GROUPS, *SETTINGS], NAME_CUTOFF)
    source = _source_with_line(setting.source, name)
    return InputError(f"{source}: there is no setting '{name}'{near} (--help all lists them)")


def _refusal(setting: Value, name: str, rule: str) -> InputError:
    """Return the error for the value of a setting: its source, what it must be, and the nearest choice."""
    value = setting.value
    choices = literal_values(HINTS.get(name))
    # A value that is right for another task is no slip of the keyboard
    near = "" if value in choices else nearest(value, choices)
    if value in (None, ""):
        value_words = "nothing; give it a value"
    else:
        value_words = shorten(str(value), 80)
    problem = f"{name} must be {rule}, found {value_words}{near}"
    if not setting.source:
        return InputError(problem)
    source = _source_with_line(setting.source, name)
    return InputError(f"{source}: {problem}")
