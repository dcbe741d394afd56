"""The second reader of a run: fitted for the best checkpoint, and used where it makes answers better."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import replace

import numpy as np

from ..data.label_shares import rows_of_labels
from ..ngrams.character_model import CharacterModel
from ..ngrams.second_reader import SecondReader
from ..report.blend import ReadRows, choose_blend, fit_blend
from ..report.bootstrap import differences, with_intervals
from ..report.logits_file import SplitLogits
from ..report.metrics import BY_KEY, compared_metrics
from ..tasks.decision_file import FITTED_ON
from ..tasks.task import Task
from ..tasks.temperature import MIN_ROWS
from .build import Components

logger = logging.getLogger(__name__)


def fit_second_reader(
    components: Components, encoder: dict[str, SplitLogits], characters: CharacterModel
) -> SecondReader | None:
    """Return the second reader of a run, None where the encoder answers alone, and log which. `encoder` are
    the logits of the encoder by split."""
    setting = components.config.model.ngrams
    if setting == "off":
        return None
    dev = encoder.get(FITTED_ON)
    if has_pairs(components):
        logger.info("The encoder answers alone: a second reader of character n-grams needs single texts.")
        return None
    if dev is None or len(dev) < MIN_ROWS:
        logger.info(
            "The encoder answers alone: a second reader of character n-grams needs at least %d rows of dev.",
            MIN_ROWS,
        )
        return None
    task = components.task
    characters = characters.followed_by(task.logits_of_linear_model)
    rows = ReadRows(
        labels=dev.labels,
        encoder=dev.logits,
        ngrams=characters.outputs(texts_of(components, FITTED_ON)),
        hashes=dev.hashes,
    )
    metric = task.best_metric
    class_shares = None
    if metric == "macro_f1" and dev.labels.ndim == 1:
        counts = rows_of_labels(np.asarray(components.dataset.splits["train"].learnt), len(task.label_names))
        class_shares = counts / counts.sum()
    if setting == "on":
        blend = fit_blend(task, rows, class_shares)
        reason = "as model.ngrams says"
    else:
        blend = choose_blend(task, rows, metric, class_shares)
        reason = f"that improves {BY_KEY[metric].english} on parts of dev that the weight was not fitted on"
    if blend is None:
        logger.info(
            "The encoder answers alone: character n-grams beside it do not improve %s on parts of dev that "
            "their weight was not fitted on.",
            BY_KEY[metric].english,
        )
        return None
    logger.info("Character n-grams answer beside the encoder, with weight %.3f: %s.", blend.weight, reason)
    alone = copy(task)
    alone.fit(dev.labels, dev.logits, dev.hashes)
    return SecondReader(
        characters=characters,
        scale=blend.scale,
        weight=blend.weight,
        shift=blend.shift,
        rows=len(dev),
        encoder_decision=alone.state(),
    )


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
        added = reader.added(texts_of(components, split))
        both[split] = replace(rows, logits=reader.logits(rows.logits, added))
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
