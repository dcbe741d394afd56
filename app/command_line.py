"""Command line and YAML files -> `Config`, with errors that name the file, the key and the nearest right name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from app.config import Config, check_values
from app.errors import InputError, nearest

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_CONFIG = ROOT / "configs" / "default.yaml"


def build_parser(command: str, description: str):
    """Return the jsonargparse parser of the entry script `command`."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog=command,
        usage=f"python {command} [--config FILE] [--GROUP.KEY VALUE ...]",
        description=description,
        exit_on_error=False,
    )
    parser.add_argument("--config", action="config", help="YAML file of settings; may be repeated, later ones win")
    for group in fields(Config):
        parser.add_class_arguments(get_type_hints(Config)[group.name], group.name)
    return parser


def _check_keys(found: Any, schema: type, source: str, prefix: str = "") -> None:
    if not isinstance(found, dict):
        raise InputError(
            f"{source}: {prefix.rstrip('.') or 'the file'} must be a mapping of keys to values, found {found!r}"
        )
    hints = get_type_hints(schema)
    for key, value in found.items():
        if key not in hints:
            known = [prefix + name for name in hints]
            raise InputError(
                f"{source}: there is no setting '{prefix}{key}'{nearest(f'{prefix}{key}', known)} (known: {', '.join(known)})"
            )
        if is_dataclass(hints[key]):
            _check_keys(value, hints[key], source, f"{prefix}{key}.")


def _check_file(path: str, parser) -> None:
    """Check one YAML file by itself, so that an error can name the file."""
    import yaml

    if not Path(path).is_file():
        raise InputError(
            f"--config must name a YAML file; {path} is {'a directory' if Path(path).is_dir() else 'not there'}"
        )
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a readable YAML file: {error}") from error
    _check_keys({} if found is None else found, Config, path)
    _parse(lambda: parser.parse_string(text), source=path)


def _check_arguments(argv: list[str]) -> None:
    """Suggest the nearest right name for a mistyped dotted option."""
    hints = get_type_hints(Config)
    known = [f"{group}.{key}" for group, schema in hints.items() for key in get_type_hints(schema)]
    for argument in argv:
        name = argument[2:].split("=")[0]
        if argument.startswith("--") and "." in name:
            is_item = any(name.startswith(f"{key}.") for key in known if key == "model.config")
            if name not in known and not is_item:
                raise InputError(
                    f"command line: there is no setting '{name}'{nearest(name, known)} (--help lists them all)"
                )


def _parse(parse: Callable, source: str):
    from argparse import ArgumentError

    try:
        return parse()
    except ArgumentError as error:
        message = str(error.message or error).replace("\n ", "").strip()
        raise InputError(f"{source}: {message}") from error


def load_config(argv: list[str] | None = None, command: str = "run_single.py", description: str = "") -> Config:
    """Read the configuration from `argv` (default: the command line).

    Without `--config`, configs/default.yaml is read first. Raises InputError naming the file or the command line, the
    key and the nearest right name. `--help` prints all settings and exits.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser(command, description)
    if {"-h", "--help"} & set(argv):
        parser.print_help()
        raise SystemExit(0)
    paths = [argv[i + 1] for i, word in enumerate(argv[:-1]) if word == "--config"]
    paths += [word.split("=", 1)[1] for word in argv if word.startswith("--config=")]
    if not paths:
        paths = [str(DEFAULT_CONFIG)]
        argv = ["--config", *paths, *argv]
    for path in paths:
        _check_file(path, parser)
    _check_arguments(argv)
    namespace = parser.instantiate(_parse(lambda: parser.parse_args(argv), source="command line"))
    config = Config(**{group.name: namespace[group.name] for group in fields(Config)})
    check_values(config)
    return _with_name(config, paths[-1])


def _with_name(config: Config, path: str) -> Config:
    """Name the run after its configuration file, or after its data where the configuration is the default one."""
    name = config.output.name or Path(path).stem
    if config.output.name is None and Path(path) == DEFAULT_CONFIG:
        name = Path(config.data.train).stem if config.data.train else "sample"
    return replace(config, output=replace(config.output, name=name))
