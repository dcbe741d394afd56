"""`model.head auto`: for few rows of the default model the settings of configs/few_labels.yaml, which were
better there (docs/few_labels.md)."""

import logging
from dataclasses import fields, is_dataclass, replace
from typing import Any

from ..config.schema import Config, DataConfig, ModelConfig, TrainConfig
from ..config.shipped import E5_SMALL, FEW_LABELS_CONFIG
from ..config.yaml_files import read_yaml

logger = logging.getLogger(__name__)
# Rows of the train file for each label, on average, from which on the default is at least as good
ENOUGH_ROWS = 64
# Settings of the machine, and of the arithmetic, leave the choice open
FREE = (
    *("seed", "precision", "device", "threads", "nprocs", "timeout", "deterministic", "on_nonfinite"),
    *("collate", "attention", "cuda_graphs", "gradient_checkpointing", "log_every", "save_every"),
    *("accumulation_steps", "micro_batch_size", "micro_batch_tokens", "eval_batch_size"),
)


def with_head(config: Config, num_rows: int, num_labels: int, has_pairs: bool) -> Config:
    """Return the configuration with a value for model.head auto, and log the choice of few rows. `num_rows`
    are those of the train file, of which `has_pairs` says whether they are pairs of texts."""
    if config.model.head != "auto":
        return config
    is_few = num_labels > 1 and num_rows < ENOUGH_ROWS * num_labels and not has_pairs
    if not (is_few and is_open(config)):
        return with_head_random(config)
    logger.info(
        "Few rows, %s for %s labels: a linear head is fitted on the encoder as it is, and no row is held "
        "out as dev, as with --config %s; --model.head random trains the encoder.",
        f"{num_rows:,}",
        f"{num_labels:,}",
        f"configs/{FEW_LABELS_CONFIG.name}",
    )
    return with_few_labels(config)


def with_head_random(config: Config) -> Config:
    """Return the configuration with model.head random."""
    return replace(config, model=replace(config.model, head="random"))


def is_open(config: Config) -> bool:
    """Return whether no setting says how to train: a plain run of one label a row on a file of the user's,
    whose held-out dev rows nothing needs. A dev file of the user's stays one."""
    data, usual_data, usual = config.data, DataConfig(), TrainConfig()
    says_nothing = all(
        getattr(config.train, field.name) == getattr(usual, field.name)
        for field in fields(usual)
        if field.name not in FREE
    )
    needs_dev = data.dev_size not in (0, usual_data.dev_size) or not data.use_test
    is_plain = data.task == usual_data.task and data.train is not None and not needs_dev
    return is_plain and says_nothing and config.model == ModelConfig(name=E5_SMALL)


def with_few_labels(config: Config) -> Config:
    """Return the configuration with the settings of configs/few_labels.yaml where it has the defaults."""
    values = read_yaml(FEW_LABELS_CONFIG)[1]
    # The device has chosen it
    del values["train"]["precision"]
    return _filled(config, values)


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
