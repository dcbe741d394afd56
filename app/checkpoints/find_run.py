"""Which run a new start resumes: the one in output.dir, the newest of its name, or that of its launcher."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from ..config.schema import OutputConfig
from ..runtime.processes import launcher_id, launcher_start
from .run_files import REPORT
from .run_history import HISTORY

CHECKPOINTS = Path("checkpoints")
# seconds, between the machines of a job
CLOCKS_DIFFER = 5.0


def run_to_resume(config: OutputConfig) -> Path | None:
    """Return the folder of the run to resume, or None.

    An interrupted run is resumed where its launcher has restarted it, and where `config.resume` is auto; a
    finished run in `config.dir` where `config.resume` is auto and it stays.
    """
    if config.dir is None:
        own = [run for run in interrupted(CHECKPOINTS) if is_of_this_launcher(run)] if is_restarted() else []
        return newest(own or (named(config.name) if config.resume == "auto" else []))
    folder = Path(config.dir)
    if not holds_run(folder):
        return None
    continues = config.resume == "auto" and not config.overwrite
    return folder if (continues if is_finished(folder) else resumes(config, folder)) else None


def named(name: str | None) -> list[Path]:
    """Return the interrupted runs checkpoints/<name>-001, checkpoints/<name>-002, ... of this very name."""
    stem = CHECKPOINTS / str(name)
    pattern = re.escape(stem.name) + "-[0-9]{3,}"
    return [run for run in interrupted(stem.parent) if re.fullmatch(pattern, run.name)]


def interrupted(parent: Path) -> Iterator[Path]:
    """Yield the folders with a run that is not finished."""
    return (run for run in parent.glob("*") if holds_run(run) and not is_finished(run))


def resumes(config: OutputConfig, folder: Path) -> bool:
    """Return whether the interrupted run in a folder is resumed: by setting, or restarted by its launcher."""
    return config.resume == "auto" or (is_restarted() and is_of_this_launcher(folder))


def is_restarted() -> bool:
    """Return whether torchrun has started the processes of this job again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0


def is_of_this_launcher(folder: Path) -> bool:
    """Return whether this process's launcher made the run's last start, not another with its rdzv_id."""
    try:
        start = json.loads((folder / HISTORY).read_text(encoding="utf-8"))["starts"][-1]
        if launcher_id() is None or start["launcher"] != launcher_id():
            return False
        since = launcher_start()
        return since is None or datetime.fromisoformat(start["started"]).timestamp() > since - CLOCKS_DIFFER
    except (OSError, ValueError, TypeError, LookupError):
        # Another run's file, damaged
        return False


def newest(runs: list[Path]) -> Path | None:
    """Return the run that was started last, or None."""
    return max(runs, key=lambda run: (run / HISTORY).stat().st_mtime, default=None)


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run, finished or not."""
    return (folder / HISTORY).is_file()


def check_is_there(folder: Path) -> None:
    """Raise OSError where the folder of a run was renamed or removed while it trains."""
    (folder / HISTORY).stat()


def is_finished(folder: Path) -> bool:
    """Return whether the run in a folder has written its report."""
    return (folder / REPORT).exists()
