"""YAML files and the command line -> `Config`: all layers are merged first, then checked once.

An error names its source (file and line, or the command line), the key, what was found, and the nearest name
or value that is allowed.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import ValidationError

from ..errors import InputError, nearest, shorten
from .data_settings import DataConfig
from .help import help_text, show
from .schema import GROUPS, HINTS, SETTINGS, VERB, Config, describe, members, rules_together
from .shipped import DEFAULT_CONFIGS, default_config, is_about_the_source
from .train_settings import MAX_THREADS

SHORT_OPTIONS = {"resume": "output.resume", "verb": VERB}
# What a person means who gives a group of settings one value
MAIN_SETTINGS = {"data": "data.train", "model": "model.name", "output": "output.dir"}
# What other tools call the same
OTHER_NAMES = {
    **dict.fromkeys(("lr", "learning_rate"), "train.learning_rate"),
    **dict.fromkeys(("epoch", "epochs", "num_epochs", "num_train_epochs"), "train.epochs"),
    **dict.fromkeys(("batch", "bs", "batch_size", "train_batch_size"), "train.batch_size"),
    **dict.fromkeys(("per_device_train_batch_size",), "train.batch_size"),
    **dict.fromkeys(("gradient_accumulation_steps",), "train.accumulation_steps"),
    **dict.fromkeys(("max_len", "max_seq_length", "max_seq_len", "seq_len"), "data.max_length"),
    **dict.fromkeys(("model_name_or_path", "model_name", "pretrained"), "model.name"),
    **dict.fromkeys(("output_dir", "save_dir"), "output.dir"),
    **dict.fromkeys(("train_file", "data_path", "train_path"), "data.train"),
    **dict.fromkeys(("dev_file", "validation_file", "valid_file"), "data.dev"),
    **dict.fromkeys(("warmup_ratio", "warmup_steps"), "train.warmup"),
    "test_file": "data.test",
    "gpu": "train.device",
}
COMMAND_LINE = "command line"


class Value(NamedTuple):
    """The value of a setting, and where it stands: a file and its line, or the command line."""

    value: Any
    source: str


def load_config(
    argv: list[str] | None = None, command: str = "run_single.py", description: str = ""
) -> Config:
    """Return the configuration from the arguments `argv` (default: the command line).

    Where no `--config` names a model, the file of `default_config` is read first. Raises InputError naming
    the file or the command line, the key and the most similar setting. `--help` prints the settings that
    people use, `--help all` all of them, and exits.
    """
    argv = _clean_arguments(sys.argv[1:] if argv is None else argv)
    for flag in ("-h", "--help"):
        if flag in argv:
            topics = list(takewhile(lambda word: word[:1] != "-", argv[argv.index(flag) + 1 :]))
            defaults = _validated(_read_layer(default_config(set())))
            raise SystemExit(show(help_text(command, description, topics, defaults)))
    files, options = _read_arguments([word for word in argv if word != "--print_config"])
    layers = [_read_layer(Path(path)) for path in files]
    if not any(is_about_the_source(name) for layer in layers for name in layer):
        files = [str(default_config(set(options))), *files]
        layers = [_read_layer(Path(files[0])), *layers]
    merged: dict[str, Value] = {}
    for layer in (*layers, options):
        for name, one in layer.items():
            group, key, inner = (*name.split(".", 2), "")[:3]
            if inner:
                before = merged[f"{group}.{key}"].value if f"{group}.{key}" in merged else {}
                one = one._replace(value={**(before if isinstance(before, dict) else {}), inner: one.value})
            merged[f"{group}.{key}"] = one
    config = _with_run_name(_validated(merged), files[-1])
    if "--print_config" in argv:
        raise SystemExit(show(yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)))
    return config


def take_number(argv: list[str], option: str) -> tuple[list[str], int | None]:
    """Return the arguments without `option N` or `option=N`, and N; raises InputError unless it is from 1."""
    kept, number, words = [], None, iter(argv)
    for word in words:
        name, equals, text = word.partition("=")
        if name != option:
            kept.append(word)
            continue
        text = text if equals else next(words, "nothing")
        if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
            raise InputError(f"{COMMAND_LINE}: {option} must be from 1 to {MAX_THREADS:,}, found {text}")
        number = int(text)
    return kept, number


def load_data_settings(path: Path) -> DataConfig:
    """Return the `data` settings of a run's file; those that do not exist any more are left out."""
    layer = _read_layer(path, is_strict=False)
    return _validated({name: one for name, one in layer.items() if name[:5] == "data."}).data


def read_yaml(path: Path) -> tuple[str, Any]:
    """Return the text of a YAML file and the values in it: mappings, lists, strings, numbers, true, false,
    null, dates. Raises InputError for a file that cannot be read, is not valid YAML, or sets a key twice."""
    text, _, values = _parse_yaml(path)
    return text, values


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is set twice instead of taking the last one."""

    path: Path | str

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Return the next mapping, unless a key is set twice in it."""
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in keys:
                raise InputError(
                    f"{self.path}, line {key.start_mark.line + 1}: '{shorten(key.value)}' is set twice; keep "
                    "one of them"
                )
            keys.add(key.value)
        return node


def _load(text: str, path: Path | str) -> tuple[yaml.Node | None, Any]:
    """Return the node of a YAML text, which has its lines, and the values in it."""
    loader = _Loader(text)
    loader.path = path
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _parse_yaml(path: Path) -> tuple[str, yaml.Node | None, Any]:
    """Return the text of a YAML file, its node with the lines, and the values in it."""
    try:
        if not path.is_file():
            problem = (
                "a directory" if path.is_dir() else "a pipe or a device" if path.exists() else "not there"
            )
            raise InputError(f"a YAML file is needed; {path} is {problem}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{shorten(str(path), 200)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a readable YAML file: {error}; save it in UTF-8") from error
    try:
        return text, *_load(text, path)
    except yaml.YAMLError as error:
        problem = str(error).replace('"<unicode string>"', "the file")
        raise InputError(f"{path} is not a readable YAML file: {problem}") from error
    except InputError:
        raise
    except RecursionError as error:
        raise InputError(
            f"{path} is not a readable YAML file: too many levels; close all brackets"
        ) from error
    except ValueError as error:
        # What looks like a date or a number and is not one: 2001-99-99
        raise InputError(f"{path} is not a readable YAML file: {error}; put strings in quotes") from error


def _read_layer(path: Path, is_strict: bool = True) -> dict[str, Value]:
    """Return the settings of a YAML file by their dotted names. Raises InputError for an unknown one, unless
    not `is_strict`: then it is left out."""
    _, node, values = _parse_yaml(path)
    if values is None and is_strict:
        raise InputError(f"{path}: there are no settings in the file; write some, or leave --config out")
    layer = {}
    for group, key_node, settings_node, settings in _items(node, values, "the file", str(path)):
        source = f"{path}, line {key_node.start_mark.line + 1}"
        if group not in GROUPS:
            if is_strict:
                known = nearest(group, GROUPS) or f" (known: {', '.join(GROUPS)})"
                raise InputError(f"{source}: there is no setting '{group}'{known}")
            continue
        for key, inner_node, _, value in _items(settings_node, settings, group, source):
            name, source = f"{group}.{key}", f"{path}, line {inner_node.start_mark.line + 1}"
            if name in HINTS:
                layer[name] = Value(value, source)
            elif is_strict:
                keys = [one.partition(".")[2] for one in SETTINGS if one.startswith(f"{group}.")]
                near = nearest(key, keys).replace("'", f"'{group}.", 1)
                known = near or f" (known: {', '.join(f'{group}.{one}' for one in keys)})"
                raise InputError(f"{source}: there is no setting '{name}'{known}")
    return layer


