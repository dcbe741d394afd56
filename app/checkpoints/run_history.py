"""What a run folder says of its run: config.yaml, run_history.json (each start), skipped_rows.csv, and the
model card: README.md, or beside a file of the user with that name, MODEL_CARD.md."""

from __future__ import annotations

import csv
import json
import logging
import platform
import shutil
import subprocess
import sys
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.schema import Config
from ..config.yaml_files import read_yaml
from ..data.cache import content_key, file_digest
from ..errors import InputError
from ..runtime.cores import num_cores
from ..runtime.disk import is_marked, write_json, write_marked
from ..runtime.processes import launcher_id

if TYPE_CHECKING:
    from ..data.dataset import Dataset

logger = logging.getLogger(__name__)
CONFIG, HISTORY, SKIPPED = "config.yaml", "run_history.json", "skipped_rows.csv"
HEADER = (
    "# All settings of this run. A run replaces this file unless it was changed; SHA-256 of what follows: "
)
# The model card: the first that is free, or that a run wrote
CARDS = ("README.md", "MODEL_CARD.md")
# With those of runs that were trained for longer
CARD_FILES = (*CARDS, *(name.replace(".", ".step-*.") for name in CARDS))
CARD_HEADER = "---\n# A run wrote this card and replaces it unless it was changed; SHA-256 of what follows: "
# They say how a process is started, not what it trains
SETTINGS_OF_A_START = ("output.resume", "output.overwrite")


@cache
def commit() -> str | None:
    """Return the commit of this code, None where git does not know it; asked once in a process."""
    if not shutil.which("git"):
        return None
    root = str(Path(__file__).resolve().parents[2])
    git = subprocess.run(
        ["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return git.stdout.strip() if git.returncode == 0 else None


def describe_start(mode: str, world_size: int, device: str) -> dict:
    """Return time, versions, device, commit and command line of this start, so that it can be repeated."""
    import numpy as np
    import torch
    import transformers

    from ..runtime.devices import device_name

    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "launcher": launcher_id(),
        "mode": mode,
        "processes": world_size,
        "device": device,
        "device_name": device_name(torch.device(device)),
        "cores": num_cores(),
        "threads": torch.get_num_threads(),
        "code": code_version()["app"],
        "commit": commit(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def code_version() -> dict[str, str]:
    """Return what the numbers depend on: a digest of our sources, and the versions of libraries."""
    import tokenizers
    import torch
    import transformers

    package = Path(__file__).resolve().parents[1]
    sources = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
    digest = content_key(*(part for name in sources for part in (name, file_digest(package / name))))
    libraries = {"torch": torch, "transformers": transformers, "tokenizers": tokenizers}
    # Builds of one version for other devices (2.13.0+cpu) are the same code.
    return {"app": digest} | {
        name: library.__version__.partition("+")[0] for name, library in libraries.items()
    }


def write_first_start(folder: Path, config: Config, start: dict, dataset: Dataset) -> None:
    """Write history, settings and skipped rows of a run that starts from the beginning. `start` is that of
    `describe_start`. The history comes first: a config.yaml without it is the user's."""
    write_json(folder / HISTORY, {"starts": [{"step": 0, **start}]})
    write_config(folder, config)
    if any(table.skipped for table in dataset.tables):
        with (folder / SKIPPED).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "line", "problem"])
            for table in dataset.tables:
                writer.writerows([row["file"], row["line"], row["problem"]] for row in table.skipped_rows())


def add_start(folder: Path, config: Config, start: dict, step: int) -> None:
    """Add the start of a run that resumes after `step`, with its changed settings, and write these."""
    changed = changed_settings(folder, config)
    if changed:
        listed = ", ".join(f"{key} was {before} and is {now}" for key, (before, now) in changed.items())
        logger.info("Settings since step %d: %s.", step, listed)
    starts = [*read_starts(folder), {"step": step, **start, "changed": changed}]
    write_json(folder / HISTORY, {"starts": starts})
    write_config(folder, config)


def read_starts(folder: Path) -> list[dict]:
    """Return the starts of a run, the first one first; with a warning none where the file is damaged."""
    try:
        starts = json.loads((folder / HISTORY).read_text(encoding="utf-8"))["starts"]
        if isinstance(starts, list) and all(isinstance(start, dict) for start in starts):
            return starts
        problem = "`starts` must be a list of objects"
    except (OSError, ValueError, TypeError, KeyError) as error:
        problem = repr(error)
    logger.warning("%s is damaged and begins with this start: %s", folder / HISTORY, problem)
    return []


def changed_settings(folder: Path, config: Config) -> dict[str, list]:
    """Return the settings that differ from those in the folder: by dotted name, the value before and now."""
    before = read_settings(folder)
    return {
        f"{group}.{key}": [before[group][key], value]
        for group, values in config.to_dict().items()
        for key, value in values.items()
        if f"{group}.{key}" not in SETTINGS_OF_A_START
        and key in before.get(group, {})
        and before[group][key] != value
    }


def read_settings(folder: Path) -> dict[str, dict]:
    """Return the settings of a run by group and name; with a warning none where the file is damaged."""
    try:
        _, settings = read_yaml(folder / CONFIG)
    except InputError as error:
        logger.warning("The settings of the run cannot be read: %s", error)
        return {}
    groups = settings if isinstance(settings, dict) else {}
    return {name: values for name, values in groups.items() if isinstance(values, dict)}


def write_config(folder: Path, config: Config) -> None:
    """Write all settings of the run; raises InputError where there is a config.yaml of the user."""
    import yaml

    check_config_file(folder)
    text = yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)
    write_marked(folder / CONFIG, HEADER, text)


def check_config_file(folder: Path) -> None:
    """Raise InputError where a folder has a config.yaml that no run wrote, or that was changed since."""
    path = folder / CONFIG
    if (path.exists() or path.is_symlink()) and not is_written_by_run(folder):
        raise InputError(
            f"a run writes its settings to {path}, but there is a file that no run wrote, or that was "
            "changed since then; rename it, or choose another output.dir"
        )


def is_written_by_run(folder: Path) -> bool:
    """Return whether a run wrote the config.yaml of a folder, and it is unchanged since then."""
    path = folder / CONFIG
    if path.is_symlink() or not path.is_file() or not (folder / HISTORY).exists():
        return False
    # An empty file, as a power cut leaves it, has nothing to lose
    return path.stat().st_size == 0 or is_marked(path, HEADER)


def write_card(folder: Path, text: str) -> Path | None:
    """Write the card, which begins with its metadata, and return its path. A file that no run wrote, or that
    was changed, stays; without a free name nothing is written."""
    places = [folder / name for name in CARDS]
    free = (path for path in places if is_card_of_run(path) or not (path.is_symlink() or path.exists()))
    path = next(free, None)
    if path is None:
        logger.warning(
            "The model card is not written: %s are files of yours in %s.", " and ".join(CARDS), folder
        )
    else:
        write_marked(path, CARD_HEADER, text)
    return path


def is_card_of_run(path: Path) -> bool:
    """Return whether a run wrote this file, and it is unchanged since then."""
    return is_marked(path, CARD_HEADER)


def cards_of_run(folder: Path) -> list[Path]:
    """Return the current cards in a folder that a run wrote."""
    return [folder / name for name in CARDS if is_card_of_run(folder / name)]
