"""What a run folder says of its run: config.yaml, run_history.json (each start), skipped_rows.csv, and the
model card, README.md."""

from __future__ import annotations

import csv
import json
import logging
import platform
import sys
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.command_line import read_yaml
from ..config.schema import Config
from ..data.cache import content_key, file_digest
from ..errors import InputError
from ..runtime.disk import write_json, write_text
from ..runtime.processes import launcher_id, num_cores

if TYPE_CHECKING:
    from ..data.dataset import Dataset

logger = logging.getLogger(__name__)
CONFIG, HISTORY, SKIPPED, CARD = "config.yaml", "run_history.json", "skipped_rows.csv", "README.md"
APP = Path(__file__).resolve().parents[1]
LIBRARIES = ("torch", "transformers", "tokenizers")


def describe_start(mode: str, world_size: int, device: str) -> dict:
    """Return time, versions, device and command line of this start, so that it can be repeated."""
    import torch

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
        "platform": platform.platform(),
        "python": platform.python_version(),
        **code_version(),
    }


def code_version() -> dict[str, str]:
    """Return what the numbers depend on: a digest of our sources, and the versions of libraries."""
    sources = sorted(path.relative_to(APP).as_posix() for path in APP.rglob("*.py"))
    digest = content_key(*(part for name in sources for part in (name, file_digest(APP / name))))
    # Builds of one version for other devices (2.13.0+cpu) are the same code.
    return {"code": digest} | {name: version(name).partition("+")[0] for name in LIBRARIES}


def write_first_start(folder: Path, config: Config, start: dict, dataset: Dataset) -> None:
    """Write history, settings and skipped rows of a run that starts from the beginning. `start` is that of
    `describe_start`. The history comes first: a folder without it holds no run."""
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
    before = read_settings(folder)
    changed = {
        f"{group}.{key}": [before[group][key], value]
        for group, values in config.to_dict().items()
        for key, value in values.items()
        if (group, key) != ("output", "resume")
        and key in before.get(group, {})
        and before[group][key] != value
    }
    if changed:
        listed = ", ".join(f"{key} was {one} and is {other}" for key, (one, other) in changed.items())
        logger.info("Settings since step %d: %s.", step, listed)
    earlier = read_starts(folder)
    if not earlier:
        logger.warning("%s is damaged and begins with this start", folder / HISTORY)
    write_json(folder / HISTORY, {"starts": [*earlier, {"step": step, **start, "changed": changed}]})
    write_config(folder, config)


def add_finish(folder: Path, weights: str) -> None:
    starts = read_starts(folder)
    if starts:
        starts[-1] |= {"finished": datetime.now().astimezone().isoformat(), "weights": weights}
        write_json(folder / HISTORY, {"starts": starts})


def last_time(folder: Path, key: str) -> float | None:
    """Return the last time in a run's history that has this name, `started` or `finished`, in seconds since
    1970; None where the history has none."""
    times = [start[key] for start in read_starts(folder) if key in start]
    with suppress(ValueError, TypeError, IndexError):
        return datetime.fromisoformat(times[-1]).timestamp()
    return None


def finished_weights(folder: Path) -> str | None:
    starts = read_starts(folder)
    return starts[-1].get("weights") if starts else None


def read_starts(folder: Path) -> list[dict]:
    """Return the starts of a run, the first one first; none where the file is missing or damaged."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        starts = json.loads((folder / HISTORY).read_text(encoding="utf-8"))["starts"]
        if all(isinstance(start, dict) for start in starts):
            return starts
    return []


def read_settings(folder: Path) -> dict[str, dict]:
    """Return the settings of a run by group and name; with a warning none where the file is damaged."""
    try:
        settings = read_yaml(folder / CONFIG)
    except InputError as error:
        logger.warning("The settings of the run cannot be read: %s", error)
        return {}
    groups = settings if isinstance(settings, dict) else {}
    return {name: values for name, values in groups.items() if isinstance(values, dict)}


def write_config(folder: Path, config: Config) -> None:
    import yaml

    text = yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)
    write_text(folder / CONFIG, f"# All settings of this run\n{text}")


def write_card(folder: Path, text: str) -> None:
    write_text(folder / CARD, f"---\n{text}")
