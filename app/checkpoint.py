"""Training state on disk, from which a run goes on: weights, optimizer state and progress, by parameter name.

One folder for each, `state/step-00000120`, written aside, synced and renamed: it is whole or absent. Only safetensors
and JSON, so that nothing a checkpoint holds is executed, and the same whichever mode wrote it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from app.data.cache import sync

logger = logging.getLogger(__name__)
FORMAT = 1


@dataclass
class Progress:
    """How far a run has come, and its best evaluation so far.

    `step`: global batches seen; `updates` of the weights made, fewer only where fp16 overflowed; `without_gain`:
    evaluations since the best one; `job`: what must be equal for the run to go on; `scaler`: the loss scale.
    """

    step: int = 0
    updates: int = 0
    best_value: float | None = None
    best_step: int = 0
    without_gain: int = 0
    stopped: bool = False
    job: dict = field(default_factory=dict)
    scaler: dict = field(default_factory=dict)


def save_training_state(
    folder: Path, progress: Progress, weights: dict[str, torch.Tensor], optimizer: dict[str, torch.Tensor]
) -> None:
    """Write one training state into the run folder, then remove the older ones; rank 0 calls it."""
    final = states_folder(folder) / f"step-{progress.step:08d}"
    aside = final.with_name(f".{final.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    save_file(contiguous(weights), aside / "weights.safetensors")
    save_file(contiguous(optimizer), aside / "optimizer.safetensors")
    (aside / "progress.json").write_text(json.dumps({"format": FORMAT, **asdict(progress)}, indent=2))
    for path in aside.iterdir():
        sync(path)
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)
    sync(final.parent)
    for old in final.parent.iterdir():
        if old.name != final.name:
            shutil.rmtree(old, ignore_errors=True)


def load_training_state(folder: Path) -> tuple[Progress, dict[str, torch.Tensor], dict[str, torch.Tensor]] | None:
    """Return the newest whole training state of a run folder, or None where there is none; a damaged one is passed over."""
    for state in sorted(states_folder(folder).glob("step-*"), reverse=True):
        try:
            values = json.loads((state / "progress.json").read_text())
            if values.pop("format") != FORMAT:
                raise ValueError("it has another format")
            return (
                Progress(**values),
                load_file(state / "weights.safetensors"),
                load_file(state / "optimizer.safetensors"),
            )
        except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
            logger.warning("%s is damaged and is passed over: %s", state, error)
    return None


def states_folder(folder: Path) -> Path:
    """Return where a run folder keeps its training states."""
    return folder / "state"


def contiguous(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors as safetensors wants them."""
    return {name: value.contiguous() for name, value in tensors.items()}
