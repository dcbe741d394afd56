"""YAML files, from anybody -> plain values.

Nothing in a file is executed, and reading takes a bounded time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, shorten

# A configuration has a few thousand
MAX_BYTES = 1 << 18
MAX_LEVELS = 50
# Of a number: int(...) takes a time that grows with the square of it, and str(...) fails
MAX_DIGITS = 100
STRING, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


class SettingsLoader(yaml.SafeLoader):
    """PyYAML's safe loader, but for what a file of settings does not need.

    Refuses, before any value is made, with an InputError that names file and line: tags (`!!python/...` would
    make objects), aliases and merge keys (a few lines of them stand for billions of values), a key that is
    set twice in a mapping (PyYAML would take the last one in silence), very long numbers, NUL characters (no
    file name can have them), and too many levels.
    """

    def __init__(self, text: str, path: Path) -> None:
        super().__init__(text)
        self.path = path
        self.level = 0

    def _refuse(self, mark: yaml.Mark, problem: str) -> InputError:
        return InputError(f"{self.path}, line {mark.line + 1}: {problem}")

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        """Return the next node, unless there is a rule against it."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            problem = f"aliases are not read, found '*{shorten(event.anchor)}'; write the value out"
            raise self._refuse(event.start_mark, problem)
        if event.tag is not None:
            tag = shorten(event.tag.replace("tag:yaml.org,2002:", "!!"), 80)
            problem = (
                f"tags are not read, a file of settings holds plain values only; found '{tag}'; remove it"
            )
            raise self._refuse(event.start_mark, problem)
        self.level += 1
        if isinstance(event, yaml.CollectionStartEvent) and self.level > MAX_LEVELS:
            problem = f"settings have at most {MAX_LEVELS} levels, found more; are all brackets closed?"
            raise self._refuse(event.start_mark, problem)
        node = super().compose_node(parent, index)
        self.level -= 1
        if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
            problem = f"strings have no NUL characters, found '{shorten(node.value)}'; remove \\0 or \\x00"
            raise self._refuse(node.start_mark, problem)
        if isinstance(node, yaml.ScalarNode) and node.tag != STRING and len(node.value) > MAX_DIGITS:
            problem = (
                f"a number has at most {MAX_DIGITS} characters, found '{shorten(node.value)}'; put strings "
                "in quotes"
            )
            raise self._refuse(node.start_mark, problem)
        return node

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Return the next mapping, unless a key is set twice in it or is a merge key."""
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.tag == MERGE:
                raise self._refuse(
                    key.start_mark, "merge keys are not read, found '<<'; write the settings out"
                )
            if key.value in keys:
                problem = f"'{shorten(key.value)}' is set twice; keep one of them"
                raise self._refuse(key.start_mark, problem)
            keys.add(key.value)
        return node


def read_yaml(path: Path) -> tuple[str, Any]:
    """Return the text of a YAML file and the values in it: mappings, lists, strings, numbers, true, false,
    null, dates.

    Raises InputError for a file that cannot be read, is longer than 256 KiB, is not valid YAML, or has what
    `SettingsLoader` refuses.
    """
    text = _read_text(path)
    try:
        loader = SettingsLoader(text, path)
        try:
            return text, loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        problem = str(error).replace('"<unicode string>"', "the file")
        raise InputError(f"{path} is not a readable YAML file: {problem}") from error
    except InputError:
        raise
    except ValueError as error:
        # What looks like a date or a number and is not one: 2001-99-99
        raise InputError(f"{path} is not a readable YAML file: {error}; put strings in quotes") from error


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            found = "a directory" if path.is_dir() else "a pipe or a device" if path.exists() else "not there"
            raise InputError(f"a YAML file is needed; {path} is {found}")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"{path}: a YAML file of settings has at most {MAX_BYTES:,} bytes, found more")
        return content.decode("utf-8")
    except OSError as error:
        raise InputError(f"{shorten(str(path), 200)} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a readable YAML file: {error}; save it in UTF-8") from error
