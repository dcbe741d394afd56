"""What a run folder says of its run: every start (run_history.json), the settings, and the skipped rows."""

import logging
import platform
import sys
from contextlib import suppress
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import yaml

from ..config.earlier_values import with_present_names
from ..config.schema import Config
from ..config.yaml_files import read_yaml
from ..data.cache import files_digest
from ..data.dataset import Dataset
from ..data.table import Table
from ..errors import InputError
from ..runtime.disk import parse_json, write_frame, write_json, write_text
from ..runtime.processes import launcher_id
from .run_files import CONFIG, HISTORY, SKIPPED

logger = logging.getLogger(__name__)
# In the first start of a run: the columns of its train file that hold text, text_pair and label
TRAIN_COLUMNS = "train_columns"
# Versions of these libraries decide numbers of a run. The batch plan depends on NumPy's generator, which
# promises no stream of its permutations.
LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")


def describe_start(mode: str, world_size: int, device: str) -> dict[str, Any]:
    """Return time, versions, device and command line of this start, so that it can be repeated."""
    import torch

    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "launcher": launcher_id(),
        "mode": mode,
        "processes": world_size,
        "device": device,
        "cores": joblib.cpu_count(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **code_version(),
    }


@cache
def code_version() -> dict[str, str]:
    """Return what the numbers depend on: a digest of our sources, and the versions of libraries."""
    versions = {"code": files_digest(Path(__file__).resolve().parents[1], "**/*.py")}
    for name in LIBRARIES:
        # Builds of one version for other devices (2.13.0+cpu) are the same code
        versions[name] = version(name).partition("+")[0]
    return versions


def write_start(
    folder: Path, config: Config, start: dict[str, Any], dataset: Dataset, step: int | None = None
) -> None:
    """Write that a run starts, or resumes after `step`.

    `start` is that of `describe_start`. The history gets it, with the settings that have changed; the
    settings are written, and by the first start the skipped rows. The history comes first: a folder without
    it holds no run.
    """
    entry = {"step": step or 0, **start}
    if step is None:
        earlier_starts = []
        entry[TRAIN_COLUMNS] = dataset.files["train"].column_names
    else:
        saved_settings = read_settings(folder)
        earlier_starts = read_starts(folder)
        if not earlier_starts:
            logger.warning("%s is damaged and begins with this start", folder / HISTORY)
        changed = _changed_settings(saved_settings, config)
        entry["changed"] = changed
        _log_changed_settings(changed, step)
        if earlier_starts:
            _log_other_versions(earlier_starts[-1], start, step)
    write_json(folder / HISTORY, {"starts": [*earlier_starts, entry]})
    text = yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)
    write_text(folder / CONFIG, f"# All settings of this run\n{text}")
    if step is None:
        _write_skipped_rows(folder, dataset.tables)


def _changed_settings(before: dict[str, Any], config: Config) -> dict[str, list]:
    """Return value before and value now of each setting that has changed, by dotted name."""
    changed = {}
    for name, value in flat_settings(config.to_dict()).items():
        if name in before and before[name] != value and name != "output.resume":
            changed[name] = [before[name], value]
    return changed


def _log_changed_settings(changed: dict[str, list], step: int) -> None:
    changes = [f"{name} was {before} and is {now}" for name, (before, now) in changed.items()]
    if changes:
        logger.info("Settings since step %d: %s.", step, ", ".join(changes))


def _log_other_versions(before: dict[str, Any], now: dict[str, Any], step: int) -> None:
    """Log which versions of `code_version` are others than at the start before; starts of older versions of
    this program do not have all of them."""
    changes = []
    for name in code_version():
        if name in before and before[name] != now[name]:
            changes.append(f"{name} was {before[name]!s:.12} and is {now[name]!s:.12}")
    if changes:
        listed = ", ".join(changes)
        logger.info("Versions since step %d: %s; they may compute other bits.", step, listed)


def _write_skipped_rows(folder: Path, tables: list[Table]) -> None:
    """Write the rows that were skipped as invalid, where there are any."""
    skipped_rows = []
    for table in tables:
        if table.skipped:
            skipped_rows.extend(table.skipped_rows())
    if skipped_rows:
        import pandas as pd

        frame = pd.DataFrame(skipped_rows, columns=["file", "line", "problem"])
        write_frame(folder / SKIPPED, frame)


def read_starts(folder: Path) -> list[dict[str, Any]]:
    """Return the starts of a run, the first one first; none where the file is missing or damaged."""
    path = folder / HISTORY
    try:
        text = path.read_text(encoding="utf-8")
        return parse_json(text, path, {"starts": list[dict]}, "")["starts"]
    except (OSError, ValueError):
        return []


def add_to_last_start(folder: Path, values: dict[str, Any]) -> None:
    """Add values to the last start in the history of a run; a damaged history stays as it is."""
    starts = read_starts(folder)
    if starts:
        starts[-1] |= values
        write_json(folder / HISTORY, {"starts": starts})


def last_time(folder: Path, name: str) -> float | None:
    """Return the last time of this name, `started` or `finished`, in seconds since 1970; None without one."""
    times = [start[name] for start in read_starts(folder) if name in start]
    with suppress(ValueError, TypeError, IndexError):
        return datetime.fromisoformat(times[-1]).timestamp()
    return None


def finished_at(folder: Path) -> float | None:
    """Return when a run wrote its last report, in seconds since 1970, or None without one: the time in its
    history, or of the file where that is damaged. A run that has gone on training since has one too."""
    file_times = [path.stat().st_mtime for path in folder.glob("report*.json")]
    if not file_times:
        return None
    return last_time(folder, "finished") or max(file_times)


def flat_settings(groups: dict[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name."""
    by_name = {}
    for group, settings in groups.items():
        if isinstance(settings, dict):
            for key, value in settings.items():
                by_name[f"{group}.{key}"] = value
    return by_name


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a run by dotted name; with a warning none where the file is damaged."""
    try:
        settings = read_yaml(folder / CONFIG)
    except InputError as error:
        logger.warning("The settings of the run cannot be read: %s", error)
        return {}
    if not isinstance(settings, dict):
        return {}
    return with_present_names(flat_settings(settings))
