"""What a run folder says of each start of its run: the settings, the environment, and which rows were
skipped."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

from ..config.schema import Config
from ..config.yaml_files import read_yaml
from ..data.dataset import Dataset
from ..errors import InputError
from ..runtime.disk import write_json
from .run_config import ENVIRONMENT, settings_file, write_config

logger = logging.getLogger(__name__)
# In environment.json: the starts after the first one
RESUMED = "resumed"
# Settings that say nothing of the run itself
OF_A_START = ("output.resume", "output.overwrite")


def write_start(folder: Path, config: Config, details: dict, dataset: Dataset) -> None:
    """Write settings, environment and the list of skipped rows of a run that starts from the beginning.

    `details` are those of `app.checkpoints.environment`.
    """
    write_config(folder, config)
    write_json(folder / ENVIRONMENT, details)
    if any(table.skipped for table in dataset.tables):
        with (folder / "skipped_rows.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "line", "problem"])
            for table in dataset.tables:
                writer.writerows([table.source, row["line"], row["problem"]] for row in table.skipped_rows())


def write_resumed(folder: Path, config: Config, details: dict, step: int) -> None:
    """Write the settings of a run that resumes after `step`, and add this start, with what has changed, to
    its environment."""
    changed = changed_settings(folder, config)
    if changed:
        listed = ", ".join(f"{key} was {before} and is {now}" for key, (before, now) in changed.items())
        logger.info("Settings since step %d: %s.", step, listed)
    first = read_environment(folder)
    starts = first.get(RESUMED)
    entry = {"step": step, **details, "changed": changed}
    write_json(
        folder / ENVIRONMENT, first | {RESUMED: [*(starts if isinstance(starts, list) else []), entry]}
    )
    write_config(folder, config)


def changed_settings(folder: Path, config: Config) -> dict[str, list]:
    """Return the settings of a run folder that are other ones now: by name, the value before and the value
    now."""
    try:
        _, before = read_yaml(settings_file(folder))
    except InputError as error:
        logger.warning("The settings before cannot be read, and are replaced: %s", error)
        return {}
    before = before if isinstance(before, dict) else {}
    sections = {name: before[name] for name in before if isinstance(before[name], dict)}
    return {
        f"{group}.{key}": [sections[group][key], value]
        for group, values in config.to_dict().items()
        for key, value in values.items()
        if f"{group}.{key}" not in OF_A_START
        and key in sections.get(group, {})
        and sections[group][key] != value
    }


def read_environment(folder: Path) -> dict:
    """Return what environment.json says, or with a warning nothing where it is damaged."""
    try:
        values = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
        if isinstance(values, dict):
            return values
        problem = f"an object is needed, found {type(values).__name__}"
    except ValueError as error:
        problem = str(error)
    logger.warning("%s is damaged and begins with this start: %s", folder / ENVIRONMENT, problem)
    return {}
