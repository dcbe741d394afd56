"""What a run leaves behind, in one folder: model, configuration, environment, metrics, report, predictions."""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

import numpy as np

from app.config.schema import Config, OutputConfig
from app.data.dataset import Dataset
from app.errors import InputError
from app.runtime.disk import write_json, write_text

CHECKPOINTS = Path("checkpoints")
STARTED = ("config.yaml", "environment.json")  # written first: a folder that has both holds a run
REPORT = "report.json"  # written last: a folder that has it is a finished run


def check_run_folder(config: OutputConfig) -> None:
    """Raise InputError for an `output.dir` with a finished run, unless `config.overwrite`, or with anything but a run."""
    folder = Path(config.dir) if config.dir is not None else None
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"output.dir must be a folder, found the file {folder}")
    if (folder / REPORT).exists() and not config.overwrite:
        raise InputError(
            f"{folder} holds a finished run; choose another output.dir, or replace the run with --output.overwrite true"
        )
    # A run that was killed at its very start left no more than these, or one of them half written.
    others = {path.name.removeprefix(".") for path in folder.iterdir()} - set(STARTED)
    if others and not all((folder / name).exists() for name in STARTED):
        raise InputError(f"{folder} is not empty and holds no run; choose another output.dir")


def create_run_folder(config: OutputConfig) -> Path:
    """Return a new folder for a run: `config.dir`, or the next free checkpoints/<name>-001.

    Raises InputError as `check_run_folder` does, and for a folder that cannot be made.
    """
    if config.dir is None:
        return _next_folder(CHECKPOINTS / str(config.name))
    check_run_folder(config)
    folder = Path(config.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():  # of the run that is replaced, or of one that did not finish
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    except OSError as error:
        raise InputError(f"output.dir: the folder {folder} cannot be made: {error}") from error
    return folder


def open_run_folder(config: OutputConfig) -> tuple[Path, bool]:
    """Return the folder of this run, and whether it holds an interrupted run that goes on.

    That is so where the launcher has restarted the processes of this very run, and where `config.resume` is auto.
    """
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
    folder = Path(config.dir) if config.dir else None
    if restarted and folder is None:
        folder = _newest(CHECKPOINTS.glob("*"), launcher=launcher_id())
    elif config.resume == "auto" and folder is None:
        folder = _newest(CHECKPOINTS.glob(f"{config.name}-[0-9]*"))
    if (restarted or config.resume == "auto") and folder is not None and _is_interrupted(folder):
        return folder, True
    return create_run_folder(config), False


def _is_interrupted(folder: Path) -> bool:
    return all((folder / name).exists() for name in STARTED) and not (folder / REPORT).exists()


def _newest(folders: Iterable[Path], launcher: str | None = None) -> Path | None:
    """Return the interrupted run that was started last, of those by `launcher` if that is given."""
    found = []
    for folder in filter(_is_interrupted, folders):
        details = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        if launcher is None or details.get("launcher") == launcher:
            found.append(((folder / "environment.json").stat().st_mtime, folder))
    return max(found)[1] if found else None


def launcher_id() -> str | None:
    """Return what is the same for all processes, first and restarted, of one torchrun job, or None outside of torchrun."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{platform.node()}:{os.getppid()}" if run_id == "none" else run_id


def _next_folder(path: Path) -> Path:
    """Make and return <path>-001, or the next that is free; no two runs get the same."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = path.with_name(f"{path.name}-{number:03d}")
            with suppress(FileExistsError):
                folder.mkdir()
                return folder
    except OSError as error:
        raise InputError(
            f"a run folder cannot be made in {path.parent}: {error}; choose one with --output.dir"
        ) from error
    raise AssertionError("numbers do not end")


def write_start(folder: Path, config: Config, mode: str, world_size: int, device: str, dataset: Dataset) -> None:
    """Write the resolved configuration, the environment and the list of skipped rows."""
    import yaml

    details = environment(mode, world_size, device)
    write_text(folder / "config.yaml", yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False))
    write_json(folder / "environment.json", details)
    if any(table.skipped for table in dataset.tables):
        with (folder / "skipped_rows.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "line", "problem"])
            for table in dataset.tables:
                writer.writerows([table.source, row["line"], row["problem"]] for row in table.skipped_rows())


def environment(mode: str, world_size: int, device: str) -> dict:
    """Return versions, device, commit and command line, for a run that somebody wants to repeat."""
    import torch
    import transformers

    root = Path(__file__).resolve().parents[2]
    git = (
        subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        if shutil.which("git")
        else None
    )
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "launcher": launcher_id(),
        "mode": mode,
        "processes": world_size,
        "device": device,
        "device_name": torch.cuda.get_device_name()
        if device.startswith("cuda")
        else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": git.stdout.strip() if git and git.returncode == 0 else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }
