"""YAML files and the command line -> `Config`: all layers are merged first, then checked once.

An error names its source (file and line, or the command line), the key, what was found, and the nearest name
or value that is allowed.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, get_origin

import yaml
from pydantic import ValidationError

from ..errors import InputError, nearest, shorten
from ..words import _
from .data_settings import DataConfig
from .help import help_text, show
from .schema import GROUPS, HINTS, SETTINGS, TYPES, VERB, Config, choices, describe, members, rules_together
from .shipped import DEFAULT_CONFIGS, default_config, is_about_the_source
from .train_settings import MAX_THREADS, Threads

SHORT_OPTIONS = {"resume": "output.resume", "verb": VERB}
# Other tools use these names for our settings. A value for a whole group is meant for one of them, too.
OTHER_NAMES = {
    other: name
    for name, others in (
        ("train.learning_rate", "lr"),
        ("train.epochs", "epoch num_epochs num_train_epochs"),
        ("train.batch_size", "batch bs train_batch_size per_device_train_batch_size"),
        ("train.warmup", "warmup_ratio warmup_steps"),
        ("train.device", "gpu"),
        ("data.max_length", "max_len max_seq_length max_seq_len seq_len"),
        ("data.train", "data train_file data_path train_path"),
        ("data.dev", "dev_file validation_file valid_file"),
        ("data.test", "test_file"),
        ("model.name", "model model_name_or_path model_name pretrained"),
        ("output.dir", "output output_dir save_dir"),
    )
    for other in others.split()
}
MODEL_KEY = "model.config."


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
    argv = sys.argv[1:] if argv is None else argv
    # torch.distributed.launch adds --local-rank
    argv = [word for word in argv if not re.match(r"--local[-_]rank(=|$)", word)]
    for flag in {"-h", "--help"}.intersection(argv):
        topics = list(takewhile(lambda word: word[:1] != "-", argv[argv.index(flag) + 1 :]))
        defaults = _validated(_read_layer(default_config(set())))
        raise SystemExit(show(help_text(command, description, topics, defaults)))
    config = _merged(*_read_arguments([word for word in argv if word != "--print_config"]))
    if "--print_config" in argv:
        raise SystemExit(show(yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)))
    return config


def config_of(settings: Mapping[str, Any], source: str) -> Config:
    """Return the configuration of settings by their dotted names, on top of the usual default file. Raises
    InputError, which calls them `source`."""
    return _merged([], {str(name): Value(value, source) for name, value in settings.items()})


def _merged(files: list[str], options: dict[str, Value]) -> Config:
    """Return the configuration of the files, later ones on top of earlier ones, and of options on top."""
    layers = [_read_layer(Path(path)) for path in files]
    if not any(is_about_the_source(name) for layer in layers for name in layer):
        files = [str(default_config(set(options))), *files]
        layers = [_read_layer(Path(files[0])), *layers]
    merged: dict[str, Value] = {}
    for layer in (*layers, options):
        for name, (value, source) in layer.items():
            if name.startswith(MODEL_KEY):
                before = merged[MODEL_KEY[:-1]].value if MODEL_KEY[:-1] in merged else {}
                before = before if isinstance(before, dict) else {}
                value, name = before | {name.removeprefix(MODEL_KEY): value}, MODEL_KEY[:-1]
            merged[name] = Value(value, source)
    config = _validated(merged)
    # A run is named after its file, or with a default one after its data, whose pattern has its folder's name
    train = config.data.train or "sample"
    own = (train if isinstance(train, str) else train[0]) if Path(files[-1]) in DEFAULT_CONFIGS else files[-1]
    parts = (Path(own).stem, *reversed(Path(own).parts))
    name = config.output.name or next((part for part in parts if part and "*" not in part), "files")
    return replace(config, output=replace(config.output, name=name))


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
            raise _refusal(Value(text, _("command line")), option, describe(Threads))
        number = int(text)
    return kept, number


def load_data_settings(path: Path) -> DataConfig:
    """Return the `data` settings of a run's file; those that do not exist any more are left out."""
    layer = _read_layer(path)
    return _validated({name: layer[name] for name in HINTS if name in layer and name[:5] == "data."}).data


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is set twice instead of taking the last one."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Return the next mapping, unless a key is set twice in it."""
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key in (key for key, _value in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in keys:
                raise InputError(f"{_place(key)}: '{shorten(key.value)}' is set twice; keep one of them")
            keys.add(key.value)
        return node


def _place(node: yaml.Node) -> str:
    return f"{node.start_mark.name}, line {node.start_mark.line + 1}"


def read_yaml(
    path: Path, read: Callable = lambda loader, node: node and loader.construct_document(node)
) -> Any:
    """Return the values in a YAML file: mappings, lists, strings, numbers, true, false, null, dates. Raises
    InputError for a file that cannot be read, is not valid YAML, or sets a key twice."""
    try:
        if not path.is_file():
            raise InputError(
                f"a YAML file is needed; {path} is {'no file' if path.exists() else 'not there'}"
            )
        loader = _Loader(path.read_text(encoding="utf-8"))
        loader.name = str(path)
        return read(loader, loader.get_single_node())
    except InputError:
        raise
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        # PyYAML raises ValueError for a date or a number that cannot be one, such as 2001-99-99
        problem = str(error).replace(f'"{path}"', "the file")
        remedy = "save it in UTF-8, with strings in quotes"
        raise InputError(
            f"{shorten(str(path), 200)} is not a readable YAML file: {problem}; {remedy}"
        ) from error


def _read_layer(path: Path) -> dict[str, Value]:
    """Return the settings of a YAML file by their dotted names; what is under no known group has the name of
    its group."""

    def settings(loader: _Loader, node: yaml.Node | None) -> dict[str, Value]:
        if node is None:
            raise InputError(f"{path}: there are no settings in the file; write some, or leave --config out")
        layer = {}
        for group, place, inner in items(loader, node, "the file", str(path)):
            if group not in GROUPS:
                layer[group] = Value(loader.construct_object(inner, deep=True), place)
                continue
            for key, place_of_key, value in items(loader, inner, group, place):
                layer[f"{group}.{key}"] = Value(loader.construct_object(value, deep=True), place_of_key)
        return layer

    def items(loader: _Loader, node: yaml.Node, name: str, place: str) -> Iterator[tuple]:
        # PyYAML refuses to construct a mapping with an unknown tag.
        if not isinstance(node, yaml.MappingNode) or node.tag != loader.DEFAULT_MAPPING_TAG:
            raise _refusal(Value(loader.construct_object(node, deep=True), place), name, _(TYPES[dict]))
        for key, value in node.value:
            yield str(loader.construct_object(key)), _place(key), value

    return read_yaml(path, settings)


def _read_arguments(argv: list[str]) -> tuple[list[str], dict[str, Value]]:
    """Return the configuration files and the settings of the words `--NAME VALUE`, `--NAME=VALUE` and
    `NAME=VALUE`."""
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
        if name not in HINTS and name != "config" and not name.startswith(MODEL_KEY):
            raise _no_setting(name, source)
        value = text if equals else next(words, "--")
        if not equals and value.startswith("--"):
            raise InputError(_("command line: --{name} needs a value after it").format(name=name))
        if name == "config":
            files.append(value)
        else:
            options[name] = Value(_plain_value(name, value), source)
    return files, options


def _plain_value(name: str, text: str) -> Any:
    """Return the value of a word: as YAML has it, or the text itself where the setting may be a string."""
    try:
        value = _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    kinds = {get_origin(kind) or kind for kind in members(HINTS.get(name))}
    return text if str in kinds and type(value) not in kinds - {str} else value


def _no_setting(name: str, source: str) -> InputError:
    """Return the error for a name that no setting has, with the one that was probably meant."""
    group, _dot, key = name.partition(".")
    last = name.rpartition(".")[2].replace("-", "_")
    known = [one.partition(".")[2] for one in SETTINGS if one.startswith(f"{group}.")]
    if meant := OTHER_NAMES.get(last) or next((one for one in SETTINGS if one.endswith(f".{last}")), None):
        near = nearest(meant, [meant])
    elif key and known:
        near = nearest(key, known).replace("'", f"'{group}.", 1)
    else:
        near = nearest(name, [*GROUPS, *SETTINGS] if name not in GROUPS else SETTINGS)
    said = _("{source}: there is no setting '{name}'{near} (--help all lists them)")
    return InputError(said.format(source=source, name=name, near=near))


def _validated(layer: Mapping[str, Value]) -> Config:
    """Return the configuration of settings by their dotted names; raises InputError for a wrong one."""
    values: dict[str, dict] = {group: {} for group in GROUPS}
    for name, one in layer.items():
        if name not in HINTS:
            raise _no_setting(name, one.source)
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


def _refusal(one: Value, name: str, rule: str) -> InputError:
    """Return the error for the value of a setting: its source, what it must be, and the nearest choice."""
    is_nothing = one.value in (None, "")
    found = _("nothing; give it a value") if is_nothing else shorten(str(one.value), 80)
    # A choice may be one of another task
    near = "" if one.value in (known := choices(HINTS.get(name))) else nearest(one.value, known)
    said = _("{setting} must be {rule}, found {value}{near}")
    problem = said.format(setting=name, rule=rule, value=found, near=near)
    whole = _("{source}: {problem}").format(source=one.source, problem=problem)
    return InputError(whole if one.source else problem)
