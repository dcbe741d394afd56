"""Evaluating one split of the data."""

from __future__ import annotations

import numpy as np

from app.evaluation.metrics import compute_metrics
from app.run.assembly import Components
from app.run.log.run_log import RunLog
from app.strategies.strategy import Strategy
from app.training.evaluate import evaluate


def evaluate_split(
    strategy: Strategy, components: Components, name: str, batch_size: int, log: RunLog
) -> tuple[dict, np.ndarray]:
    """Return the metrics and the logits, (num_rows, num_labels), of a split; every rank calls it and gets the same."""
    loader = components.loaders[name]
    with log.evaluation_bar(name, len(loader)) as bar:
        logits = evaluate(strategy, loader, batch_size, bar.update)
    return compute_metrics(np.asarray(loader.split.labels), logits, components.dataset.label_names), logits
