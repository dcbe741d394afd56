"""Training states on disk: what a run needs to resume.

A training state has weights, optimizer state and progress. Each is a folder, `state/step-00000120`, that is
written aside, synced and renamed, so it is complete or absent. Its manifest has the checksum of every file.
The files are safetensors and JSON only, so that reading one cannot run code, and the same in every mode.
"""

import filecmp
import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..data.cache import MANIFEST
from ..errors import TrainingError, listed
from ..modes.mode import Tensors
from ..runtime.disk import checked_value, checksum, code_in_text, parse_json, sync
from .decision import copy_decision
from .progress import RunProgress
from .run_files import MODEL, STATES, saved_states

logger = logging.getLogger(__name__)
FORMAT = 5
KEPT_STATES = 2  # training states of an unfinished run
PROGRESS = "progress.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
# The run's best model as it was when the state was written
BEST = "best.safetensors"
STATE_FILES = {PROGRESS, WEIGHTS, OPTIMIZER}
# Reading a damaged state raises one of these
DAMAGE = (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, SafetensorError)


@dataclass(frozen=True)
class TrainingState:
    """A training state as it was read from `folder`: tensors by parameter name. `job` is what the run trains
    on, see `job_signature`."""

    progress: RunProgress
    job: dict
    weights: Tensors
    optimizer: Tensors
    folder: Path


