"""Command line and YAML files -> `Config`, with errors that name the file, the key and the nearest right name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from app.config.messages import describe, in_our_words, setting_types
from app.config.schema import Config, check_together, check_values
from app.config.shipped import DEFAULT_CONFIG
from app.config.yaml_files import read_yaml
from app.errors import InputError, nearest, shorten

MOST_VALUES = 2000  # of one list; jsonargparse's time grows with the square of it: 4 s here
SHORT = {"nprocs": "train.nprocs", "resume": "output.resume"}  # short names of settings


def build_parser(command: str, description: str):
    """Return the jsonargparse parser of the entry script `command`."""
    from argparse import RawDescriptionHelpFormatter

    from jsonargparse import ArgumentParser, DefaultHelpFormatter, set_parsing_settings

    class HelpFormatter(RawDescriptionHelpFormatter, DefaultHelpFormatter):
        """Keeps the lines of the description, which are commands."""

    # The help of a setting is the docstring below it in app/config/schema.py.
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(
        prog=command,
        usage=f"python {command} [--config FILE] [--GROUP.KEY VALUE ...]",
        description=description,
        formatter_class=HelpFormatter,
        exit_on_error=False,
    )
    parser.add_argument("--config", action="config", help="YAML file of settings; may be repeated, later ones win")
    for group in fields(Config):
        parser.add_class_arguments(get_type_hints(Config)[group.name], group.name)
    return parser


def _check_keys(found: Any, schema: type, source: str, prefix: str = "") -> None:
    if not isinstance(found, dict):
        raise InputError(
            f"{source}: {prefix.rstrip('.') or 'the file'} must be a mapping of keys to values, found "
            f"{'nothing' if found is None else shorten(str(found))}"
        )
    hints = get_type_hints(schema)
    for key, value in found.items():
        if key not in hints:
            known = ", ".join(prefix + name for name in hints)
            near = nearest(key, hints).replace("'", f"'{prefix}", 1) or f" (known: {known})"
            raise InputError(f"{source}: there is no setting '{prefix}{key}'{near}")
        if is_dataclass(hints[key]):
            _check_keys(value, hints[key], source, f"{prefix}{key}.")
        elif value is None and NoneType not in get_args(hints[key]):
            raise InputError(f"{source}: {prefix}{key} must be {describe(hints[key])}, found nothing; give it a value")
        elif isinstance(value, list) and len(value) > MOST_VALUES:
            raise InputError(
                f"{source}: {prefix}{key} may list at most {MOST_VALUES:,} values, found {len(value):,}; leave it out (labels "
                "are then found in the train file)"
            )


def _check_file(path: str, parser) -> None:
    """Check one YAML file by itself, so that an error can name the file."""
    text, found = read_yaml(Path(path))
    if found is None:
        raise InputError(f"{path}: there are no settings in the file; write some, or leave --config out")
    _check_keys(found, Config, path)
    _check_ranges(_parse(lambda: parser.parse_string(text), parser, path), path)


def _check_arguments(argv: list[str]) -> None:
    """Suggest the nearest right name for a mistyped option."""
    known = list(setting_types())
    others = {"config", "help", "print_config", *get_type_hints(Config)}
    for argument in argv:
        name = argument[2:].split("=")[0].removesuffix("+")  # --data.labels+ adds to a list
        if not argument.startswith("--") or name in known or name in others or name.startswith("model.config."):
            continue
        near = next((f"; did you mean '{key}'?" for key in known if key.endswith(f".{name}")), nearest(name, known))
        raise InputError(f"command line: there is no setting '{name}'{near} (--help lists them all)")


def _parse(parse: Callable, parser, source: str) -> Config:
    """Return what `parse` makes of the settings; its errors become InputErrors in our words."""
    from argparse import ArgumentError

    try:
        namespace = parser.instantiate(parse())
    except ArgumentError as error:
        raise InputError(f"{source}: {in_our_words(str(error.message or error))}") from error
    return Config(**{group.name: namespace[group.name] for group in fields(Config)})


def _check_ranges(config: Config, source: str) -> None:
    try:
        check_values(config)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def load_config(argv: list[str] | None = None, command: str = "run_single.py", description: str = "") -> Config:
    """Read the configuration from `argv` (default: the command line).

    Without `--config`, configs/default.yaml is read first. Raises InputError naming the file or the command line, the
    key and the nearest right name. `--help` prints all settings and exits.
    """
    argv = clean_arguments(sys.argv[1:] if argv is None else argv)
    parser = build_parser(command, description)
    if {"-h", "--help"} & set(argv):
        parser.print_help()
        raise SystemExit(0)
    paths, overrides = _take_paths(argv)
    for path in paths:
        _check_file(path, parser)
    _check_arguments(overrides)
    files_first = [word for path in paths for word in ("--config", path)] + overrides
    config = _parse(lambda: parser.parse_args(files_first), parser, "command line")
    _check_ranges(config, "command line")
    check_together(config)
    return _with_name(config, paths[-1])


def _take_paths(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return the configuration files (none given: the default one) and all other words, which win over them."""
    paths, others = [], []
    words = iter(argv)
    for word in words:
        path = next(words, None) if word == "--config" else None
        if path is not None or word.startswith("--config="):
            paths.append(path if path is not None else word.removeprefix("--config="))
        else:
            others.append(word)
    return paths or [str(DEFAULT_CONFIG)], others


def clean_arguments(argv: list[str]) -> list[str]:
    """Return the arguments without `--local-rank`, which torch.distributed.launch adds, and with short names written out."""
    kept = [word for word in argv if not re.match(r"--local[-_]rank(=|$)", word)]
    return [re.sub(r"^--(\w+)(?==|$)", lambda found: f"--{SHORT.get(found[1], found[1])}", word) for word in kept]


def _with_name(config: Config, path: str) -> Config:
    """Name the run after its configuration file, or after its data where the configuration is the default one."""
    name = config.output.name or Path(path).stem
    if config.output.name is None and Path(path) == DEFAULT_CONFIG:
        name = Path(config.data.train).stem if config.data.train else "sample"
    return replace(config, output=replace(config.output, name=name))
