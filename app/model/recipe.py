"""Learning rates and epochs where the settings do not say: by the model and the data (docs/quality.md)."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..config.schema import Config
from ..config.shipped import E5_SMALL, e5_file
from .checkpoint_config import NO_CODE, attempt, cannot_load, checkpoint_config, quiet_transformers
from .e5_small import fetch_e5
from .source import checkpoint_place

logger = logging.getLogger(__name__)
USUAL_WARMUP = 0.1


@dataclass(frozen=True)
class Recipe:
    """What is usual for a model; the learning rate of its head is `head_factor` times that of its encoder,
    and `warmup` is a fraction of all steps.
    """

    learning_rate: float
    head_factor: float = 1.0
    warmup: float = USUAL_WARMUP


RANDOM = Recipe(3e-5)
# By the width of a pretrained model, up to and including the first number.
PRETRAINED = {
    512: Recipe(5e-5),
    768: Recipe(3e-5),
    float("inf"): Recipe(2e-5),
}
# With LoRA, the factor to the usual rate: of narrow models (docs/quality.md), and of others (the literature)
NARROW_LORA_FACTOR, LORA_FACTOR = 3, 10
# Narrower ones need larger steps, by the data (docs/quality.md). In few steps the highest rate is best, but
# the loss may rise again after a short warm-up. Pairs of texts are learned only with a low rate; with a
# higher one all of them get the most frequent class.
NARROW = 384
# More in an epoch are many
MANY_STEPS = 150
FEW_STEPS_RECIPE = Recipe(2e-4, head_factor=10, warmup=0.3)
MANY_STEPS_RECIPE = Recipe(1e-4, head_factor=10)
PAIRS_RECIPE = Recipe(5e-5, head_factor=10)
# A head that starts as a logistic regression (model.head linear) is nearly right from the first step on
LINEAR_RECIPE = Recipe(5e-5)
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


def with_recipe(config: Config, steps_per_epoch: int, has_pairs: bool) -> Config:
    """Return the configuration with the settings of `train` filled in that are none and depend on the model
    and the data.

    `has_pairs` is whether rows are pairs of texts.

    Reads the configuration of the checkpoint, fetching it where needed. Raises InputError for one that cannot
    be read.
    """
    train = config.train
    if config.model.name is None and e5_file() is None:
        logger.info(
            "The model has random weights. %s, a pretrained one, would classify better, but its data file is "
            "not here: %s.",
            *(E5_SMALL, fetch_e5()),
        )
    if None not in (train.learning_rate, train.head_learning_rate, train.warmup):
        return config
    width = None if config.model.name is None else checkpoint_width(config)
    is_linear = config.model.head == "linear"
    recipe = RANDOM if width is None else recipe_of(width, steps_per_epoch, has_pairs, is_linear)
    has_lora = bool(config.model.lora_rank)
    if has_lora:
        factor = NARROW_LORA_FACTOR if width is not None and width <= NARROW else LORA_FACTOR
        head_factor = max(1.0, recipe.head_factor / factor)
        recipe = replace(recipe, learning_rate=factor * recipe.learning_rate, head_factor=head_factor)
    rate = recipe.learning_rate if train.learning_rate is None else train.learning_rate
    usual = {"learning_rate": rate, "warmup": recipe.warmup}
    if recipe.head_factor != 1:
        usual["head_learning_rate"] = rate * recipe.head_factor
    filled = {key: value for key, value in usual.items() if getattr(train, key) is None}
    if filled and config.model.name is not None:
        chosen = ", ".join(f"train.{key} {value:g}" for key, value in filled.items())
        logger.info(
            "Settings chosen for you: %s (for %s%s, %s, %s steps in an epoch)",
            chosen,
            config.model.name,
            " with LoRA" if has_lora else "",
            "pairs of texts" if has_pairs else "single texts",
            f"{steps_per_epoch:,}",
        )
    return replace(config, train=replace(train, **filled))


def recipe_of(width: int, steps_per_epoch: int, has_pairs: bool, is_linear: bool = False) -> Recipe:
    """Return the recipe of a pretrained model whose hidden states have `width` numbers, and whose head starts
    as a logistic regression if it `is_linear`."""
    if width > NARROW:
        return next(recipe for limit, recipe in PRETRAINED.items() if width <= limit)
    if has_pairs:
        return PAIRS_RECIPE
    recipe = MANY_STEPS_RECIPE if steps_per_epoch > MANY_STEPS else FEW_STEPS_RECIPE
    return replace(LINEAR_RECIPE, warmup=recipe.warmup) if is_linear else recipe


def checkpoint_width(config: Config) -> int:
    """Return the hidden size of the configured checkpoint."""
    name, settings = checkpoint_place(config.model, config.data.cache_dir), config.model
    with quiet_transformers():
        read = attempt(lambda: checkpoint_config(name, **NO_CODE), cannot_load(str(settings.name)))
    return getattr(read, "hidden_size", None) or 768


def with_epochs(config: Config, steps_per_epoch: int, class_sizes: Sequence[int], has_pairs: bool) -> Config:
    """Return the configuration with a number for train.epochs auto, and log which and why. `class_sizes` are
    the training rows of each label, if any; `has_pairs`: rows are pairs of texts."""
    train = config.train
    if train.epochs != "auto":
        return config
    is_linear = config.model.head == "linear"
    epochs, reason = choose_epochs(steps_per_epoch, class_sizes, has_pairs, is_linear)
    evaluations = {}
    if train.eval_every is None and epochs > MAX_EVALUATIONS:
        evaluations = {"eval_every": steps_per_epoch * math.ceil(epochs / MAX_EVALUATIONS)}
    logger.info(
        "train.epochs auto: %s epochs of %s steps, %s.", f"{epochs:,}", f"{steps_per_epoch:,}", reason
    )
    return replace(config, train=replace(train, epochs=epochs, **evaluations))


def fewest_steps(num_classes: int) -> int:
    """Return how many optimizer steps a training needs at least."""
    return MIN_STEPS + MIN_STEPS_PER_CLASS * num_classes


def choose_epochs(
    steps_per_epoch: int, class_sizes: Sequence[int], has_pairs: bool, is_linear: bool
) -> tuple[int, str]:
    """Return the number of epochs for `steps_per_epoch` optimizer steps an epoch, and the reason in words. A
    head that starts as a logistic regression (`is_linear`) knows small classes, and few rows, from its start.
    """
    usual = MIN_EPOCHS_OF_PAIRS if has_pairs else MIN_EPOCHS
    smallest = min((size for size in class_sizes if size), default=ROWS_OF_SMALLEST_CLASS)
    most_for_smallest = min(MAX_EPOCHS, MAX_STEPS_FOR_SMALLEST_CLASS // steps_per_epoch)
    min_steps = fewest_steps(len(class_sizes))
    rows = "pairs of texts" if has_pairs else "single texts"
    of_data = [
        (
            min(math.ceil(ROWS_OF_SMALLEST_CLASS / smallest), most_for_smallest),
            f"because the smallest class has only {smallest:,} training rows",
        ),
        (
            math.ceil(min_steps / steps_per_epoch),
            f"because {len(class_sizes):,} classes need at least {min_steps:,} steps",
        ),
    ]
    choices = [(usual, f"as usual for {rows}"), *([] if is_linear else of_data)]
    epochs, reason = max(choices, key=lambda choice: choice[0])
    most = max(FEWEST, MAX_STEPS // steps_per_epoch)
    if epochs > most:
        return most, f"because {MAX_STEPS:,} steps are enough"
    return epochs, reason
