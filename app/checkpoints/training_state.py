"""Training state on disk, from which a run goes on: weights, optimizer state and progress, by parameter name.

One folder for each, `state/step-00000120`, written aside, synced and renamed: it is whole or absent. Its manifest has the
checksum of every file. Only safetensors and JSON, so that nothing a checkpoint holds is executed, and the same whichever
mode wrote it.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from app.data.cache import MANIFEST
from app.errors import TrainingError
from app.runtime.disk import checksum, sync

logger = logging.getLogger(__name__)
FORMAT = 2
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BEST = "best.safetensors"  # the run's model as it was when the state was written
Tensors = dict[str, torch.Tensor]


@dataclass
class Progress:
    """How far a run has come, and its best evaluation so far.

    `step`: global batches seen; `updates` of the weights made, fewer only where fp16 overflowed or a step was skipped;
    `without_gain`: evaluations since the best one; `stopped`: early, so that nothing is left to train; `job`: what must be
    equal for the run to go on; `scaler`: the loss scale; `window`: losses not logged yet; `micro_batch_size`:
    rows that memory holds, where it has run out.
    """

    step: int = 0
    updates: int = 0
    best_value: float | None = None
    best_step: int = 0
    without_gain: int = 0
    stopped: bool = False
    job: dict = field(default_factory=dict)
    scaler: dict = field(default_factory=dict)
    window: list = field(default_factory=list)
    micro_batch_size: int | None = None


@dataclass(frozen=True)
class TrainingState:
    """A training state as it was read: `folder` is where it stands. A finished training has no tensors, only its model."""

    progress: Progress
    weights: Tensors
    optimizer: Tensors
    folder: Path


def save_training_state(
    folder: Path,
    progress: Progress,
    weights: Tensors,
    optimizer: Tensors,
    keep_states: int = 1,
    model: Path | None = None,
) -> None:
    """Write one training state into the run folder, then remove all but the newest `keep_states`; rank 0 calls it.

    `model` is the file of the best weights so far, which the state keeps too. Raises TrainingError where it cannot be
    written; the states before it are then untouched, and nothing of it is left.
    """
    final = states_folder(folder) / f"step-{progress.step:08d}"
    aside = final.with_name(f".{final.name}")
    try:
        remove_unfinished(folder)
        aside.mkdir(parents=True)
        save_file(contiguous(weights), aside / "weights.safetensors")
        save_file(contiguous(optimizer), aside / "optimizer.safetensors")
        (aside / "progress.json").write_text(json.dumps(asdict(progress), indent=2))
        if model:
            shutil.copyfile(model, aside / BEST)  # no link: a state does not share its fate with another
        manifest = {"format": FORMAT, "sha256": {path.name: checksum(path) for path in sorted(aside.iterdir())}}
        (aside / MANIFEST).write_text(json.dumps(manifest, indent=2))
        for path in [*aside.iterdir(), aside]:
            sync(path)
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        sync(final.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise cannot_write(f"the training state of step {progress.step}", error, folder) from error
    for old in saved_states(folder)[keep_states:]:
        shutil.rmtree(old, ignore_errors=True)


def cannot_write(what: str, error: Exception, folder: Path) -> TrainingError:
    """Return the error of a file that could not be written, with what is left to go on from and the remedy."""
    states = saved_states(folder)
    kept = (
        f"the training state of step {int(states[0].name[5:])} is kept" if states else "there is no training state yet"
    )
    remedy = "free space on the disk" if is_full(error) else "make the folder writable"
    return TrainingError(
        f"{what} cannot be written into {folder}: {error}; {kept}; {remedy} and go on with --output.resume auto"
    )


def is_full(error: Exception) -> bool:
    """Return whether an error says that the disk, the quota or the allowed file size is used up."""
    # safetensors gives the system's error only as text.
    return getattr(error, "errno", None) in FULL or any(f"os error {number})" in str(error) for number in FULL)


def load_training_state(folder: Path) -> TrainingState | None:
    """Return the newest whole training state of a run folder, or None where there is none; a damaged one is passed over."""
    states = saved_states(folder)
    for state in states:
        try:
            check_state(state)
            progress = Progress(**json.loads((state / "progress.json").read_text()))
            weights, optimizer = (load_file(state / f"{name}.safetensors") for name in ("weights", "optimizer"))
            return TrainingState(progress, weights, optimizer, state)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, SafetensorError) as error:
            logger.warning("%s is damaged and is passed over: %s", state, error)
    if states:
        logger.warning("%s holds no whole training state, so the run starts at its beginning", folder)
    return None


def check_state(state: Path) -> None:
    """Raise ValueError unless every file of a state has its checksum."""
    manifest = json.loads((state / MANIFEST).read_text())
    if manifest["format"] != FORMAT:
        raise ValueError("it has another format")
    for name, expected in manifest["sha256"].items():
        if checksum(state / name) != expected:
            raise ValueError(f"{name} is not what was written")


def restore_model(state: TrainingState, model: Path) -> None:
    """Put back the best weights as they were when the state was written: the run may since have found better ones."""
    if (state.folder / BEST).exists():
        aside = model.with_name(f".{model.name}")
        shutil.copyfile(state.folder / BEST, aside)
        sync(aside)
        aside.replace(model)


def states_folder(folder: Path) -> Path:
    """Return where a run folder keeps its training states."""
    return folder / "state"


def saved_states(folder: Path) -> list[Path]:
    """Return the training states of a run folder, the newest first."""
    return sorted(states_folder(folder).glob("step-*"), reverse=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what a process left that was killed while it wrote a state."""
    for left in states_folder(folder).glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)


def contiguous(tensors: Tensors) -> Tensors:
    """Return tensors as safetensors wants them."""
    return {name: value.contiguous() for name, value in tensors.items()}


class BackgroundWriter:
    """Writes while training goes on, one thing at a time; what fails is raised by the next call."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.running: Future | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Call `write` in the background, after the one before it has ended."""
        self.wait()
        self.running = self.pool.submit(write)

    def wait(self) -> None:
        """Wait for the write that is under way, and raise what it raised."""
        running, self.running = self.running, None
        if running:
            running.result()

    def close(self) -> None:
        """Wait until nothing is being written; what failed and was not raised yet is of no use any more."""
        self.pool.shutdown(wait=True)
