"""The folder of a run, and its files by name: an empty folder, or that of the run which this start resumes.
Nothing in it is erased."""

import errno
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from ..config.schema import OutputConfig
from ..errors import InputError, TrainingError
from ..report.logits_file import LOGITS
from ..runtime.disk import is_full
from ..runtime.processes import launcher_id
from ..tasks.task import DECISION
from ..words import _
from .run_history import CARD, HISTORY, last_time

logger = logging.getLogger(__name__)
CHECKPOINTS = Path("checkpoints")
LOCK = ".lock"
STATES = "state"
# The weights of the best checkpoint so far
MODEL = "model.safetensors"
# A run with LoRA keeps what it trained here, in the best checkpoint so far; peft reads this file.
ADAPTER = "adapter/adapter_model.safetensors"
# Written last: a folder that has it is a finished run
REPORT = "report.json"
TEXT, PREDICTIONS, PAGE = "report.txt", "predictions.csv", "report.html"
# In the order in which they are written and put aside; the card says what the report says
REPORT_FILES = (LOGITS, DECISION, TEXT, PREDICTIONS, PAGE, REPORT, CARD)


def best_weights(folder: Path, has_adapter: bool) -> Path:
    """Return the file with the trained weights of the best checkpoint so far of a run."""
    return folder / (ADAPTER if has_adapter else MODEL)


def run_to_resume(config: OutputConfig) -> Path | None:
    """Return the folder of the run to resume, or None: an interrupted run where its launcher restarted it or
    `config.resume` is auto; a finished one in `config.dir` where that is auto."""
    if config.dir is None:
        own = [run for run in interrupted(CHECKPOINTS) if is_restarted(run)]
        if own or config.resume != "auto":
            return newest(own)
        # checkpoints/<name>-001, checkpoints/<name>-002, ... of this very name
        stem = CHECKPOINTS / str(config.name)
        pattern = re.escape(stem.name) + "-[0-9]{3,}"
        return newest([run for run in interrupted(stem.parent) if re.fullmatch(pattern, run.name)])
    folder = Path(config.dir)
    if not holds_run(folder):
        return None
    is_asked = config.resume == "auto" if is_finished(folder) else resumes(config, folder)
    return folder if is_asked else None


def interrupted(parent: Path) -> Iterator[Path]:
    """Yield the folders with a run that is not finished."""
    return (run for run in parent.glob("*") if holds_run(run) and not is_finished(run))


def resumes(config: OutputConfig, folder: Path) -> bool:
    """Return whether the interrupted run in a folder is resumed: by setting, or restarted by its launcher."""
    return config.resume == "auto" or is_restarted(folder)


def is_restarted(folder: Path) -> bool:
    """Return whether torchrun has started this process again after the last start of the run in a folder."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) == 0 or launcher_id() is None:
        return False
    # Another run's file may be damaged
    with suppress(OSError, ValueError, TypeError, LookupError):
        start = json.loads((folder / HISTORY).read_text(encoding="utf-8"))["starts"][-1]
        return start["launcher"] == launcher_id()
    return False


def newest(runs: list[Path]) -> Path | None:
    """Return the run that was started last, or None. A copy of a folder was started when the run was."""

    def started(run: Path) -> tuple[float, float]:
        written = (run / HISTORY).stat().st_mtime
        return last_time(run, "started") or written, written

    return max(runs, key=started, default=None)


def holds_run(folder: Path) -> bool:
    """Return whether a folder holds a run, finished or not."""
    return (folder / HISTORY).is_file()


def check_is_there(folder: Path) -> None:
    """Raise OSError where the folder of a run was renamed or removed while it trains."""
    (folder / HISTORY).stat()


def is_finished(folder: Path) -> bool:
    """Return whether the run in a folder has written its report."""
    return (folder / REPORT).exists()


def finished_at(folder: Path) -> float | None:
    """Return when a run wrote its last report, in seconds since 1970, or None; also of one that trains on
    since. Its history says so, and the time of the file where that is damaged."""
    stem, suffix = REPORT.split(".")
    times = [path.stat().st_mtime for path in folder.glob(f"{stem}*.{suffix}")]
    return (last_time(folder, "finished") or max(times)) if times else None


def keep_reports(folder: Path, step: int) -> None:
    """Put the report of a finished run aside, under names with its last step, before the run is changed."""
    for path in (folder / name for name in REPORT_FILES):
        if path.exists():
            path.rename(path.with_name(f"{path.stem}.step-{step}{path.suffix}"))


def check_run_folder(config: OutputConfig) -> None:
    """Raise InputError for a folder in use, and for one that is neither empty nor that of a run to resume.

    An interrupted run is resumed with `config.resume`, or where its launcher restarts it; a finished one with
    a training state may be trained for longer.
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
    if (folder / LOCK).exists():
        lock_folder(folder).release()
    if config.dir is not None:
        check_content(config)


