"""YAML files and the command line -> `Config`: all layers are merged first, then checked once.

An error names its source (file and line, or the command line), the key, what was found, and the nearest name
or value that is allowed.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import ValidationError

from ..errors import InputError, nearest, shorten, show
from ..words import _
from .help import TYPES, describe, help_text, members, rules_together
from .schema import GROUPS, HINTS, RANDOM, SETTINGS, VERB, Config, DataConfig, ModelConfig

SHORT_OPTIONS = {"resume": "output.resume", "verb": VERB}
MODEL = "model.config"
FOR_RANDOM_WEIGHTS = ("model.architecture", "model.vocab_file")


class Value(NamedTuple):
    """The value of a setting, and where it stands: its file, or the command line."""

    value: Any
    source: str | Path


def load_config(argv: list[str], command: str = "run_single.py", description: str = "") -> Config:
    """Return the configuration from the arguments `argv`; what they do not set has its default. Raises
    InputError naming the file or the command line, the key and the most similar setting. `--help` prints the
    settings that people use, `--help all` all, and exits."""
    # torch.distributed.launch adds --local-rank
    argv = [word for word in argv if not re.match(r"--local[-_]rank(=|$)", word)]
    if {"-h", "--help"}.intersection(argv):
        raise SystemExit(show(help_text(command, description, "all" in argv, Config())))
    config = _merged(*_read_arguments([word for word in argv if word != "--print_config"]))
    if "--print_config" in argv:
        raise SystemExit(show(yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)))
    return config


def config_of(settings: Mapping[str, Any]) -> Config:
    """Return the configuration of settings by their dotted names; the others have their defaults."""
    return _merged([], {str(name): Value(value, "settings") for name, value in settings.items()})


def load_data_settings(path: Path) -> DataConfig:
    """Return the `data` settings of a run's file; those that do not exist any more are left out."""
    layer = _read_layer(path)
    return _validated({name: layer[name] for name in HINTS if name in layer and name[:5] == "data."}).data


def plain_value(name: str, text: str) -> Any:
    """Return the value of a word for a setting: as YAML has it, or the text where that may be a string. A
    space is a string too, and not null."""
    try:
        value = _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    kinds = {get_origin(kind) or kind for kind in members(HINTS.get(name))}
    return text if str in kinds and (not text.strip() or type(value) not in kinds - {str}) else value


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is set twice instead of taking the last one."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key in (key for key, _value in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in keys:
                place = f"{self.name}, line {key.start_mark.line + 1}"
                raise InputError(f"{place}: '{shorten(key.value)}' is set twice; keep one of them")
            keys.add(key.value)
        return node


def read_yaml(path: Path) -> Any:
    """Return the values in a YAML file: mappings, lists, strings, numbers, true, false, null, dates. Raises
    InputError for a file that cannot be read, is not valid YAML, or sets a key twice."""
    if not path.is_file():
        found = "no file" if path.exists() else "not there"
        raise InputError(f"a YAML file is needed; {path} is {found}")
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        loader.name = str(path)
        return loader.get_single_data()
    except InputError:
        raise
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        # PyYAML raises ValueError for a date or a number that cannot be one, such as 2001-99-99
        problem = str(error).replace(f'"{path}"', "the file")
        raise InputError(
            f"{shorten(str(path), 200)} is not a readable YAML file: {problem}; save it in UTF-8, with "
            "strings in quotes"
        ) from error


def _read_layer(path: Path) -> dict[str, Value]:
    """Return the settings of a YAML file by their dotted names; an unknown group is one setting."""
    values = read_yaml(path)
    if values is None:
        raise InputError(f"{path}: there are no settings in the file; write some, or leave --config out")
    if not isinstance(values, dict):
        raise _refusal(Value(values, path), "the file", _(TYPES[dict]))
    layer = {}
    for group, settings in values.items():
        if group in GROUPS and isinstance(settings, dict):
            layer |= {f"{group}.{key}": Value(value, path) for key, value in settings.items()}
        elif group in GROUPS:
            raise _refusal(Value(settings, path), group, _(TYPES[dict]))
        else:
            layer[str(group)] = Value(settings, path)
    return layer


def _read_arguments(argv: list[str]) -> tuple[list[str], dict[str, Value]]:
    """Return the files and settings that are given as `--NAME VALUE`, `--NAME=VALUE` and `NAME=VALUE`."""
    files: list[str] = []
    options: dict[str, Value] = {}
    words, source = iter(argv), _("command line")
    for word in words:
        name, equals, text = word.removeprefix("--").partition("=")
        name = SHORT_OPTIONS.get(name, name)
        if not word.startswith("--") and name not in HINTS:
            said = _(
                "command line: unrecognized argument: {word}; a value needs the name of its setting before "
                "it, as in --data.train FILE (--help all lists them)"
            )
            raise InputError(said.format(word=shorten(word)))
        if name not in HINTS and name != "config" and not name.startswith(f"{MODEL}."):
            raise _no_setting(Value(text, source), name)
        value = text if equals else next(words, "--")
        # "$FILE" is empty where this variable is not set; only a prefix may be empty
        if (not value and name != "model.prefix") or (not equals and value.startswith("--")):
            raise InputError(_("command line: --{name} needs a value after it").format(name=name))
        if name == "config":
            files.append(value)
        else:
            options[name] = Value(plain_value(name, value), source)
    return files, options


