"""Command line and YAML files -> `Config`; errors name the file or option, the key and the nearest one."""

import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from ..errors import InputError, nearest, shorten
from ..words import _
from .checks import check_together, check_values
from .data_settings import DataConfig
from .help import help_text, show
from .messages import describe_type, explain_parser_error, setting_types
from .schema import Config
from .shipped import DEFAULT_CONFIGS, default_config, is_about_the_source
from .yaml_files import read_yaml

# jsonargparse's time grows with the square of a list's length: 4 s at this one
MAX_LIST = 2000
SHORT_OPTIONS = {"nprocs": "train.nprocs", "resume": "output.resume"}
# What a person means who gives a group of settings one value
MAIN_SETTINGS = {"data": "data.train", "model": "model.name", "output": "output.dir"}

# What other tools call the same
OTHER_NAMES = {
    **dict.fromkeys(("lr", "learning_rate"), "train.learning_rate"),
    **dict.fromkeys(("epoch", "epochs", "num_epochs", "num_train_epochs"), "train.epochs"),
    **dict.fromkeys(("batch", "bs", "batch_size", "train_batch_size"), "train.batch_size"),
    **dict.fromkeys(("per_device_train_batch_size",), "train.batch_size"),
    **dict.fromkeys(("per_device_eval_batch_size",), "train.eval_batch_size"),
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
            defaults = _read_settings([str(default_config(set()))], [], command)
            raise SystemExit(show(help_text(command, description, topics, defaults)))
    config_files, overrides = _split_arguments(argv)
    options = {word[2:].split("=")[0] for word in overrides if word.startswith("--")}
    if not any(map(_names_model, config_files)):
        config_files = [str(default_config(options)), *config_files]
    config = _read_settings(config_files, overrides, command)
    check_together(config)
    return _with_run_name(config, config_files[-1])


def load_data_settings(path: Path) -> DataConfig:
    """Return the `data` settings of a run's file; those that do not exist any more are left out."""
    settings = read_yaml(path)[1]
    data = settings.get("data") if isinstance(settings, dict) else None
    known = {field.name for field in fields(DataConfig)}
    kept = {key: value for key, value in data.items() if key in known} if isinstance(data, dict) else {}
    _check_keys(kept, DataConfig, str(path), "data.")
    parser = _build_parser("run_single.py")
    return _parse_settings(lambda: parser.parse_object({"data": kept}), parser, str(path)).data


def _read_settings(config_files: list[str], overrides: list[str], command: str) -> Config:
    """Return the settings of the files, which the words `overrides` change."""
    parser = _build_parser(command)
    for path in config_files:
        _check_config_file(path, parser)
    _refuse_unknown_options(overrides)
    files_first = [word for path in config_files for word in ("--config", path)] + overrides
    return _parse_settings(lambda: parser.parse_args(files_first), parser, _("command line"))


def _build_parser(command: str):
    """Return the jsonargparse parser of the entry script `command`."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(prog=command, add_help=False, exit_on_error=False)
    parser.add_argument("--config", action="config")
    for group in fields(Config):
        parser.add_class_arguments(get_type_hints(Config)[group.name], group.name)
    return parser


def _clean_arguments(argv: list[str]) -> list[str]:
    """Return the arguments, short options written out, without torch.distributed.launch's `--local-rank`."""
    kept = [word for word in argv if not re.match(r"--local[-_]rank(=|$)", word)]
    return [
        re.sub(r"^--(\w+)(?==|$)", lambda name: f"--{SHORT_OPTIONS.get(name[1], name[1])}", word)
        for word in kept
    ]


def _split_arguments(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return the configuration files and all other words, which override them."""
    config_files, overrides = [], []
    words = iter(argv)
    for word in words:
        path = next(words, None) if word == "--config" else None
        if path is not None or word.startswith("--config="):
            config_files.append(path if path is not None else word.removeprefix("--config="))
        else:
            overrides.append(word)
    return config_files, overrides


def _names_model(path: str) -> bool:
    """Return whether a configuration file says where the weights come from."""
    settings = read_yaml(Path(path))[1]
    model = settings.get("model") if isinstance(settings, dict) else None
    return any(is_about_the_source(f"model.{key}") for key in (model if isinstance(model, dict) else ()))


def _check_config_file(path: str, parser) -> None:
    """Check one YAML file by itself, so that an error can name the file."""
    text, settings = read_yaml(Path(path))
    if settings is None:
        raise InputError(f"{path}: there are no settings in the file; write some, or leave --config out")
    _check_keys(settings, Config, path)
    _parse_settings(lambda: parser.parse_string(text), parser, path)


def _check_keys(settings: Any, schema: type, source: str, prefix: str = "") -> None:
    """Raise InputError for unknown keys, missing values and overlong lists, in inner mappings too."""
    if not isinstance(settings, dict):
        raise InputError(
            f"{source}: {prefix.rstrip('.') or 'the file'} must be a mapping of keys to values, found "
            f"{'nothing' if settings is None else shorten(str(settings))}"
        )
    hints = get_type_hints(schema)
    for key, value in settings.items():
        if key not in hints:
            known = ", ".join(prefix + name for name in hints)
            near = nearest(key, hints).replace("'", f"'{prefix}", 1) or f" (known: {known})"
            said = _("{source}: there is no setting '{name}'{near}")
            raise InputError(said.format(source=source, name=f"{prefix}{key}", near=near))
        if is_dataclass(hints[key]):
            _check_keys(value, hints[key], source, f"{prefix}{key}.")
        elif value is None and NoneType not in get_args(hints[key]):
            raise InputError(
                f"{source}: {prefix}{key} must be {describe_type(hints[key])}, found nothing; give it a value"
            )
        elif isinstance(value, list) and len(value) > MAX_LIST:
            raise InputError(
                f"{source}: {prefix}{key} may list at most {MAX_LIST:,} values, found {len(value):,}; leave "
                "it out (labels are then taken from the train file)"
            )


def _refuse_unknown_options(words: list[str]) -> None:
    """Raise InputError, with the most similar setting, for an option that is no setting."""
    settings, groups = list(setting_types()), get_type_hints(Config)
    for word in words:
        # --data.labels+ adds to a list
        name = word[2:].split("=")[0].removesuffix("+")
        if word.startswith("--") and name in groups:
            meant = MAIN_SETTINGS.get(name)
            near = _("; did you mean --{name}?").format(name=meant) if meant else ""
            said = _(
                "command line: {name} is a group of settings, not a setting{near} (--help all lists them)"
            )
            raise InputError(said.format(name=name, near=near))
        is_known = name in (*settings, "config", "help", "print_config") or name.startswith("model.config.")
        if word.startswith("--") and not is_known:
            usual = OTHER_NAMES.get(name.rpartition(".")[2].replace("-", "_"))
            meant = usual or next((key for key in settings if key.endswith(f".{name}")), None)
            near = _("; did you mean '{name}'?").format(name=meant) if meant else nearest(name, settings)
            said = _("command line: there is no setting '{name}'{near} (--help all lists them)")
            raise InputError(said.format(name=name, near=near))


def _parse_settings(parse: Callable, parser, source: str) -> Config:
    """Return the configuration that `parse` reads, its values checked; errors begin with `source`."""
    from argparse import ArgumentError

    try:
        namespace = parser.instantiate(parse())
        config = Config(**{group.name: namespace[group.name] for group in fields(Config)})
        check_values(config)
    except ArgumentError as error:
        problem = explain_parser_error(str(error.message or error))
        raise InputError(_("{source}: {problem}").format(source=source, problem=problem)) from error
    except InputError as error:
        raise InputError(_("{source}: {problem}").format(source=source, problem=error)) from error
    return config


def _with_run_name(config: Config, path: str) -> Config:
    """Name the run after its configuration file, or with a default one after its data."""
    train = config.data.train or "sample"
    named_after = (train if isinstance(train, str) else train[0]) if Path(path) in DEFAULT_CONFIGS else path
    # Of a pattern the folder
    name = next(
        (part for part in (Path(named_after).stem, *Path(named_after).parts[::-1]) if "*" not in part), ""
    )
    return replace(config, output=replace(config.output, name=config.output.name or name or "files"))
