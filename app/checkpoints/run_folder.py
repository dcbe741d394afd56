"""The folder of a run, and the names of its files. A start gets an empty folder, or that of the run which it
resumes; nothing in it is erased."""

import errno
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
from .run_history import CARD, HISTORY, last_time, read_starts

logger = logging.getLogger(__name__)
CHECKPOINTS = Path("checkpoints")
LOCK = ".lock"
STATES = "state"
# This file has the weights of the best checkpoint so far
MODEL = "model.safetensors"
# A run with LoRA keeps what it trained here, in the best checkpoint so far; peft reads this file.
ADAPTER = "adapter/adapter_model.safetensors"
# It is written last: a folder that has it is a finished run
REPORT = "report.json"
TEXT, PREDICTIONS, PAGE = "report.txt", "predictions.csv", "report.html"
# They are put aside in this order; the card is one of them, as it says what the report says
REPORT_FILES = (LOGITS, DECISION, TEXT, PREDICTIONS, PAGE, REPORT, CARD)


def best_weights(folder: Path, has_adapter: bool) -> Path:
    return folder / (ADAPTER if has_adapter else MODEL)


def run_to_resume(config: OutputConfig) -> Path | None:
    """Return the folder of the run to resume, or None. An interrupted run is resumed where its launcher has
    restarted it, or `config.resume` is auto; a finished one only in `config.dir`, with `config.resume`
    auto."""
    if config.dir is not None:
        folder = Path(config.dir)
        is_asked = config.resume == "auto" or is_restarted(folder) and not is_finished(folder)
        return folder if holds_run(folder) and is_asked else None
    own = [run for run in interrupted(CHECKPOINTS) if is_restarted(run)]
    if config.resume == "auto" and not own:
        # Only folders of this very name are meant: checkpoints/<name>-001, checkpoints/<name>-002, ...
        stem = CHECKPOINTS / str(config.name)
        pattern = re.escape(stem.name) + "-[0-9]{3,}"
        own = [run for run in interrupted(stem.parent) if re.fullmatch(pattern, run.name)]

    def started(run: Path) -> float:
        return last_time(run, "started") or (run / HISTORY).stat().st_mtime

    return max(own, key=started, default=None)


def interrupted(parent: Path) -> Iterator[Path]:
    return (run for run in parent.glob("*") if holds_run(run) and not is_finished(run))


def is_restarted(folder: Path) -> bool:
    """Return whether torchrun has started this process again after the last start of the run in a folder."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) == 0 or launcher_id() is None:
        return False
    starts = read_starts(folder)
    return bool(starts) and starts[-1].get("launcher") == launcher_id()


def holds_run(folder: Path) -> bool:
    return (folder / HISTORY).is_file()


def check_is_there(folder: Path) -> None:
    """Raise OSError where the folder of a run was renamed or removed while it trains."""
    (folder / HISTORY).stat()


def is_finished(folder: Path) -> bool:
    return (folder / REPORT).exists()


def finished_at(folder: Path) -> float | None:
    """Return when a run wrote its last report, in seconds since 1970, or None without one; a run that has
    gone on training since has one too. The time is that in its history, or of the file where that is
    damaged."""
    times = [path.stat().st_mtime for path in folder.glob("report*.json")]
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
    if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
        raise InputError(
            f"output.dir must be a folder, found {folder}, a file or a link to nowhere; choose another one"
        )
    if (folder / LOCK).exists():
        lock_folder(folder).release()
    if config.dir is not None and folder.exists():
        check_content(config)


def check_content(config: OutputConfig) -> None:
    """Raise InputError as `check_run_folder` does, for what is in the folder `config.dir`."""
    folder = Path(config.dir)
    states = saved_states(folder)
    if not holds_run(folder):
        # A run that was killed in its very first write leaves these.
        if {path.name for path in folder.iterdir()} <= {LOCK, f".{HISTORY}"}:
            return
        message = _("{folder} is not empty and holds no run; choose another output.dir")
        raise InputError(message.format(folder=folder))
    if is_finished(folder):
        if config.resume != "auto" or not states:
            raise finished_error(folder)
    elif run_to_resume(config) is None:
        done = _("it has no training state yet")
        if states:
            done = _("its last training state is of step {step}").format(step=step_of(states[0]))
        message = _(
            "{folder} holds a run that is not finished ({done}); continue it with --resume auto, or choose "
            "another output.dir"
        )
        raise InputError(message.format(folder=folder, done=done))


def finished_error(folder: Path) -> InputError:
    message = _(
        "{folder} holds a finished run; choose another output.dir, train it for longer with --resume auto "
        "and more --train.epochs (from its last training state), or start a new run from its model with "
        "--model.name {folder}"
    )
    return InputError(message.format(folder=folder))


def open_run_folder(config: OutputConfig) -> tuple[Path, bool, FileLock]:
    """Return the folder of this run, whether a run in it is resumed, and the lock that keeps others out: the
    run to resume, else `config.dir` or a new checkpoints/<name>-001 or so. Raises InputError as
    `check_run_folder` does, and for a folder that cannot be made."""
    check_run_folder(config)
    folder = run_to_resume(config)
    try:
        folder = folder or _new_folder(config)
    except OSError as error:
        raise InputError(
            f"output.dir: the folder of the run cannot be made: {error}; choose another one"
        ) from error
    lock = lock_folder(folder)
    try:
        # The folder is looked at again, as another process may have changed it before it was locked
        check_content(replace(config, dir=str(folder)))
        return folder, holds_run(folder), lock
    except BaseException:
        lock.release()
        raise


def _new_folder(config: OutputConfig) -> Path:
    path = Path(config.dir or CHECKPOINTS / str(config.name))
    if config.dir is not None:
        path.mkdir(parents=True, exist_ok=True)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = path.with_name(f"{path.name}-{number:03d}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("numbers do not end")


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


def saved_states(folder: Path) -> list[Path]:
    states = (path for path in (folder / STATES).glob("step-*") if path.name[5:].isdecimal())
    return sorted(states, reverse=True)


def step_of(state: Path) -> int:
    return int(state.name[5:])


def cannot_write(error: Exception, folder: Path) -> TrainingError:
    """Return the error of a file that a run could not write: which state is kept, and what to do."""
    if not holds_run(folder):
        return TrainingError(
            f"the run folder {folder} is not there any more; if it was renamed, resume with --resume auto "
            "and its new name as --output.dir; if it was removed, start the run again"
        )
    states = saved_states(folder)
    kept = f"the training state of step {step_of(states[0])} is kept" if states else "no state is there yet"
    remedy = "free space on the disk" if is_full(error) else "let this user read and write there"
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        remedy = "raise the limit of open files (ulimit -n)"
    return TrainingError(
        f"a file of the run {folder} cannot be written: {error}; {kept}; {remedy} and resume with "
        "--resume auto"
    )
