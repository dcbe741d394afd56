"""The second reader of a run: fitted for the best checkpoint, and used where it makes answers better."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np

from ..data.label_shares import rows_of_labels
from ..ngrams.character_model import CharacterModel
from ..ngrams.second_reader import SecondReader
from ..report.blend import MACRO_BALANCE, choose_blend, fit_blend
from ..report.bootstrap import differences, with_intervals
from ..report.logits_file import SplitLogits
from ..report.measure import measure
from ..report.metrics import BY_KEY, compared_metrics
from ..tasks.decision_file import FITTED_ON
from ..tasks.task import Task
from ..tasks.temperature import MIN_ROWS
from .build import Components

logger = logging.getLogger(__name__)
# With another metric, blends are chosen by their loss
CHOOSING_METRICS = ("macro_f1", "weighted_f1", "accuracy")


def fit_second_reader(
    components: Components, encoder: dict[str, SplitLogits], characters: CharacterModel
) -> SecondReader | None:
    """Return the second reader of a run, None where the encoder answers alone, and log which. `encoder` are
    the logits of the encoder by split."""
    setting = components.config.model.ngrams
    dev = encoder.get(FITTED_ON)
    can_have_one = components.task.can_have_second_reader and not has_pairs(components)
    if setting == "off" or not can_have_one:
        return None
    if dev is None or len(dev) < MIN_ROWS:
        logger.info(
            "The encoder answers alone: a second reader of character n-grams needs at least %d rows of dev.",
            MIN_ROWS,
        )
        return None
    task = components.task
    ngrams = characters.outputs(texts_of(components, FITTED_ON))
    counts = rows_of_labels(np.asarray(components.dataset.splits["train"].learnt), len(task.label_names))
    shares = counts / counts.sum()
    metric = task.best_metric if task.best_metric in CHOOSING_METRICS else "loss"
    balance = MACRO_BALANCE if metric == "macro_f1" else 0.0
    if setting == "on":
        blend = fit_blend(dev.labels, dev.logits, ngrams, shares, balance)
        reason = "as model.ngrams says"
    else:
        blend = choose_blend(
            dev.labels, dev.logits, ngrams, dev.hashes, shares, balance, partial(metric_value, task, metric)
        )
        reason = f"it makes {BY_KEY[metric].english} of dev rows better that it was not fitted on"
    if blend is None:
        logger.info(
            "The encoder answers alone: character n-grams beside it do not make %s of new dev rows better.",
            BY_KEY[metric].english,
        )
        return None
    logger.info("Character n-grams answer beside the encoder, with weight %.3f: %s.", blend.weight, reason)
    alone = copy(task)
    alone.fit(dev.labels, dev.logits, dev.hashes)
    return SecondReader(
        characters=characters,
        weight=blend.weight,
        shift=blend.shift,
        rows=len(dev),
        encoder_decision=alone.state(),
    )


def metric_value(task: Task, metric: str, labels: np.ndarray, logits: np.ndarray) -> float:
    """Return a metric of logits, negative where less is better."""
    value = measure(task, task.score(labels, logits))[metric]
    if BY_KEY[metric].higher_is_better:
        return value
    return -value


def has_pairs(components: Components) -> bool:
    return components.dataset.splits["train"].table.has_pairs


def texts_of(components: Components, split: str) -> list[str]:
    rows = components.loaders[split].split
    return rows.table.joined_texts(np.asarray(rows.rows))


def with_second_reader(
    components: Components, encoder: dict[str, SplitLogits], reader: SecondReader | None
) -> dict[str, SplitLogits]:
    """Return the logits of both readers together, by split."""
    if reader is None:
        return encoder
    both = {}
    for split, rows in encoder.items():
        both[split] = replace(rows, logits=rows.logits + reader.added(texts_of(components, split)))
    return both


def metrics_of_readers(
    task: Task, encoder: dict[str, SplitLogits], both: dict[str, SplitLogits], split: str
) -> dict:
    """Return the metrics of the encoder alone on the rows of `split`, with their `intervals`, and in
    `changes` by how much both readers are above it, with paired intervals. `task` has fitted nothing yet."""
    alone = copy(task)
    together = copy(task)
    dev = encoder[FITTED_ON]
    alone.fit(dev.labels, dev.logits)
    together.fit(dev.labels, both[FITTED_ON].logits)
    scores_alone = alone.score(encoder[split].labels, encoder[split].logits)
    scores_both = together.score(both[split].labels, both[split].logits)
    changes = {}
    for key, (change, interval) in differences(task, scores_alone, scores_both).items():
        changes[key] = {"change": change, "interval": list(interval)}
    return {"encoder": with_intervals(alone, scores_alone, compared_metrics(alone)), "changes": changes}
