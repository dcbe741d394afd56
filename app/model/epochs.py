"""The number of epochs where train.epochs is auto: it follows from the data (docs/quality.md)."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from ..config.schema import Config

logger = logging.getLogger(__name__)
MIN_EPOCHS = 3
# What two texts have in common takes longer to learn than what one text says
MIN_EPOCHS_OF_PAIRS = 4
# Rows of the smallest class, each counted once an epoch, in at most MAX_EPOCHS
ROWS_OF_SMALLEST_CLASS = 800
MAX_EPOCHS = 6
# In many steps a small class is learned without more epochs.
MAX_STEPS_FOR_SMALLEST_CLASS = 1_300
# Few rows give few steps an epoch, so these need more epochs.
MIN_STEPS, MIN_STEPS_PER_CLASS = 120, 6
# Many rows give many steps, so these need fewer epochs, but never fewer than FEWEST.
MAX_STEPS, FEWEST = 6_000, 2
# With more epochs, dev is evaluated about this often.
MAX_EVALUATIONS = 10


def with_epochs(config: Config, steps_per_epoch: int, class_sizes: Sequence[int], has_pairs: bool) -> Config:
    """Return the configuration with a number for train.epochs auto, and log which and why. `class_sizes` are
    the training rows of each label, if any; `has_pairs`: rows are pairs of texts."""
    train = config.train
    if train.epochs != "auto":
        return config
    epochs, reason = choose_epochs(steps_per_epoch, class_sizes, has_pairs)
    evaluations = {}
    if train.eval_every is None and epochs > MAX_EVALUATIONS:
        evaluations = {"eval_every": steps_per_epoch * math.ceil(epochs / MAX_EVALUATIONS)}
    logger.info(
        "train.epochs auto: %s epochs of %s steps, %s.", f"{epochs:,}", f"{steps_per_epoch:,}", reason
    )
    return replace(config, train=replace(train, epochs=epochs, **evaluations))


def choose_epochs(steps_per_epoch: int, class_sizes: Sequence[int], has_pairs: bool) -> tuple[int, str]:
    """Return the number of epochs for `steps_per_epoch` optimizer steps an epoch, and the reason in words."""
    usual = MIN_EPOCHS_OF_PAIRS if has_pairs else MIN_EPOCHS
    smallest = min((size for size in class_sizes if size), default=ROWS_OF_SMALLEST_CLASS)
    most_for_smallest = min(MAX_EPOCHS, MAX_STEPS_FOR_SMALLEST_CLASS // steps_per_epoch)
    min_steps = MIN_STEPS + MIN_STEPS_PER_CLASS * len(class_sizes)
    rows = "pairs of texts" if has_pairs else "single texts"
    epochs, reason = max(
        (usual, f"as usual for {rows}"),
        (
            min(math.ceil(ROWS_OF_SMALLEST_CLASS / smallest), most_for_smallest),
            f"because the smallest class has only {smallest:,} training rows",
        ),
        (
            math.ceil(min_steps / steps_per_epoch),
            f"because {len(class_sizes):,} classes need at least {min_steps:,} steps",
        ),
        key=lambda choice: choice[0],
    )
    most = max(FEWEST, MAX_STEPS // steps_per_epoch)
    if epochs > most:
        return most, f"because {MAX_STEPS:,} steps are enough"
    return epochs, reason