def check_content(config: OutputConfig) -> None:
    """Raise InputError as `check_run_folder` does for what is in `config.dir`."""
    folder = Path(config.dir)
    states = saved_states(folder)
    # A run that was killed in its very first write leaves these.
    is_empty = {path.name for path in folder.iterdir()} <= {LOCK, f".{HISTORY}"}
    if not (is_empty or holds_run(folder)):
        raise InputError(
            _("{folder} is not empty and holds no run; choose another output.dir").format(folder=folder)
        )
    if is_finished(folder) and not (config.resume == "auto" and states):
        raise finished_error(folder)
    if holds_run(folder) and not is_finished(folder) and not resumes(config, folder):
        done = (
            _("its last training state is of step {step}").format(step=int(states[0].name[5:]))
            if states
            else _("it has no training state yet")
        )
        raise InputError(
            _(
                "{folder} holds a run that is not finished ({done}); continue it with --resume auto, or "
                "choose another output.dir"
            ).format(folder=folder, done=done)
        )


def finished_error(folder: Path) -> InputError:
    """Return the error of a finished run that would be changed without being asked to, with every remedy."""
    if saved_states(folder):
        said = _(
            "{folder} holds a finished run; choose another output.dir, or train it for longer with --resume "
            "auto and more --train.epochs"
        )
    else:
        said = _(
            "{folder} holds a finished run; choose another output.dir, or train its model further in a new "
            "run with --model.name {folder} (its last training state is not there any "
            "more)"
        )
    return InputError(said.format(folder=folder))


def make_folder(config: OutputConfig) -> Path:
    """Make and return the folder of a new run: `config.dir`, or checkpoints/<name>-001 or so. Raises
    InputError as `check_run_folder` does, and for a folder that cannot be made."""
    if config.dir is None:
        return _next_folder(CHECKPOINTS / str(config.name))
    check_run_folder(config)
    folder = Path(config.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output.dir: the folder {folder} cannot be made: {error}") from error
    return folder


def open_run_folder(config: OutputConfig) -> tuple[Path, bool, FileLock]:
    """Return the folder of this run, whether a run in it is resumed, and the lock that keeps others out."""
    folder = run_to_resume(config) or make_folder(config)
    lock = lock_folder(folder)
    try:
        # As it is now that it is locked
        config = replace(config, dir=str(folder))
        check_content(config)
        is_resumed = run_to_resume(config) is not None
    except BaseException:
        lock.release()
        raise
    return folder, is_resumed, lock


def lock_folder(folder: Path) -> FileLock:
    """Return the lock on a run folder, which the system releases when this process ends, however it ends.
    Raises InputError where another process holds it; where there are no locks, a warning says so."""
    lock = FileLock(folder / LOCK)
    try:
        # A holder may be just ending
        lock.acquire(timeout=1)
    except Timeout as error:
        raise InputError(
            f"a run folder is for one run at a time: {folder} is in use by another one; wait until that run "
            "has ended, stop it, or choose another output.dir"
        ) from error
    except (OSError, NotImplementedError) as error:
        logger.warning("%s cannot be locked (%s): start no second run in it.", folder, error)
    return lock


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
