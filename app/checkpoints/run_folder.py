"""Which folder a run gets: an empty one, or that of the run which it resumes. Nothing in it is erased, and a
lock keeps other runs out."""

import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from ..config.schema import OutputConfig
from ..errors import InputError, TrainingError
from ..runtime.disk import is_full
from ..runtime.processes import launcher_id
from .run_files import CHECKPOINTS, HISTORY, LOCK, holds_run, is_finished, saved_states, step_of_state
from .run_history import last_time, read_starts

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFolder:
    """The folder of this run, with the `lock` that keeps others out. It `is_resumed` where it holds a run."""

    path: Path
    is_resumed: bool
    lock: FileLock


def run_to_resume(config: OutputConfig) -> Path | None:
    """Return the folder of the run to resume, or None. An interrupted run is resumed where its launcher has
    restarted it, or `config.resume` is auto; a finished one only in `config.dir`, with auto."""
    if config.dir is None:
        return _newest_run_to_resume(config)
    folder = Path(config.dir)
    if not holds_run(folder):
        return None
    if config.resume == "auto":
        return folder
    if is_restarted(folder) and not is_finished(folder):
        return folder
    return None


def _newest_run_to_resume(config: OutputConfig) -> Path | None:
    """Return the unfinished run that started last, of those that the launcher has restarted; without one, and
    with `config.resume` auto, of those with the name of this run. None without any."""
    stem = CHECKPOINTS / str(config.name)
    folders = {*CHECKPOINTS.glob("*"), *stem.parent.glob("*")}
    unfinished_runs = [run for run in folders if holds_run(run) and not is_finished(run)]
    candidates = [run for run in unfinished_runs if is_restarted(run)]
    if config.resume == "auto" and not candidates:
        # Only folders of this very name are meant: checkpoints/<name>-001, checkpoints/<name>-002, ...
        pattern = re.escape(str(stem)) + "-[0-9]{3,}"
        candidates = [run for run in unfinished_runs if re.fullmatch(pattern, str(run))]
    return max(candidates, key=_started_at, default=None)


def _started_at(run: Path) -> float:
    """Return when a run started last, in seconds since 1970: by its history, or by that file where it is
    damaged."""
    return last_time(run, "started") or (run / HISTORY).stat().st_mtime


def is_restarted(folder: Path) -> bool:
    """Return whether torchrun has started this process again after the last start of the run in a folder."""
    launcher = launcher_id()
    num_restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    if launcher is None or num_restarts == 0:
        return False
    starts = read_starts(folder)
    return bool(starts) and starts[-1].get("launcher") == launcher


def check_run_folder(config: OutputConfig, is_locked: bool = False) -> None:
    """Raise InputError for a folder in use, and for one that is neither empty nor that of a run to resume. An
    interrupted run is resumed with `config.resume`, or where its launcher restarts it; a finished one with a
    training state may be trained for longer."""
    folder = Path(config.dir) if config.dir is not None else run_to_resume(config)
    if folder is None:
        return
    if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
        raise InputError(
            f"output.dir must be a folder, found {folder}, a file or a link to nowhere; choose another one"
        )
    if not is_locked and (folder / LOCK).exists():
        lock_folder(folder).release()
    if config.dir is not None and folder.exists():
        _check_content(folder, config)


def _check_content(folder: Path, config: OutputConfig) -> None:
    """Raise InputError unless `folder`, which is `config.dir`, is empty or holds a run to resume."""
    if not holds_run(folder):
        # A run that was killed in its very first write leaves these
        left_by_start = {LOCK, f".{HISTORY}"}
        names = {path.name for path in folder.iterdir()}
        if not names.issubset(left_by_start):
            raise InputError(f"{folder} is not empty and holds no run; choose another output.dir")
    elif is_finished(folder):
        if config.resume != "auto" or not saved_states(folder):
            raise finished_error(folder)
    elif run_to_resume(config) is None:
        raise InputError(
            f"{folder} holds a run that is not finished; continue it with --resume auto, or choose another "
            "output.dir"
        )


def finished_error(folder: Path) -> InputError:
    """Return the error of a start in the folder of a finished run."""
    return InputError(
        f"{folder} holds a finished run; choose another output.dir, train it for longer with --resume auto "
        "and more --train.epochs (from its last training state), or start a new run from its model with "
        f"--model.name {folder}"
    )


def open_run_folder(config: OutputConfig) -> RunFolder:
    """Return the folder of this run, locked: that of the run to resume, else `config.dir`, else a new
    checkpoints/<name>-001 or so. Raises InputError as `check_run_folder` does, and for a folder that cannot
    be made. The caller releases the lock."""
    check_run_folder(config)
    folder = run_to_resume(config)
    if folder is None and config.dir:
        folder = Path(config.dir)
    try:
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = _make_numbered_folder(str(config.name))
    except OSError as error:
        raise InputError(f"output.dir: its folder cannot be made: {error}; choose another one") from error
    lock = lock_folder(folder)
    try:
        # The folder is looked at again, as another process may have changed it before it was locked
        check_run_folder(replace(config, dir=str(folder)), is_locked=True)
        return RunFolder(folder, is_resumed=holds_run(folder), lock=lock)
    except BaseException:
        lock.release()
        raise


def _make_numbered_folder(name: str) -> Path:
    """Make the first of checkpoints/<name>-001, checkpoints/<name>-002, ... that is free, and return it."""
    stem = CHECKPOINTS / name
    stem.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = stem.with_name(f"{stem.name}-{number:03d}")
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder


def lock_folder(folder: Path) -> FileLock:
    """Return the lock on a run folder, which the system releases when this process ends, however it ends.
    Raises InputError where another process holds it; where there are no locks, a warning says so."""
    lock = FileLock(folder / LOCK)
    try:
        # Another process may be about to release it
        lock.acquire(timeout=1)
    except Timeout as error:
        raise InputError(
            f"a run folder is for one run at a time: {folder} is in use by another one; wait until that run "
            "has ended, stop it, or choose another output.dir"
        ) from error
    except (OSError, NotImplementedError) as error:
        logger.warning("%s cannot be locked (%s): start no second run in it.", folder, error)
    return lock


def cannot_write(error: Exception, folder: Path) -> TrainingError:
    """Return the error of a file that a run could not write: which state is there, and what to do."""
    if not holds_run(folder):
        return TrainingError(
            f"the run folder {folder} is not there any more; if it was renamed, resume with --resume auto "
            "and its new name as --output.dir; if it was removed, start the run again"
        )
    states = saved_states(folder)
    if states:
        newest_state = f"the training state of step {step_of_state(states[0])} is kept"
    else:
        newest_state = "none is there yet"
    remedy = "free space on the disk" if is_full(error) else "fix that"
    problem = f"a file of the run {folder} cannot be written: {error}; {newest_state}"
    return TrainingError(f"{problem}; {remedy} and resume with --resume auto")
