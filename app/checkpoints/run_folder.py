"""The folder of a run: the names of its files, which run a start resumes, and what it says of its starts
(run_history.json). A start gets an empty folder, or that of the run which it resumes; nothing is erased."""

import logging
import os
import platform
import re
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cache
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import joblib
import yaml
from filelock import FileLock, Timeout

from ..config.schema import Config, OutputConfig
from ..config.yaml_files import read_yaml
from ..data.cache import files_digest
from ..errors import InputError, TrainingError, excerpt
from ..report.logits_file import LOGITS
from ..runtime.disk import checked_value, checksum, is_full, parse_json, whole_file, write_json, write_text
from ..runtime.processes import launcher_id
from ..tasks.task import DECISION
from ..words import _

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
TEXT, PREDICTIONS, PAGE, CARD = "report.txt", "predictions.csv", "report.html", "README.md"
# They are put aside in this order; the card is one of them, as it says what the report says
REPORT_FILES = (LOGITS, TEXT, PREDICTIONS, PAGE, REPORT, CARD)
CONFIG, HISTORY, SKIPPED = "config.yaml", "run_history.json", "skipped_rows.csv"
# The answers of a model, and what is said of it, depend on these files
RECORDED = (MODEL, "model-*.safetensors", f"{MODEL}.index.json", "config.json", DECISION, LOGITS)
RECORDED += ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
RECORDED += ("vocab.*", "merges.txt", "*.model")
# The answer to a text depends on these settings; those that say where texts are in a file may be edited
ANSWERING = ("data.task", "data.max_length", "data.long", "data.max_windows", "data.remove_spaces")


def best_weights(folder: Path, has_adapter: bool) -> Path:
    return folder / (ADAPTER if has_adapter else MODEL)


def run_to_resume(config: OutputConfig) -> Path | None:
    """Return the folder of the run to resume, or None. An interrupted run is resumed where its launcher has
    restarted it, or `config.resume` is auto; a finished one only in `config.dir`, with auto."""
    if config.dir is not None:
        folder = Path(config.dir)
        is_asked = config.resume == "auto" or is_restarted(folder) and not is_finished(folder)
        return folder if holds_run(folder) and is_asked else None
    stem = CHECKPOINTS / str(config.name)
    folders = {*CHECKPOINTS.glob("*"), *stem.parent.glob("*")}
    runs = [run for run in folders if holds_run(run) and not is_finished(run)]
    own = [run for run in runs if is_restarted(run)]
    if config.resume == "auto" and not own:
        # Only folders of this very name are meant: checkpoints/<name>-001, checkpoints/<name>-002, ...
        pattern = re.escape(str(stem)) + "-[0-9]{3,}"
        own = [run for run in runs if re.fullmatch(pattern, str(run))]
    times = {run: last_time(run, "started") or (run / HISTORY).stat().st_mtime for run in own}
    return max(times, key=times.get, default=None)


def is_restarted(folder: Path) -> bool:
    """Return whether torchrun has started this process again after the last start of the run in a folder."""
    launcher, starts = launcher_id(), read_starts(folder)
    is_again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
    return bool(launcher and is_again and starts) and starts[-1].get("launcher") == launcher


def holds_run(folder: Path) -> bool:
    return os.path.isfile(folder / HISTORY)  # noqa: PTH113 - also in a folder that may not be entered


def is_finished(folder: Path) -> bool:
    return (folder / REPORT).exists()


def finished_at(folder: Path) -> float | None:
    """Return when a run wrote its last report, in seconds since 1970, or None without one: the time in its
    history, or of the file where that is damaged. A run that has gone on training since has one too."""
    times = [path.stat().st_mtime for path in folder.glob("report*.json")]
    return (last_time(folder, "finished") or max(times)) if times else None


def keep_reports(folder: Path, step: int) -> None:
    """Put the report of a finished run aside, under names with its last step, before the run is changed. Its
    decision is copied: it stays with the best model for as long as that is the best."""
    decision = folder / DECISION
    if is_finished(folder) and decision.exists():
        with whole_file(name_with_step(decision, step)) as copy:
            copy.write(decision.read_bytes())
    for path in (folder / name for name in REPORT_FILES):
        if path.exists():
            path.rename(name_with_step(path, step))