def _merged(files: list[str], options: dict[str, Value]) -> Config:
    """Return the configuration of the files, later ones on top of earlier ones, and of options on top."""
    layers = [_read_layer(Path(path)) for path in files]
    layers.append(options)
    merged: dict[str, Value] = {}
    # The number of the last layer that sets each of them
    layer_of: dict[str, int] = {}
    for number, layer in enumerate(layers):
        for name, value in layer.items():
            if name.startswith(f"{MODEL}."):
                merged[MODEL] = _with_key(merged.get(MODEL), name.removeprefix(f"{MODEL}."), value)
            else:
                merged[name] = value
                layer_of[name] = number
    notes = _remove_overridden(merged, layer_of)
    config = _validated(merged)
    output = replace(config.output, name=config.output.name or _run_name(files, config.data.train))
    return replace(config, output=output, notes=tuple(notes))


def _with_key(before: Value | None, key: str, value: Value) -> Value:
    """Return the setting `model.config` with one more key."""
    keys = {}
    if before is not None and isinstance(before.value, dict):
        keys |= before.value
    keys[key] = value.value
    return Value(keys, value.source)


def _remove_overridden(merged: dict[str, Value], layer_of: dict[str, int]) -> list[str]:
    """Remove the settings of random weights from `merged` where a later layer names another model, as in
    `--config configs/tnews.yaml --model.name hfl/rbt3`; return a line for the log for each."""
    model = merged.get("model.name")
    if model is None or model.value == RANDOM:
        return []
    notes = []
    for name in FOR_RANDOM_WEIGHTS:
        if name in merged and layer_of[name] < layer_of["model.name"]:
            setting = merged.pop(name)
            usual = getattr(ModelConfig(), name.removeprefix("model."))
            if setting.value != usual:
                place = _place(setting.source, name)
                notes.append(
                    f"{name} {setting.value} ({place}) is not used: it is for random weights, and model.name "
                    f"is {model.value}."
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
    for name, one in layer.items():
        if name not in HINTS:
            raise _no_setting(one, name)
        group, _dot, key = name.partition(".")
        values[group][key] = one.value
    groups = {}
    for group, schema in GROUPS.items():
        try:
            groups[group] = schema(**values[group])
        except ValidationError as error:
            name = f"{group}.{error.errors()[0]['loc'][0]}"
            raise _refusal(layer[name], name, describe(HINTS[name])) from error
    config = Config(**groups)
    for holds, name, rule in rules_together(config):
        if not holds:
            group, _dot, key = name.partition(".")
            raise _refusal(layer.get(name) or Value(getattr(groups[group], key), ""), name, rule)
    return config


def _place(source: str | Path, name: str) -> str:
    """Return where a setting stands: a file with its line, or the command line."""
    place, node = str(source), yaml.compose(source.read_text("utf-8")) if isinstance(source, Path) else None
    for part in name.split(".", 1):
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value == part:
                place, node = f"{source}, line {key.start_mark.line + 1}", value
                break
    return place


def _no_setting(one: Value, name: str) -> InputError:
    """Return the error for a name that no setting has, with the one that was probably meant."""
    last = name.rpartition(".")[2].replace("-", "_")
    meant = next((one for one in SETTINGS if one.endswith(f".{last}")), name)
    # All settings of a group begin alike, so names must be more alike than usual
    near = nearest(meant, SETTINGS if "." in name or name in GROUPS else [*GROUPS, *SETTINGS], 0.7)
    said = _("{source}: there is no setting '{name}'{near} (--help all lists them)")
    return InputError(said.format(source=_place(one.source, name), name=name, near=near))


def _refusal(one: Value, name: str, rule: str) -> InputError:
    """Return the error for the value of a setting: its source, what it must be, and the nearest choice."""
    is_nothing = one.value in (None, "")
    found = _("nothing; give it a value") if is_nothing else shorten(str(one.value), 80)
    literals = [kind for kind in members(HINTS.get(name)) if get_origin(kind) is Literal]
    known = [value for kind in literals for value in get_args(kind)]
    # A value that is right for another task is no slip of the keyboard
    near = "" if one.value in known else nearest(one.value, known)
    said = _("{setting} must be {rule}, found {value}{near}")
    problem = said.format(setting=name, rule=rule, value=found, near=near)
    whole = _("{source}: {problem}").format(source=_place(one.source, name), problem=problem)
    return InputError(whole if one.source else problem)
