"""What is chosen where the settings do not say: how the head starts, epochs, learning rates. It follows from
the model and the data; docs/quality.md has the measurements."""

import logging
import math
from collections.abc import Sequence
from dataclasses import fields, replace

from ..config.schema import Config, DataConfig, ModelConfig, TrainConfig
from ..config.shipped import FEW_LABELS_CONFIG
from ..config.yaml_files import read_yaml
from .pretrained import cannot_load, checkpoint_config, checkpoint_place, explained, quiet_transformers

logger = logging.getLogger(__name__)

ENOUGH_ROWS = 64  # in the train file for each label, on average, from which on the encoder is trained
MAX_ROWS = 12_000  # in the largest train file on which a linear start was measured
# These say nothing about how to learn from few rows: where they are set, the choice stays open
FREE = {"seed", "precision", "device", "threads", "timeout", "gradient_checkpointing", "log_every"}
FREE |= {"save_every", "accumulation_steps", "micro_batch_tokens"}


def with_head(config: Config, num_rows: int, num_labels: int, has_pairs: bool) -> Config:
    """Return the configuration with a value for model.head auto, and log the choice. `num_rows` are those of
    the train file, of which `has_pairs` says whether they are pairs of texts."""
    data, usual = config.data, TrainConfig()
    if config.model.head != "auto":
        return config
    is_default = config.model == ModelConfig() and data.task == DataConfig().task
    is_own = data.train is not None and num_labels > 1 and not has_pairs and num_rows <= MAX_ROWS
    if not (is_default and is_own):
        return started(config, "random")
    # A setting that says how to train, or needs dev rows that are held out; a file of dev rows does not count
    names = [field.name for field in fields(usual) if field.name not in FREE]
    has_own = any(getattr(config.train, name) != getattr(usual, name) for name in names)
    has_own = has_own or data.dev_size not in (0, DataConfig().dev_size) or not data.verb.use_test
    how, said = "linear", "a linear head is fitted first, then all weights are trained"
    if num_rows < ENOUGH_ROWS * num_labels and not has_own:
        how, said = "few labels", "a linear head is fitted on the encoder as it is; no row is held out as dev"
        said += f", as with --config configs/{FEW_LABELS_CONFIG.name}"
    said += "; --model.head random trains the encoder from the start"
    logger.info("%s rows for %s labels: %s.", f"{num_rows:,}", f"{num_labels:,}", said)
    return started(config, how)


def started(config: Config, how: str) -> Config:
    """Return the configuration of a start: `random`, `linear`, or `few labels`, with the settings of
    configs/few_labels.yaml where it has the defaults."""
    if how != "few labels":
        # The default model was pretrained with this before each text
        prefix = {"prefix": "query: "} if how == "linear" else {}
        return replace(config, model=replace(config.model, head=how, **prefix))
    values = read_yaml(FEW_LABELS_CONFIG)
    for section, chosen in values.items():
        own = getattr(config, section)
        usual = type(own)()
        open_keys = [key for key in chosen if getattr(own, key) == getattr(usual, key)]
        config = replace(config, **{section: replace(own, **{key: chosen[key] for key in open_keys})})
    return config


ANY = math.inf
USUAL_WARMUP = 0.1  # fraction of all steps
USUAL_WIDTH = 768  # also of models with random weights
NARROW = 384
# LoRA multiplies the usual rate by these. That of narrow models was measured here; the other is published.
NARROW_LORA_FACTOR, LORA_FACTOR = 3, 10
# The first row that fits is taken: the largest width of the model and the most steps of an epoch for which
# it is meant, and its kind of rows ("linear": single texts, where the head starts as a logistic regression,
# nearly right from the first step). Then come the learning rate of the encoder, the factor from it to that
# of the head, and the warm-up.
#
# Narrow models need larger steps. In few steps the highest rate is best, but the loss may rise again after a
# short warm-up. Pairs of texts need a low rate: with a higher one all of them get the most frequent class.
RECIPES = (
    (NARROW, ANY, "pairs", 5e-5, 10, USUAL_WARMUP),
    (NARROW, 150, "linear", 5e-5, 1, 0.3),
    (NARROW, ANY, "linear", 5e-5, 1, USUAL_WARMUP),
    (NARROW, 150, "single", 2e-4, 10, 0.3),
    (NARROW, ANY, "single", 1e-4, 10, USUAL_WARMUP),
    (512, ANY, None, 5e-5, 1, USUAL_WARMUP),
    (768, ANY, None, 3e-5, 1, USUAL_WARMUP),
    (ANY, ANY, None, 2e-5, 1, USUAL_WARMUP),
)


