"""Evaluating one split of the data."""

import numpy as np

from ..data.dataset import Split
from ..errors import TrainingError
from ..modes.mode import Mode
from ..training.evaluate import evaluate
from ..training.non_finite import named_rows
from .assembly import Components
from .log.run_log import RunLog

BATCH_ROWS = 64  # rows of a batch, in each process


def evaluate_split(mode: Mode, components: Components, name: str, log: RunLog, step: int) -> np.ndarray:
    """Return what the task keeps of the rows of a split, (num_rows, any), the same on all ranks. Raises
    TrainingError, on every rank alike, where results of the model of `step` are not finite."""
    loader, task = components.loaders[name], components.task
    with log.bar.evaluation(name, len(loader)) as bar:
        results = evaluate(mode, loader, BATCH_ROWS, bar.update, task.row_results)
    check_finite(results, loader.split, step)
    return results


def check_finite(results: np.ndarray, split: Split, step: int) -> None:
    """Raise TrainingError, naming the rows, unless all results, (num_rows, any), of a split are finite."""
    positions = np.flatnonzero(~np.isfinite(results).all(axis=1))
    if len(positions):
        raise TrainingError(
            f"step {step}: evaluation on {split.name} needs finite logits, found {len(positions):,} of "
            f"{len(results):,} rows without: {named_rows(split, positions)}. This model was not saved as the "
            "best; look at these rows, lower train.learning_rate or set train.precision fp32, and resume "
            "from the last training state: --output.resume auto"
        )
