"""Evaluating one split of the data."""

from __future__ import annotations

import numpy as np

from app.data.dataset import Split
from app.errors import TrainingError
from app.evaluation.metrics import compute_metrics
from app.run.assembly import Components
from app.run.log.run_log import RunLog
from app.strategies.strategy import Strategy
from app.training.evaluate import evaluate
from app.training.non_finite import named_rows


def evaluate_split(
    strategy: Strategy, components: Components, name: str, batch_size: int, log: RunLog, step: int
) -> tuple[dict, np.ndarray]:
    """Return the metrics and the logits, (num_rows, num_labels), of a split; every rank calls it and gets the same.

    Raises TrainingError, on every rank alike, where logits of the model of `step` are not finite.
    """
    loader = components.loaders[name]
    with log.evaluation_bar(name, len(loader)) as bar:
        logits = evaluate(strategy, loader, batch_size, bar.update)
    check_finite(logits, loader.split, step)
    return compute_metrics(np.asarray(loader.split.labels), logits, components.dataset.label_names), logits


def check_finite(logits: np.ndarray, split: Split, step: int) -> None:
    """Raise TrainingError, naming the rows, unless all logits, (num_rows, num_labels), of a split are finite."""
    positions = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if len(positions):
        raise TrainingError(
            f"step {step}: evaluation on {split.name} needs finite logits, found {len(positions):,} of {len(logits):,} rows "
            f"without: {named_rows(split, positions)}. This model was not saved as the best; look at these rows, lower "
            "train.learning_rate or set train.precision fp32, and resume from the last training state: --output.resume auto"
        )
