"""The number of epochs where `train.epochs` is auto: it follows from the rows, their classes and the steps.
docs/lab/quality.md has the measurements."""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..config.schema import Config
from ..errors import counted

logger = logging.getLogger(__name__)

MIN_EPOCHS = 3
MIN_EPOCHS_OF_PAIRS = 4  # what two texts have in common takes longer to learn
# Rows of the smallest class, each counted once an epoch. In many steps it is learned without more epochs.
ROWS_OF_SMALLEST_CLASS = 800
MAX_EPOCHS_FOR_SMALLEST_CLASS = 6
MAX_STEPS_FOR_SMALLEST_CLASS = 1_300
# Few rows give few steps an epoch, so these need more epochs
MIN_STEPS = 120
MIN_STEPS_PER_CLASS = 6
# More steps need fewer epochs, but never fewer than this
MAX_STEPS = 6_000
MIN_EPOCHS_OF_MANY_STEPS = 2
MAX_EVALUATIONS = 10  # with more epochs, dev is evaluated about this often


@dataclass(frozen=True)
class Epochs:
    """A number of epochs, and in words why."""

    number: int
    reason: str


def with_epochs(config: Config, steps_per_epoch: int, class_sizes: Sequence[int], has_pairs: bool) -> Config:
    """Return the configuration with a number for train.epochs auto, and log which and why. `class_sizes` are
    the training rows of each label, if any; `has_pairs`: rows are pairs of texts."""
    train = config.train
    if train.epochs != "auto":
        return config
    if has_pairs:
        candidates = [Epochs(MIN_EPOCHS_OF_PAIRS, "as usual for pairs of texts")]
    else:
        candidates = [Epochs(MIN_EPOCHS, "as usual for single texts")]
    # A head that starts as a logistic regression knows small classes, and few rows, from its start
    if config.model.head != "linear":
        candidates += epochs_for_random_head(steps_per_epoch, class_sizes)
    epochs = max(candidates, key=lambda candidate: candidate.number)
    max_epochs = max(MIN_EPOCHS_OF_MANY_STEPS, MAX_STEPS // steps_per_epoch)
    if epochs.number > max_epochs:
        epochs = Epochs(max_epochs, f"because {MAX_STEPS:,} steps are enough")
    number = counted(epochs.number, "epoch")
    logger.info(f"train.epochs auto: {number} of {counted(steps_per_epoch, 'step')}, {epochs.reason}.")
    train = replace(train, epochs=epochs.number)
    if train.eval_every is None and epochs.number > MAX_EVALUATIONS:
        train = replace(train, eval_every=steps_per_epoch * math.ceil(epochs.number / MAX_EVALUATIONS))
    return replace(config, train=train)


def epochs_for_random_head(steps_per_epoch: int, class_sizes: Sequence[int]) -> Iterator[Epochs]:
    """Yield the epochs that a small class needs, and those that few rows need."""
    sizes = [size for size in class_sizes if size > 0]
    smallest = min(sizes, default=ROWS_OF_SMALLEST_CLASS)
    max_epochs = min(MAX_EPOCHS_FOR_SMALLEST_CLASS, MAX_STEPS_FOR_SMALLEST_CLASS // steps_per_epoch)
    number = min(math.ceil(ROWS_OF_SMALLEST_CLASS / smallest), max_epochs)
    yield Epochs(number, f"because the smallest class has only {counted(smallest, 'training row')}")
    steps = MIN_STEPS + MIN_STEPS_PER_CLASS * len(class_sizes)
    yield Epochs(math.ceil(steps / steps_per_epoch), f"because at least {steps:,} steps are needed")