def with_recipe(config: Config, steps_per_epoch: int, has_pairs: bool) -> Config:
    """Return the configuration with the settings of `train` filled in that are none and depend on the model
    and the data. `has_pairs` is whether rows are pairs of texts. Reads the configuration of the checkpoint,
    fetching it where needed. Raises InputError for one that cannot be read."""
    train = config.train
    model = config.model
    if None not in (train.learning_rate, train.head_learning_rate, train.warmup):
        return config
    width = USUAL_WIDTH
    if not model.has_random_weights:
        place = checkpoint_place(model, config.data.cache_dir)
        with quiet_transformers(), explained(cannot_load(model.name)):
            width = getattr(checkpoint_config(place), "hidden_size", None) or USUAL_WIDTH
    if has_pairs:
        rows = "pairs"
    elif model.head == "linear":
        rows = "linear"
    else:
        rows = "single"
    rate, head_factor, warmup = next(
        recipe
        for most_width, most_steps, kind, *recipe in RECIPES
        if width <= most_width and steps_per_epoch <= most_steps and kind in (rows, None)
    )
    if model.lora_rank:
        factor = NARROW_LORA_FACTOR if width <= NARROW else LORA_FACTOR
        rate = factor * rate
        head_factor = max(1.0, head_factor / factor)
    if train.learning_rate is not None:
        rate = train.learning_rate
    usual = {"learning_rate": rate, "warmup": warmup}
    if head_factor != 1:
        usual["head_learning_rate"] = rate * head_factor
    filled = {key: value for key, value in usual.items() if getattr(train, key) is None}
    if filled and not model.has_random_weights:
        chosen = ", ".join(f"train.{key} {value:g}" for key, value in filled.items())
        lora = " with LoRA" if model.lora_rank else ""
        texts = "pairs of" if has_pairs else "single"
        reason = f"{model.name}{lora}, {texts} texts, {steps_per_epoch:,} steps in an epoch"
        logger.info("Settings chosen for you: %s (for %s)", chosen, reason)
    return replace(config, train=replace(train, **filled))


MIN_EPOCHS, MIN_EPOCHS_OF_PAIRS = 3, 4  # what two texts have in common takes longer to learn
# Rows of the smallest class, each counted once an epoch. In many steps it is learned without more epochs.
ROWS_OF_SMALLEST_CLASS, MAX_EPOCHS, MAX_STEPS_FOR_SMALLEST_CLASS = 800, 6, 1_300
MIN_STEPS, MIN_STEPS_PER_CLASS = 120, 6  # few rows give few steps an epoch, so these need more epochs
MAX_STEPS, FEWEST = 6_000, 2  # more steps need fewer epochs, but never fewer than FEWEST
MAX_EVALUATIONS = 10  # with more epochs, dev is evaluated about this often


def with_epochs(config: Config, steps_per_epoch: int, class_sizes: Sequence[int], has_pairs: bool) -> Config:
    """Return the configuration with a number for train.epochs auto, and log which and why. `class_sizes` are
    the training rows of each label, if any; `has_pairs`: rows are pairs of texts."""
    train = config.train
    if train.epochs != "auto":
        return config
    candidates = [(MIN_EPOCHS, "as usual for single texts")]
    if has_pairs:
        candidates = [(MIN_EPOCHS_OF_PAIRS, "as usual for pairs of texts")]
    # A head that starts as a logistic regression knows small classes, and few rows, from its start
    if config.model.head != "linear":
        smallest = min((size for size in class_sizes if size), default=ROWS_OF_SMALLEST_CLASS)
        most = min(MAX_EPOCHS, MAX_STEPS_FOR_SMALLEST_CLASS // steps_per_epoch)
        for_smallest = min(math.ceil(ROWS_OF_SMALLEST_CLASS / smallest), most)
        reason = f"because the smallest class has only {smallest:,} training rows"
        candidates.append((for_smallest, reason))
        steps = MIN_STEPS + MIN_STEPS_PER_CLASS * len(class_sizes)
        reason = f"because at least {steps:,} steps are needed"
        candidates.append((math.ceil(steps / steps_per_epoch), reason))
    epochs, reason = max(candidates, key=lambda candidate: candidate[0])
    if epochs > (most := max(FEWEST, MAX_STEPS // steps_per_epoch)):
        epochs, reason = most, f"because {MAX_STEPS:,} steps are enough"
    evaluations = {}
    if train.eval_every is None and epochs > MAX_EVALUATIONS:
        evaluations = {"eval_every": steps_per_epoch * math.ceil(epochs / MAX_EVALUATIONS)}
    logger.info(f"train.epochs auto: {epochs:,} epochs of {steps_per_epoch:,} steps, {reason}.")
    return replace(config, train=replace(train, epochs=epochs, **evaluations))