def _items(node: Any, values: Any, name: str, source: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield each key of a mapping, the nodes of key and value, and the value; raises InputError for another
    value than a mapping."""
    if not isinstance(values, dict):
        found = "nothing" if values is None else shorten(str(values))
        raise InputError(f"{source}: {name} must be a mapping of keys to values, found {found}")
    nodes = {key.value: (key, value) for key, value in node.value}
    for (key, value), (key_node, value_node) in zip(values.items(), nodes.values(), strict=False):
        yield str(key), key_node, value_node, value


def _clean_arguments(argv: list[str]) -> list[str]:
    """Return the arguments, short options written out, without torch.distributed.launch's `--local-rank`."""
    kept = [word for word in argv if not re.match(r"--local[-_]rank(=|$)", word)]
    return [
        re.sub(r"^--(\w+)(?==|$)", lambda name: f"--{SHORT_OPTIONS.get(name[1], name[1])}", word)
        for word in kept
    ]


def _read_arguments(argv: list[str]) -> tuple[list[str], dict[str, Value]]:
    """Return the configuration files and the settings of the words `--NAME VALUE`, `--NAME=VALUE` and
    `NAME=VALUE`."""
    files: list[str] = []
    options: dict[str, Value] = {}
    words = iter(argv)
    for word in words:
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--") and name not in HINTS:
            raise InputError(
                f"{COMMAND_LINE}: unrecognized argument: {shorten(word)}; a value needs the name of its "
                "setting before it, as in --data.train FILE (--help all lists them)"
            )
        if name != "config":
            _check_option(name)
        value = text if equals else next(words, "--")
        if not equals and value.startswith("--"):
            raise InputError(f"{COMMAND_LINE}: --{name} needs a value after it")
        if name == "config":
            files.append(value)
        else:
            options[name] = Value(_plain_value(name, value), COMMAND_LINE)
    return files, options


def _check_option(name: str) -> None:
    """Raise InputError, with the most similar setting, for an option that is no setting."""
    if name in HINTS or name.startswith("model.config."):
        return
    if name in GROUPS:
        meant = MAIN_SETTINGS.get(name)
        near = f"; did you mean --{meant}?" if meant else ""
        raise InputError(
            f"{COMMAND_LINE}: {name} is a group of settings, not a setting{near} (--help all lists them)"
        )
    last = name.rpartition(".")[2].replace("-", "_")
    same_key = [one for one in SETTINGS if one.rpartition(".")[2] == last]
    usual = OTHER_NAMES.get(last) or (same_key[0] if same_key else None)
    near = f"; did you mean '{usual}'?" if usual else nearest(name, SETTINGS)
    raise InputError(f"{COMMAND_LINE}: there is no setting '{name}'{near} (--help all lists them)")


def _plain_value(name: str, text: str) -> Any:
    """Return the value of a word: as YAML has it, or the text itself where the setting may be a string."""
    try:
        _, value = _load(text, COMMAND_LINE)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    kinds = {get_origin(kind) or kind for kind in members(HINTS.get(name))}
    return text if str in kinds and type(value) not in kinds - {str} else value


def _validated(layer: Mapping[str, Value]) -> Config:
    """Return the configuration of settings by their dotted names; raises InputError for a wrong one."""
    groups: dict[str, Any] = {}
    for group, schema in GROUPS.items():
        names = [name for name in layer if name.partition(".")[0] == group]
        values = {name.partition(".")[2]: _with_numbers(name, layer[name].value) for name in names}
        try:
            groups[group] = schema(**values)
        except ValidationError as error:
            name = f"{group}.{error.errors()[0]['loc'][0]}"
            raise _refusal(layer[name], name, describe(HINTS[name])) from error
        for name in names:
            if _is_broken(layer[name].value):
                raise _refusal(layer[name], name, "without NUL characters and halves of characters")
    config = Config(**groups)
    for holds, name, rule in rules_together(config):
        if not holds:
            group, _, key = name.partition(".")
            raise _refusal(layer.get(name) or Value(getattr(groups[group], key), ""), name, rule)
    return config


def _refusal(one: Value, name: str, rule: str) -> InputError:
    """Return the error for the value of a setting: its source, what it must be, and the nearest choice."""
    found = "nothing; give it a value" if one.value in (None, "") else shorten(str(one.value), 80)
    choices = [kind for kind in members(HINTS[name]) if get_origin(kind) is Literal]
    near = nearest(one.value, [choice for kind in choices for choice in get_args(kind)])
    source = f"{one.source}: " if one.source else ""
    return InputError(f"{source}{name} must be {rule}, found {found}{near}")


def _with_numbers(name: str, value: Any) -> Any:
    """Return the value of a setting; YAML takes 3e-4 for a string."""
    kinds = members(HINTS[name])
    if isinstance(value, list) and list[float] in kinds:
        return [float(one) if _is_number(one) else one for one in value]
    if isinstance(value, dict):
        return {key: float(one) if _is_number(one) else one for key, one in value.items()}
    return float(value) if float in kinds and _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+e[-+]?\d+", value, re.IGNORECASE) is not None


def _is_broken(value: Any) -> bool:
    """Return whether a string has what no file or file name can have."""
    if isinstance(value, dict):
        return any(map(_is_broken, (*value, *value.values())))
    if isinstance(value, list):
        return any(map(_is_broken, value))
    return isinstance(value, str) and re.search("[\\0\ud800-\udbff]", value) is not None


def _with_run_name(config: Config, path: str) -> Config:
    """Name the run after its configuration file, or with a default one after its data."""
    train = config.data.train or "sample"
    named_after = (train if isinstance(train, str) else train[0]) if Path(path) in DEFAULT_CONFIGS else path
    # Of a pattern the folder
    name = next(
        (part for part in (Path(named_after).stem, *Path(named_after).parts[::-1]) if "*" not in part), ""
    )
    return replace(config, output=replace(config.output, name=config.output.name or name or "files"))