def name_with_step(path: Path, step: int) -> Path:
    return path.with_name(f"{path.stem}.step-{step}{path.suffix}")


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
    if config.dir is None or not folder.exists():
        return
    if not holds_run(folder):
        # A run that was killed in its very first write leaves these.
        if not {path.name for path in folder.iterdir()} <= {LOCK, f".{HISTORY}"}:
            message = _("{folder} is not empty and holds no run; choose another output.dir")
            raise InputError(message.format(folder=folder))
    elif is_finished(folder):
        if config.resume != "auto" or not saved_states(folder):
            raise finished_error(folder)
    elif run_to_resume(config) is None:
        message = _(
            "{folder} holds a run that is not finished; continue it with --resume auto, or choose another "
            "output.dir"
        )
        raise InputError(message.format(folder=folder))


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
    folder = run_to_resume(config) or (config.dir and Path(config.dir))
    try:
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            stem = CHECKPOINTS / str(config.name)
            stem.parent.mkdir(parents=True, exist_ok=True)
            for number in count(1):
                folder = stem.with_name(f"{stem.name}-{number:03d}")
                with suppress(FileExistsError):
                    folder.mkdir()
                    break
    except OSError as error:
        raise InputError(f"output.dir: its folder cannot be made: {error}; choose another one") from error
    lock = lock_folder(folder)
    try:
        # The folder is looked at again, as another process may have changed it before it was locked
        check_run_folder(replace(config, dir=str(folder)), is_locked=True)
        return folder, holds_run(folder), lock
    except BaseException:
        lock.release()
        raise


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


def cannot_write(error: Exception, folder: Path) -> TrainingError:
    """Return the error of a file that a run could not write: which state is kept, and what to do."""
    if not holds_run(folder):
        return TrainingError(
            f"the run folder {folder} is not there any more; if it was renamed, resume with --resume auto "
            "and its new name as --output.dir; if it was removed, start the run again"
        )
    states = saved_states(folder)
    kept = f"the training state of step {int(states[0].name[5:])} is kept" if states else "none is there yet"
    remedy = "free space on the disk" if is_full(error) else "fix that"
    problem = f"a file of the run {folder} cannot be written: {error}; {kept}"
    return TrainingError(f"{problem}; {remedy} and resume with --resume auto")


def describe_start(mode: str, world_size: int, device: str) -> dict:
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
    digest = files_digest(Path(__file__).resolve().parents[1], "**/*.py")
    # Builds of one version for other devices (2.13.0+cpu) are the same code.
    # The batch plan depends on NumPy's generator, which promises no stream of its permutations
    libraries = ("torch", "transformers", "tokenizers", "numpy")
    return {"code": digest} | {name: version(name).partition("+")[0] for name in libraries}


def write_start(folder: Path, config: Config, start: dict, dataset, step: int | None = None) -> None:
    """Write that a run starts, or resumes after `step`: its history, with the settings that have changed, its
    settings, and at first its skipped rows. `start` is that of `describe_start`. The history comes first: a
    folder without it holds no run."""
    starts, entry = [], {"step": step or 0, **start}
    if step is not None:
        starts, before = read_starts(folder), read_settings(folder)
        if not starts:
            logger.warning("%s is damaged and begins with this start", folder / HISTORY)
        entry["changed"] = changed = {
            key: [before[key], value]
            for key, value in flat_settings(config.to_dict()).items()
            if key in before and before[key] != value and key != "output.resume"
        }
        if changed:
            listed = ", ".join(f"{key} was {one} and is {other}" for key, (one, other) in changed.items())
            logger.info("Settings since step %d: %s.", step, listed)
        if starts:
            log_other_versions(starts[-1], start, step)
    write_json(folder / HISTORY, {"starts": [*starts, entry]})
    text = yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False)
    write_text(folder / CONFIG, f"# All settings of this run\n{text}")
    tables = dataset.tables if step is None else []
    if skipped := [row for table in tables if table.skipped for row in table.skipped_rows()]:
        import pandas as pd

        table = pd.DataFrame(skipped, columns=["file", "line", "problem"])
        write_text(folder / SKIPPED, table.to_csv(index=False))


def log_other_versions(before: dict, now: dict, step: int) -> None:
    """Log which versions of `code_version` are others than at the start before; starts of older versions of
    this program do not have all of them."""
    differences = []
    for name in code_version():
        if name in before and before[name] != now[name]:
            differences.append(f"{name} was {before[name]!s:.12} and is {now[name]!s:.12}")
    if differences:
        listed = ", ".join(differences)
        logger.info("Versions since step %d: %s; they may compute other bits.", step, listed)


def add_finish(folder: Path) -> None:
    """Note in the history when the run has finished, and the SHA-256 of the files of its model."""
    _add_to_last_start(folder, {"finished": datetime.now().astimezone().isoformat()})
    add_record(folder)


