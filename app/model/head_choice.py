"""`model.head auto`: how the default model begins, by the rows of the train file (docs/quality.md)."""

import logging
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..config.command_line import read_yaml
from ..config.schema import Config, DataConfig, ModelConfig, TrainConfig
from ..config.shipped import E5_SMALL, FEW_LABELS_CONFIG

logger = logging.getLogger(__name__)
# Rows of the train file for each label, on average, from which on the encoder is trained
ENOUGH_ROWS = 64
# Of the largest train file on which a linear start was measured (docs/quality.md)
MAX_ROWS = 12_000
# Settings of the machine, and of the arithmetic, leave the choice of few rows open
FREE = (
    *("seed", "precision", "device", "threads", "timeout"),
    *("gradient_checkpointing", "log_every", "save_every", "accumulation_steps", "micro_batch_tokens"),
)


def with_head(config: Config, num_rows: int, num_labels: int, has_pairs: bool) -> Config:
    """Return the configuration with a value for model.head auto, and log the choice. `num_rows` are those of
    the train file, of which `has_pairs` says whether they are pairs of texts."""
    if config.model.head != "auto":
        return config
    is_measured = num_labels > 1 and not has_pairs and num_rows <= MAX_ROWS and is_default(config)
    if not is_measured:
        return with_head_random(config)
    rows, labels = f"{num_rows:,}", f"{num_labels:,}"
    if num_rows < ENOUGH_ROWS * num_labels and says_nothing(config):
        logger.info(
            "Few rows, %s for %s labels: a linear head is fitted on the encoder as it is, and no row is held "
            "out as dev, as with --config %s; --model.head random trains the encoder.",
            *(rows, labels, f"configs/{FEW_LABELS_CONFIG.name}"),
        )
        return with_few_labels(config)
    logger.info(
        "%s rows for %s labels: a linear head is fitted first, then all weights are trained; "
        "--model.head random leaves out the first part.",
        *(rows, labels),
    )
    return with_linear_start(config)


def with_head_random(config: Config) -> Config:
    """Return the configuration with model.head random."""
    return replace(config, model=replace(config.model, head="random"))


def with_linear_start(config: Config) -> Config:
    """Return the configuration of the default model with model.head linear."""
    # It was pretrained with this before each text
    return replace(config, model=replace(config.model, head="linear", prefix="query: "))


def with_few_labels(config: Config) -> Config:
    """Return the configuration with the settings of configs/few_labels.yaml where it has the defaults."""
    values = read_yaml(FEW_LABELS_CONFIG)
    # The device has chosen it
    del values["train"]["precision"]
    return _filled(config, values)


def is_default(config: Config) -> bool:
    """Return whether the default model gives one label a row, on a file of the user's."""
    data = config.data
    is_plain = data.task == DataConfig().task and data.train is not None
    return is_plain and config.model == ModelConfig(name=E5_SMALL)


def says_nothing(config: Config) -> bool:
    """Return whether no setting says how to train, or needs dev rows that are held out. A dev file of the
    user's stays one."""
    data, usual = config.data, TrainConfig()
    needs_dev = data.dev_size not in (0, DataConfig().dev_size) or not data.verb.use_test
    return not needs_dev and all(
        getattr(config.train, field.name) == getattr(usual, field.name)
        for field in fields(usual)
        if field.name not in FREE
    )


def _filled(settings: Any, values: dict[str, Any]) -> Any:
    usual = type(settings)()
    changed = {}
    for key, value in values.items():
        own = getattr(settings, key)
        if is_dataclass(own):
            changed[key] = _filled(own, value)
        elif own == getattr(usual, key):
            changed[key] = value
    return replace(settings, **changed)