def save_training_state(
    folder: Path, progress: RunProgress, job: dict, weights: Tensors, optimizer: Tensors, best: Path | None
) -> None:
    """Write a training state into the run folder, on rank 0; then remove all but the newest two.

    `best` is the file with the best weights so far. The state has a copy of it, and of the decision beside
    it. Raises OSError or SafetensorError where the state cannot be written; earlier states are then
    untouched, and nothing of the new one is left.
    """
    state = folder / STATES / f"step-{progress.step:08d}"
    aside = state.with_name(f".{state.name}")
    # A process that was killed has left these
    for unfinished in (folder / STATES).glob(".step-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    try:
        (folder / STATES).mkdir(exist_ok=True)
        aside.mkdir()
        _write_tensors(aside / WEIGHTS, weights)
        _write_tensors(aside / OPTIMIZER, optimizer)
        values = asdict(progress)
        values["job"] = job
        (aside / PROGRESS).write_text(json.dumps(values, indent=2))
        if best:
            # No link: damage to one state must not reach another
            shutil.copyfile(best, aside / BEST)
            copy_decision(best.parent, aside, progress.best_step)
        checksums = {path.name: checksum(path) for path in sorted(aside.iterdir())}
        (aside / MANIFEST).write_text(json.dumps({"format": FORMAT, "sha256": checksums}, indent=2))
        for path in aside.iterdir():
            sync(path)
        sync(aside)
        shutil.rmtree(state, ignore_errors=True)
        aside.rename(state)
        sync(state.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _drop_older_states(folder, state)


def _write_tensors(path: Path, tensors: Tensors) -> None:
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    # A model has this metadata too, so equal weights are equal files, which `share_weights` needs
    save_file(contiguous, path, metadata={"format": "pt"})


def load_training_state(folder: Path) -> TrainingState | None:
    """Return the newest undamaged training state of a run folder, or None.

    Warns of damaged states, which are renamed, and of states that cannot be read now. Raises TrainingError
    where only such states are left, and for a state of another version.
    """
    states = saved_states(folder)
    problems: list[str] = []
    for state in states:
        try:
            return _read_state(state)
        except (*DAMAGE, OSError) as error:
            if _means_damage(error):
                _rename_damaged(state, error)
            else:
                problems.append(f"{state}: {error}")
                logger.warning("%s cannot be read now and is skipped: %s", state, error)
    if problems:
        raise TrainingError(
            f"a training state must be readable to resume from it, and none is: {problems[0]}; it is not "
            "removed; start again when the disk can be read, or start a new run in another output.dir"
        )
    if states:
        logger.warning("%s has no undamaged training state", folder)
    return None


def _means_damage(error: Exception) -> bool:
    """Return whether an error of `_read_state` means that the state is damaged, not that the disk fails."""
    return isinstance(error, DAMAGE) and code_in_text(error) is None


def _rename_damaged(state: Path, error: Exception) -> None:
    """Rename a damaged state, which must not take the place of a whole one, and warn of it."""
    new_path = state.with_name(f"damaged-{state.name}")
    logger.warning("%s is damaged and is skipped: %s; it is now %s", state, error, new_path.name)
    shutil.rmtree(new_path, ignore_errors=True)
    with suppress(OSError):
        state.rename(new_path)


def _read_state(state: Path) -> TrainingState:
    path = state / MANIFEST
    manifest = parse_json(path.read_text(), path, {"format": int, "sha256": Any}, "")
    if manifest["format"] != FORMAT:
        # It is whole, and not ours to rename
        raise TrainingError(
            f"{state}: a training state of format {FORMAT} is needed, found {manifest['format']}, of another "
            "version of this program; finish the run with that version, or choose another output.dir"
        )
    checksums = checked_value(manifest["sha256"], dict[str, str], path, "'sha256'", "")
    missing = STATE_FILES - checksums.keys()
    if missing:
        raise ValueError(f"{MANIFEST} lacks the checksum of {listed(sorted(missing))}")
    for name, expected in checksums.items():
        if checksum(state / name) != expected:
            raise ValueError(f"{name} has another checksum than when it was written")
    path = state / PROGRESS
    values = parse_json(path.read_text(), path, {"job": dict}, "")
    job = values.pop("job")
    return TrainingState(
        progress=RunProgress(**values),
        job=job,
        weights=load_file(state / WEIGHTS),
        optimizer=load_file(state / OPTIMIZER),
        folder=state,
    )


def _drop_older_states(folder: Path, written: Path) -> None:
    """Remove old training states, so that with the one that was just `written` there are KEPT_STATES. Damaged
    and unfinished ones stay until the run is finished."""
    others = [state for state in saved_states(folder) if state != written]
    for state in others[KEPT_STATES - 1 :]:
        shutil.rmtree(state, ignore_errors=True)


def drop_states(folder: Path, keep: int) -> None:
    """Remove all training states of a finished run but the newest `keep`, also damaged and unfinished ones;
    with 0 their folder too."""
    states_folder = folder / STATES
    old_states = saved_states(folder)[keep:]
    damaged = states_folder.glob("damaged-step-*")
    unfinished = states_folder.glob(".step-*")
    for state in [*old_states, *damaged, *unfinished]:
        shutil.rmtree(state, ignore_errors=True)
    if keep == 0:
        # A folder with other files in it stays
        with suppress(OSError):
            states_folder.rmdir()


def share_weights(folder: Path) -> None:
    """Make files of the training state of a finished run other names of the file of its model, where they are
    equal: the best weights are, and the last ones where the last step was the best. Their bytes are then on
    the disk once. Where the file system has no such links, or the disk cannot be read, the copies stay.

    A run that trains for longer writes a new file for each new best model, so the state keeps these.
    """
    model = folder / MODEL
    for state in saved_states(folder):
        for copy in (state / BEST, state / WEIGHTS):
            link = copy.with_name(f".{copy.name}")
            with suppress(OSError):
                if copy.samefile(model) or not filecmp.cmp(copy, model, shallow=False):
                    continue
                # A process that was killed has left it
                link.unlink(missing_ok=True)
                os.link(model, link)
                link.replace(copy)


def size_of_states(folder: Path) -> int:
    """Return how many bytes are free again without the training states of a run: a file that is also the
    model of the run does not count."""
    model = folder / MODEL
    num_bytes = 0
    for path in (folder / STATES).rglob("*"):
        if path.is_file() and not (model.exists() and path.samefile(model)):
            num_bytes += path.stat().st_size
    return num_bytes