def add_record(folder: Path) -> None:
    """Note the SHA-256 of the files of the model in the history, and the settings on which answers depend.
    Nothing of the run changes them later."""
    digests = {path.name: checksum(path) for path in recorded_files(folder)}
    settings = read_settings(folder)
    answering = {name: settings[name] for name in ANSWERING if name in settings}
    _add_to_last_start(folder, {"sha256": digests, "settings": answering})


def _add_to_last_start(folder: Path, values: dict[str, Any]) -> None:
    starts = read_starts(folder)
    if starts:
        starts[-1] |= values
        write_json(folder / HISTORY, {"starts": starts})


def recorded_files(folder: Path) -> list[Path]:
    """Return the files in a folder on which the answers of its model depend."""
    paths = {path for pattern in RECORDED for path in folder.glob(pattern)}
    return sorted(path for path in paths if path.is_file())


def check_record(folder: Path, *names: str) -> None:
    """Raise InputError unless the files of the model of a run, or those of them with these `names`, are as
    the training wrote them. A warning says where a run has no record of them, or one of its weights only. A
    checkpoint of another program has none, and passes."""
    is_run = any((folder / name).exists() for name in (HISTORY, REPORT, LOCK, STATES))
    if not is_run:
        return
    starts = read_starts(folder)
    if not starts:
        logger.warning(
            "%s has the SHA-256 of the files of this run, and is not there or damaged: they are not checked.",
            folder / HISTORY,
        )
        return
    record = starts[-1].get("sha256")
    if record is None and starts[-1].get("weights") is not None:
        logger.warning("%s: an earlier version recorded the weights only; no other file is checked.", folder)
        record = {path.name: None for path in recorded_files(folder)} | {MODEL: starts[-1]["weights"]}
    if record is None:
        logger.warning("%s: the run has not finished, so its files are not checked.", folder)
        return
    remedy = "copy the folder again"
    checked_value(record, dict[str, str | None], folder / HISTORY, "'sha256'", remedy)
    if not names:
        settings = checked_value(starts[-1].get("settings", {}), dict, folder / HISTORY, "'settings'", remedy)
        _check_settings(folder, settings)
    present = {path.name: path for path in recorded_files(folder)}
    for name in names or sorted({*record, *present}):
        expected = record.get(name, "none")
        if expected is None:
            # It was changed on purpose
            continue
        found = checksum(present[name]) if name in present else "none"
        if expected != found:
            raise InputError(
                f"{folder / name}: the files of a run must be those that the training wrote (SHA-256 "
                f"{expected[:12]}), found {found[:12]}: this one is damaged, replaced, removed or added; "
                f"{remedy} or, if it was changed on purpose, write null in place of its SHA-256 (in "
                f'"sha256" of the last start in {folder / HISTORY})'
            )


def _check_settings(folder: Path, recorded: dict[str, Any]) -> None:
    """Raise InputError unless the settings of a run that are `recorded`, by dotted name, are the same now."""
    settings = read_settings(folder) if recorded else {}
    for name, expected in recorded.items():
        found = settings.get(name)
        if found != expected:
            raise InputError(
                f"{folder / CONFIG}: {name} must be as in the training, {excerpt(expected)}, found "
                f"{excerpt(found)}; correct it or, if it was changed on purpose, remove it from "
                f'"settings" of the last start in {folder / HISTORY}'
            )


def last_time(folder: Path, key: str) -> float | None:
    """Return the last time of this name, `started` or `finished`, in seconds since 1970; None without one."""
    times = [start[key] for start in read_starts(folder) if key in start]
    with suppress(ValueError, TypeError, IndexError):
        return datetime.fromisoformat(times[-1]).timestamp()
    return None


def read_starts(folder: Path) -> list[dict]:
    """Return the starts of a run, the first one first; none where the file is missing or damaged."""
    path = folder / HISTORY
    try:
        text = path.read_text(encoding="utf-8")
        return parse_json(text, path, {"starts": list[dict]}, "")["starts"]
    except (OSError, ValueError):
        return []


def flat_settings(groups: dict[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name."""
    groups = {name: settings for name, settings in groups.items() if isinstance(settings, dict)}
    return {f"{name}.{key}": value for name, settings in groups.items() for key, value in settings.items()}


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a run by dotted name; with a warning none where the file is damaged."""
    try:
        settings = read_yaml(folder / CONFIG)
    except InputError as error:
        logger.warning("The settings of the run cannot be read: %s", error)
        settings = None
    return flat_settings(settings) if isinstance(settings, dict) else {}
