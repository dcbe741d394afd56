"""The settings of a run in its folder: config.yaml, or beside a file of the user with that name,
config.resolved.yaml."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..config.schema import Config
from ..config.yaml_files import read_yaml
from ..errors import InputError
from ..runtime.disk import write_text

CONFIG, RESOLVED, ENVIRONMENT = "config.yaml", "config.resolved.yaml", "environment.json"
HEADER = (
    "# All settings of this run. A run replaces this file unless it was changed; SHA-256 of what follows: "
)


def settings_file(folder: Path) -> Path:
    """Return the file with the settings that a run was trained with; it may be absent."""
    return folder / RESOLVED if (folder / RESOLVED).is_file() else folder / CONFIG


def write_config(folder: Path, config: Config) -> None:
    """Write the resolved configuration; a config.yaml that no run wrote, or that was changed since, stays as
    it is."""
    text = dump(config.to_dict())
    is_free = not (folder / CONFIG).exists() or is_written_by_run(folder)
    path = folder / (CONFIG if is_free and not (folder / RESOLVED).exists() else RESOLVED)
    write_text(path, f"{HEADER}{digest(text)}\n{text}")


def is_written_by_run(folder: Path) -> bool:
    """Return whether a run wrote the config.yaml of a folder, and it is unchanged since then."""
    if not (folder / ENVIRONMENT).exists() or (folder / RESOLVED).exists():
        # A file that was there before the run, for instance a copy of another run's
        return False
    try:
        text, values = read_yaml(folder / CONFIG)
    except InputError:
        return False
    first, _, rest = text.partition("\n")
    if first.startswith(HEADER):
        return first.removeprefix(HEADER) == digest(rest)
    if not text.strip():
        # Nothing is lost
        return True
    # Earlier versions wrote no first line; theirs has all sections, in the form in which they are written.
    return isinstance(values, dict) and list(values) == list(Config().to_dict()) and dump(values) == text


def dump(values: dict) -> str:
    """Return values as YAML, in their order."""
    import yaml

    return yaml.safe_dump(values, allow_unicode=True, sort_keys=False)


def digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
