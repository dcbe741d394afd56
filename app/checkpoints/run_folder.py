"""Opening the folder of a run: which one is resumed, and whether a run in it is replaced or in the way."""

import errno
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path

from ..config.schema import OutputConfig
from ..errors import InputError, TrainingError
from ..runtime.disk import is_full
from ..runtime.processes import launcher_id, launcher_start
from .run_files import REPLACED, REPORT, STATES, only_started, remove_run, set_run_aside
from .run_history import HISTORY, check_config_file
from .run_lock import RunLock, check_not_in_use

logger = logging.getLogger(__name__)
CHECKPOINTS = Path("checkpoints")
# seconds, between the machines of a job
CLOCKS_DIFFER = 5.0


def run_to_resume(config: OutputConfig) -> Path | None:
    """Return the folder of the run to resume, or None: an interrupted run where its launcher restarted it or
    `config.resume` is auto; a finished one in `config.dir` where that is auto and the run stays."""
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


def check_run_folder(config: OutputConfig) -> None:
    """Raise InputError for a run folder in use, one that holds anything but a run, or a run that must stay.

    A run may be replaced with `config.overwrite`. With `config.resume`, or where its launcher restarts it, an
    interrupted one is resumed, and a finished one with a training state may be trained for longer.
    """
    folder = Path(config.dir) if config.dir is not None else run_to_resume(config)
    if folder is None:
        return
    if folder.is_symlink() and not folder.exists():
        raise InputError(
            f"output.dir must be a folder, found {folder}, a link to {folder.readlink()}, which is not "
            "there; make that folder, or remove the link"
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"output.dir must be a folder, found the file {folder}")
    check_not_in_use(folder)
    if config.dir is not None:
        check_content(config)
    check_config_file(folder)


def check_content(config: OutputConfig) -> None:
    """Raise InputError as `check_run_folder` does for what is in `config.dir`."""
    folder = Path(config.dir)
    if is_finished(folder) and not config.overwrite and (config.resume != "auto" or not saved_states(folder)):
        raise finished_error(folder)
    # Nothing is lost of a run that was killed at its very start
    if only_started(folder):
        return
    if not holds_run(folder):
        raise InputError(f"{folder} is not empty and holds no run; choose another output.dir")
    if not is_finished(folder) and not config.overwrite and not resumes(config, folder):
        raise unfinished_error(folder)


def unfinished_error(folder: Path) -> InputError:
    """Return the error of an interrupted run that would be removed without being asked to."""
    states = saved_states(folder)
    done = (
        f"its last training state is of step {int(states[0].name[5:])}"
        if states
        else "it has no training state yet"
    )
    return InputError(
        f"{folder} holds a run that is not finished ({done}); continue it with --resume auto, replace it "
        "with --output.overwrite true, or choose another output.dir"
    )


def finished_error(folder: Path) -> InputError:
    """Return the error of a finished run that would be changed without being asked to, with every remedy."""
    longer = (
        "train it for longer with --resume auto and more --train.epochs"
        if saved_states(folder)
        else f"train its model further in a new run with --model.name {folder} (its last training state was "
        "not kept, see output.keep_final_state)"
    )
    return InputError(
        f"{folder} holds a finished run; choose another output.dir, replace the run with --output.overwrite "
        f"true, or {longer}"
    )


def clear_folder(config: OutputConfig) -> None:
    """Set the run in `config.dir` aside, where that is allowed; raises InputError otherwise."""
    check_content(config)
    folder = Path(config.dir)
    if not config.overwrite:
        if is_finished(folder):
            raise finished_error(folder)
        if not only_started(folder):
            raise unfinished_error(folder)
    try:
        if only_started(folder):
            remove_run(folder)
        else:
            set_run_aside(folder)
            logger.info("The run in %s is kept in %s until this one is finished.", folder, folder / REPLACED)
    except OSError as error:
        raise InputError(f"output.dir: the run in {folder} cannot be replaced: {error}") from error


def make_folder(config: OutputConfig) -> Path:
    """Make and return the folder of a new run: `config.dir`, with what is in it, or checkpoints/<name>-001 or
    so. Raises InputError as `check_run_folder` does, and for a folder that cannot be made."""
    if config.dir is None:
        return _next_folder(CHECKPOINTS / str(config.name))
    check_run_folder(config)
    folder = Path(config.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output.dir: the folder {folder} cannot be made: {error}") from error
    return folder


def open_run_folder(config: OutputConfig) -> tuple[Path, bool, RunLock]:
    """Return the folder of this run, whether a run in it is resumed, and the lock that keeps others out."""
    folder = run_to_resume(config)
    if folder is None:
        folder = make_folder(config)
    lock = RunLock(folder)
    try:
        # As it is now that it is locked
        is_resumed = run_to_resume(replace(config, dir=str(folder))) is not None
        if not is_resumed:
            clear_folder(replace(config, dir=str(folder)))
    except BaseException:
        lock.release()
        raise
    return folder, is_resumed, lock


def saved_states(folder: Path) -> list[Path]:
    """Return the training states of a run folder, the newest first."""
    return sorted(
        (path for path in (folder / STATES).glob("step-*") if path.name[5:].isdecimal()), reverse=True
    )


def cannot_write(what: str, error: Exception, folder: Path) -> TrainingError:
    """Return the error of a file that a run could not write: which state is kept, and what to do."""
    if not holds_run(folder):
        return TrainingError(
            f"{what} cannot be written: the run folder {folder} is not there any more; if it was renamed, "
            "resume with --resume auto and its new name as --output.dir; if it was removed, start the "
            "run again"
        )
    states = saved_states(folder)
    kept = (
        f"the training state of step {int(states[0].name[5:])} is kept"
        if states
        else "there is no training state yet"
    )
    remedy = "free space on the disk" if is_full(error) else "make the folder writable"
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        remedy = "raise the limit of open files (ulimit -n)"
    return TrainingError(
        f"{what} cannot be written into {folder}: {error}; {kept}; {remedy} and resume with --resume auto"
    )


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
