"""How the head starts where `model.head` is auto; docs/lab/quality.md has the measurements."""

import logging
from dataclasses import fields, replace
from typing import Literal

from ..config.schema import Config, DataConfig, ModelConfig, TrainConfig
from ..config.shipped import FEW_LABELS_CONFIG
from ..config.yaml_files import read_yaml
from ..program import file_here

logger = logging.getLogger(__name__)

Start = Literal["random", "linear", "few labels"]

MIN_ROWS_PER_LABEL = 64  # in the train file, on average; with fewer, the encoder is not trained
MAX_ROWS = 12_000  # in the largest train file on which a linear start was measured
# These say nothing about how to learn from few rows: where they are set, the choice stays open
FREE = {
    "seed",
    "precision",
    "device",
    "threads",
    "timeout",
    "gradient_checkpointing",
    "log_every",
    "save_every",
    "accumulation_steps",
    "micro_batch_tokens",
}
# The default model was pretrained with this before each text
E5_PREFIX = "query: "


def with_head(config: Config, num_rows: int, num_labels: int, has_pairs: bool) -> Config:
    """Return the configuration with a value for model.head auto, and log the choice. `num_rows` are those of
    the train file, of which `has_pairs` says whether they are pairs of texts."""
    data = config.data
    if config.model.head != "auto":
        return config
    is_default = config.model == ModelConfig() and data.task == DataConfig().task
    is_measured = data.train is not None and num_labels > 1 and not has_pairs and num_rows <= MAX_ROWS
    if not (is_default and is_measured):
        return started(config, "random")
    start: Start
    if num_rows < MIN_ROWS_PER_LABEL * num_labels and not says_how_to_train(config):
        start = "few labels"
        message = "a linear head is fitted on the encoder as it is"
        if data.dev is None:
            message += "; no row is held out as dev"
        message += f", as with --config {file_here('configs/few_labels.yaml')}"
    else:
        start = "linear"
        message = "a linear head is fitted first, then all weights are trained"
    logger.info(
        "%s rows for %s labels: %s; --model.head random trains the encoder from the start.",
        f"{num_rows:,}",
        f"{num_labels:,}",
        message,
    )
    return started(config, start)


def says_how_to_train(config: Config) -> bool:
    """Return whether a setting says how to train, or needs dev rows that are held out; a file of dev rows
    does not count."""
    data = config.data
    defaults = TrainConfig()
    for field in fields(defaults):
        is_set = getattr(config.train, field.name) != getattr(defaults, field.name)
        if is_set and field.name not in FREE:
            return True
    return data.dev_size not in (0, DataConfig().dev_size) or not data.verb.use_test


def started(config: Config, start: Start) -> Config:
    """Return the configuration of a start; of `few labels` with the settings of configs/few_labels.yaml where
    it has the defaults."""
    if start == "few labels":
        return with_few_labels_settings(config)
    model = replace(config.model, head=start)
    if start == "linear":
        model = replace(model, prefix=E5_PREFIX)
    return replace(config, model=model)


def with_few_labels_settings(config: Config) -> Config:
    for section, values in read_yaml(FEW_LABELS_CONFIG).items():
        settings = getattr(config, section)
        defaults = type(settings)()
        chosen = {}
        for key, value in values.items():
            if getattr(settings, key) == getattr(defaults, key):
                chosen[key] = value
        config = replace(config, **{section: replace(settings, **chosen)})
    return config
