"""YAML: the values of a file, the value of a word of the command line, and the line of a key."""

from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, shorten


class UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses a key that is set twice instead of taking the last one."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key, _value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in keys:
                line = key.start_mark.line + 1
                raise InputError(
                    f"{self.name}, line {line}: '{shorten(key.value)}' is set twice; keep one of them"
                )
            keys.add(key.value)
        return node


def read_yaml(path: Path) -> Any:
    """Return the values in a YAML file: mappings, lists, strings, numbers, true, false, null, dates. Raises
    InputError for a file that cannot be read, is not valid YAML, or sets a key twice."""
    if not path.is_file():
        problem = "no file" if path.exists() else "not there"
        raise InputError(f"a YAML file is needed; {path} is {problem}")
    try:
        loader = UniqueKeyLoader(path.read_text(encoding="utf-8"))
        loader.name = str(path)
        return loader.get_single_data()
    except InputError:
        raise
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        # PyYAML raises ValueError for a date or a number that cannot be one, such as 2001-99-99
        problem = str(error).replace(f'"{path}"', "the file")
        raise InputError(
            f"{shorten(str(path), 200)} is not a readable YAML file: {problem}; save it in UTF-8, with "
            "strings in quotes, and those with a backslash in single quotes"
        ) from error


def parse_yaml(text: str) -> Any:
    """Return the value of a text. Raises yaml.YAMLError, ValueError or RecursionError where it is no YAML,
    and InputError for a key that is set twice."""
    return UniqueKeyLoader(text).get_single_data()


def yaml_text(value: Any) -> str:
    """Return a plain value as it is written on the command line: none, true, [tensorboard]."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(yaml_text, value))}]"
    return str(value)


def line_of_key(path: Path, name: str) -> int | None:
    """Return the line, from 1, of a key in a YAML file: of `group.key` the line of the key inside of the
    group. Where the key is missing it is the line of the group, and None where that is missing too."""
    line = None
    node = yaml.compose(path.read_text("utf-8"))
    for part in name.split(".", 1):
        if not isinstance(node, yaml.MappingNode):
            return line
        for key, value in node.value:
            if key.value == part:
                line = key.start_mark.line + 1
                node = value
                break
    return line
