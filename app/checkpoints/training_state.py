"""Training states on disk, from which a run resumes: weights, optimizer state and progress of the run.

One folder for each, `state/step-00000120`, written aside, synced and renamed: it is complete or absent. Its
manifest has the checksum of every file. Only safetensors and JSON, so that reading one cannot run code, and
the same files in every mode.
"""

import json
import logging
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..data.cache import MANIFEST
from ..errors import TrainingError
from ..runtime.disk import checksum, copy_file, sync
from .run_folder import STATES, saved_states

logger = logging.getLogger(__name__)
FORMAT = 4
PROGRESS = "progress.json"
# The run's best model as it was when the state was written
BEST = "best.safetensors"
DAMAGE = (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, SafetensorError)
Tensors = dict[str, torch.Tensor]


@dataclass
class RunProgress:
    """Plain data, equal on every rank; a training state on disk keeps all of it but `stop`."""

    step: int = 0  # global batches seen
    updates: int = 0  # steps that changed the weights; fewer only where fp16 overflowed
    micro_batch_size: int | None = None  # rows that fit into memory, once it has run out
    stop: bool = False  # end the loop after this step
    stopped_early: bool = False  # early stopping has ended the training
    best_value: float | None = None  # of the best evaluation on dev so far, after step
    best_step: int = 0
    evaluations_without_improvement: int = 0
    # Sum of losses over all ranks, and targets, since the last log line, and since the last evaluation
    logged: list[float] = field(default_factory=lambda: [0.0, 0])
    evaluated: list[float] = field(default_factory=lambda: [0.0, 0])
    scaler: dict = field(default_factory=dict)  # state of the loss scaler
    start_metrics: dict = field(default_factory=dict)  # before the first step

    def is_trained(self, total_steps: int) -> bool:
        return self.stopped_early or self.step >= total_steps

    def add(self, loss_sum: float, targets: int) -> None:
        for window in (self.logged, self.evaluated):
            window[0] += loss_sum
            window[1] += targets

    def mean_loss(self, window: list[float]) -> float:
        """Return the mean loss of the targets of a window, not a mean of means, and empty the window."""
        loss_sum, targets = window
        window[:] = [0.0, 0]
        return loss_sum / max(1, targets)


@dataclass(frozen=True)
class TrainingState:
    """A training state as it was read from `folder`: tensors by parameter name. `job` is what the run trains
    on, see job.py."""

    progress: RunProgress
    job: dict
    weights: Tensors
    optimizer: Tensors
    folder: Path


def save_training_state(
    folder: Path,
    progress: RunProgress,
    job: dict,
    weights: Tensors,
    optimizer: Tensors,
    keep_states: int = 1,
    best_model: Path | None = None,
) -> None:
    """Write a training state into the run folder, then remove all but the newest `keep_states`, on rank 0.

    `best_model` is the file of the best weights so far, which the state gets a copy of. Raises OSError or
    SafetensorError where the state cannot be written; earlier states are then untouched, and nothing of the
    new one is left.
    """
    final = folder / STATES / f"step-{progress.step:08d}"
    aside = final.with_name(f".{final.name}")
    values = asdict(progress) | {"job": job}
    del values["stop"]
    remove_unfinished(folder)
    try:
        (folder / STATES).mkdir(exist_ok=True)
        aside.mkdir()
        save_file(contiguous(weights), aside / "weights.safetensors")
        save_file(contiguous(optimizer), aside / "optimizer.safetensors")
        (aside / PROGRESS).write_text(json.dumps(values, indent=2))
        if best_model:
            # No link: damage to one state must not reach another
            shutil.copyfile(best_model, aside / BEST)
        checksums = {path.name: checksum(path) for path in sorted(aside.iterdir())}
        (aside / MANIFEST).write_text(json.dumps({"format": FORMAT, "sha256": checksums}, indent=2))
        for path in [*aside.iterdir(), aside]:
            sync(path)
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        sync(final.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    drop_states(folder, keep_states, final)


def load_training_state(folder: Path) -> TrainingState | None:
    """Return the newest undamaged training state of a run folder, or None; warns of damaged ones, which are
    renamed, and of unreadable ones. Raises TrainingError where only unreadable ones are left, and for a state
    of an older version."""
    states, unreadable = saved_states(folder), []
    for state in states:
        try:
            return _read_state(state)
        except (*DAMAGE, OSError) as error:
            # safetensors gives the system's error only as text
            if isinstance(error, DAMAGE) and "(os error " not in str(error):
                aside = state.with_name(f"damaged-{state.name}")
                logger.warning("%s is damaged and is skipped: %s; it is now %s", state, error, aside.name)
                # A damaged state must not take the place of a whole one
                shutil.rmtree(aside, ignore_errors=True)
                with suppress(OSError):
                    state.rename(aside)
            else:
                unreadable.append(f"{state}: {error}")
                logger.warning("%s cannot be read now and is skipped: %s", state, error)
    if unreadable:
        raise TrainingError(
            f"a training state must be readable to resume from it, and none is: {unreadable[0]}; it is not "
            "removed; start again when the disk can be read, or start a new run in another output.dir"
        )
    if states:
        logger.warning("%s has no undamaged training state", folder)
    return None


def _read_state(state: Path) -> TrainingState:
    manifest = json.loads((state / MANIFEST).read_text())
    if manifest["format"] in range(1, FORMAT):
        # It is whole, and not ours to put aside.
        raise TrainingError(
            f"{state}: a training state of format {FORMAT} is needed, found {manifest['format']}, of an "
            "older version of this program; finish the run with that version, or choose another output.dir"
        )
    if manifest["format"] != FORMAT:
        raise ValueError(f"its format must be {FORMAT}, found {manifest['format']}")
    for name, expected in manifest["sha256"].items():
        if checksum(state / name) != expected:
            raise ValueError(f"{name} has another checksum than when it was written")
    values = json.loads((state / PROGRESS).read_text())
    job = values.pop("job")
    weights, optimizer = (load_file(state / f"{name}.safetensors") for name in ("weights", "optimizer"))
    return TrainingState(RunProgress(**values), job, weights, optimizer, state)


def restore_best_model(state: Path, model: Path) -> None:
    if (state / BEST).exists():
        copy_file(state / BEST, model)


def drop_states(folder: Path, keep: int, written: Path | None = None) -> None:
    """Remove all training states but `written` and the newest `keep`; with 0 their folder too. Damaged ones
    stay until the run is finished, when nothing is `written`."""
    others = [state for state in saved_states(folder) if state != written]
    damaged = [] if written else (folder / STATES).glob("damaged-step-*")
    for old in [*others[keep - bool(written) :], *damaged]:
        shutil.rmtree(old, ignore_errors=True)
    if not keep:
        remove_unfinished(folder)
        # It has something else
        with suppress(OSError):
            (folder / STATES).rmdir()


def remove_unfinished(folder: Path) -> None:
    for left in (folder / STATES).glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)


def contiguous(tensors: Tensors) -> Tensors:
    return {name: value.contiguous() for name, value in tensors.items()}
