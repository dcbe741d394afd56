"""YAML files, from anybody -> plain values. Nothing in a file is executed, and reading takes a bounded time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.errors import InputError, shorten

MOST_BYTES = 1 << 18  # a configuration has some thousand
MOST_LEVELS = 50


def read_yaml(path: Path) -> tuple[str, Any]:
    """Return the text of a YAML file and the values in it: mappings, lists, strings, numbers, true, false, null, dates.

    Raises InputError for a file that cannot be read or is longer than 256 KiB, for a broken one, and for what a file of
    settings has no need of: tags (`!!python/...` would make objects), aliases (a few lines of them stand for billions of
    values), keys that stand twice in a mapping, and more than 50 levels.
    """
    import yaml

    text = _read_text(path)
    try:
        _check_events(text, path)
        found = yaml.safe_load(text)
        _check_repeated(yaml.compose(text, Loader=yaml.SafeLoader), path)
    except yaml.YAMLError as error:
        problem = str(error).replace('"<unicode string>"', "the file")
        raise InputError(f"{path} is not a readable YAML file: {problem}") from error
    except InputError:
        raise
    except ValueError as error:  # what looks like a date or a number, and is none: 2001-99-99
        raise InputError(f"{path} is not a readable YAML file: {error}; put strings in quotes") from error
    return text, found


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            found = "a directory" if path.is_dir() else "a pipe or a device" if path.exists() else "not there"
            raise InputError(f"a YAML file is needed; {path} is {found}")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{path}: a YAML file of settings has at most {MOST_BYTES:,} bytes, found more")
        return content.decode("utf-8")
    except OSError as error:
        raise InputError(f"{shorten(str(path), 200)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a readable YAML file: {error}; save it in UTF-8") from error


def _check_events(text: str, path: Path) -> None:
    """Refuse tags, aliases and deep nesting before any value is made."""
    import yaml

    level = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        where = f"{path}, line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{where}: aliases are not read, found '*{shorten(event.anchor)}'; write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            shown = shorten(tag.replace("tag:yaml.org,2002:", "!!"), 80)
            raise InputError(
                f"{where}: tags are not read, a file of settings holds plain values only; found '{shown}'; remove it"
            )
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > MOST_LEVELS:
            raise InputError(f"{where}: settings have at most {MOST_LEVELS} levels, found more; are brackets closed?")


def _check_repeated(node: Any, path: Path) -> None:
    """Refuse a key that stands twice in one mapping: YAML's reader would take the last one in silence."""
    from yaml import MappingNode, SequenceNode

    if isinstance(node, SequenceNode):
        for value in node.value:
            _check_repeated(value, path)
    seen: set[str] = set()
    for key, value in node.value if isinstance(node, MappingNode) else []:
        if str(key.value) in seen:
            raise InputError(
                f"{path}, line {key.start_mark.line + 1}: '{shorten(str(key.value))}' stands there twice; keep one of them"
            )
        seen.add(str(key.value))
        _check_repeated(value, path)
