"""YAML files -> plain values; nothing in a file is executed."""

from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, shorten


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is set twice instead of taking the last one."""

    path: Path

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


def read_yaml(path: Path) -> tuple[str, Any]:
    """Return the text of a YAML file and the values in it: mappings, lists, strings, numbers, true, false,
    null, dates. Raises InputError for a file that cannot be read, is not valid YAML, or sets a key twice."""
    text = _read_text(path)
    try:
        loader = _Loader(text)
        loader.path = path
        try:
            return text, loader.get_single_data()
        finally:
            loader.dispose()
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


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            problem = (
                "a directory" if path.is_dir() else "a pipe or a device" if path.exists() else "not there"
            )
            raise InputError(f"a YAML file is needed; {path} is {problem}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{shorten(str(path), 200)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a readable YAML file: {error}; save it in UTF-8") from error
