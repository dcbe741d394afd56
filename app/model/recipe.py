"""Learning rates and warm-up where the settings do not say: they follow from the width of the model and the
data. docs/lab/quality.md has the measurements."""

import logging
import math
from dataclasses import dataclass, replace
from typing import Literal

from ..config.schema import Config, ModelConfig
from ..errors import counted
from .checkpoint import checkpoint_config
from .transformers_errors import cannot_load, explained, quiet_transformers

logger = logging.getLogger(__name__)

# "linear" are single texts, where the head starts as a logistic regression, nearly right from the first step
Rows = Literal["pairs", "linear", "single"]
ANY = math.inf
USUAL_WARMUP = 0.1  # fraction of all steps
LONG_WARMUP = 0.3
USUAL_WIDTH = 768  # also of models with random weights
NARROW = 384
# LoRA multiplies the usual rate by these. That of narrow models was measured here; the other is published.
NARROW_LORA_FACTOR = 3
LORA_FACTOR = 10


@dataclass(frozen=True)
class Recipe:
    """How to train models up to a width, in epochs of up to so many steps, on such `rows` (None: any)."""

    max_width: float
    max_steps: float
    rows: Rows | None
    learning_rate: float  # of the encoder
    head_factor: float  # the learning rate of the head is so many times that of the encoder
    warmup: float

    def fits(self, width: int, steps_per_epoch: int, rows: Rows) -> bool:
        is_small_enough = width <= self.max_width and steps_per_epoch <= self.max_steps
        return is_small_enough and self.rows in (rows, None)


# The first recipe that fits is taken.
#
# Narrow models need larger steps. In few steps the highest rate is best, but the loss may rise again after a
# short warm-up. Pairs of texts need a low rate: with a higher one all of them get the most frequent class.
RECIPES = (
    Recipe(NARROW, ANY, "pairs", 5e-5, 10, USUAL_WARMUP),
    Recipe(NARROW, 150, "linear", 5e-5, 1, LONG_WARMUP),
    Recipe(NARROW, ANY, "linear", 5e-5, 1, USUAL_WARMUP),
    Recipe(NARROW, 150, "single", 2e-4, 10, LONG_WARMUP),
    Recipe(NARROW, ANY, "single", 1e-4, 10, USUAL_WARMUP),
    Recipe(512, ANY, None, 5e-5, 1, USUAL_WARMUP),
    Recipe(768, ANY, None, 3e-5, 1, USUAL_WARMUP),
    Recipe(ANY, ANY, None, 2e-5, 1, USUAL_WARMUP),
)


def with_recipe(config: Config, place: str, steps_per_epoch: int, has_pairs: bool) -> Config:
    """Return the configuration with the settings of `train` filled in that are none and depend on the model
    and the data. `place` is that of `checkpoint_place`, and `has_pairs` is whether rows are pairs of texts.
    Reads the configuration of the checkpoint; raises InputError for one that cannot be read."""
    train = config.train
    if None not in (train.learning_rate, train.head_learning_rate, train.warmup):
        return config
    width = model_width(config.model, place)
    recipe = choose_recipe(width, steps_per_epoch, rows_of_recipe(config.model, has_pairs))
    rate = recipe.learning_rate
    head_factor = recipe.head_factor
    if config.model.lora_rank:
        factor = LORA_FACTOR
        if width <= NARROW:
            factor = NARROW_LORA_FACTOR
        rate = factor * rate
        head_factor = max(1.0, head_factor / factor)
    if train.learning_rate is not None:
        rate = train.learning_rate
    usual = {"learning_rate": rate, "warmup": recipe.warmup}
    if head_factor != 1:
        usual["head_learning_rate"] = rate * head_factor
    filled = {key: value for key, value in usual.items() if getattr(train, key) is None}
    if filled and not config.model.has_random_weights:
        log_choice(filled, config.model, has_pairs, steps_per_epoch)
    return replace(config, train=replace(train, **filled))


def model_width(model: ModelConfig, place: str) -> int:
    """Return the size of the states of a model; `place` is that of `checkpoint_place`."""
    if model.has_random_weights:
        return USUAL_WIDTH
    with quiet_transformers(), explained(cannot_load(model.name)):
        return getattr(checkpoint_config(place), "hidden_size", None) or USUAL_WIDTH


def rows_of_recipe(model: ModelConfig, has_pairs: bool) -> Rows:
    if has_pairs:
        return "pairs"
    if model.head == "linear":
        return "linear"
    return "single"


def choose_recipe(width: int, steps_per_epoch: int, rows: Rows) -> Recipe:
    return next(recipe for recipe in RECIPES if recipe.fits(width, steps_per_epoch, rows))


def log_choice(filled: dict[str, float], model: ModelConfig, has_pairs: bool, steps_per_epoch: int) -> None:
    settings = ", ".join(f"train.{key} {value:g}" for key, value in filled.items())
    name = model.name
    if model.lora_rank:
        name += " with LoRA"
    texts = "single texts"
    if has_pairs:
        texts = "pairs of texts"
    logger.info(
        "Settings chosen for you: %s (for %s, %s, %s in an epoch)",
        settings,
        name,
        texts,
        counted(steps_per_epoch, "step"),
    )
