"""Rules for several settings together; those for a single value stand beside its field."""

from dataclasses import fields
from typing import Any

from ..errors import InputError, shorten
from .addresses import check_address
from .data_settings import TASKS
from .rules import check_rules, check_task, require
from .schema import Config, DataConfig, TrainConfig

# A stride is at least one in so many of max_length: windows of almost the same tokens only take time
MIN_STRIDE = 4


def check_values(config: Config) -> None:
    """Raise InputError, naming the key, for the first value that breaks the rule of its own field."""
    _refuse_nul(config.to_dict())
    for key in ("train", "dev", "test"):
        value = getattr(config.data, key) or []
        for name in [value] if isinstance(value, str) else value:
            check_address(f"data.{key}", name)
    for group in fields(config):
        check_rules(getattr(config, group.name), group.name)


def check_together(config: Config) -> None:
    """Raise InputError for settings that contradict each other."""
    data, having = config.data, {name: task.has for name, task in TASKS.items()}
    for group in fields(config):
        check_task(getattr(config, group.name), group.name, data.task, having)
    if data.train is None:
        for key in ("dev", "test"):
            value = getattr(data, key)
            require(f"data.{key}", value, not value, "given together with data.train")
    if (data.folds is None) != (data.fold is None) or (data.folds is not None and data.fold >= data.folds):
        raise InputError(
            "data.fold must be from 0 to data.folds - 1, and given together with data.folds; found "
            f"data.fold {data.fold} and data.folds {data.folds}"
        )
    freeze, rank = config.model.freeze, config.model.lora.rank
    require(
        "model.freeze", freeze, not freeze or not rank, "left out with model.lora.rank, which freezes all"
    )
    rule = "true with model.lora.rank and random weights: without the model an adapter is of no use"
    require("output.merge", config.output.merge, config.output.merge or not rank or config.model.name, rule)
    has_labels = "labels" in having[data.task]
    require("model.lora.rank", rank, not rank or has_labels, f"left out with data.task {data.task}")
    _check_long(data)
    _check_multi_label(data)
    _check_imbalance(config.train)
    if has_labels:
        without = " or ".join(name for name, has in having.items() if "labels" not in has)
        rule = f"a format with labels unless data.task is {without}"
        require("data.format", data.format, data.format != "text", rule)


def _check_long(data: DataConfig) -> None:
    """Raise InputError where settings of long texts contradict each other."""
    if data.long != "windows":
        require("data.stride", data.stride, data.stride is None, "left out unless data.long is windows")
    elif data.stride is not None:
        least = -(-data.max_length // MIN_STRIDE)
        rule = f"from {least} to below {data.max_length} (a quarter of data.max_length, and data.max_length)"
        require("data.stride", data.stride, least <= data.stride < data.max_length, rule)
    if data.long != "cut":
        rule = f"left out with data.long {data.long}, which reads single texts"
        require("data.text_pair_column", data.text_pair_column, data.text_pair_column is None, rule)


def _check_imbalance(train: TrainConfig) -> None:
    """Raise InputError where settings against imbalance contradict each other."""
    smoothing = train.label_smoothing
    require(
        "train.label_smoothing", smoothing, train.loss != "focal" or smoothing == 0, "0 with train.loss focal"
    )
    has_weights = train.positive_weights != "none"
    rule = "none with train.loss zlpr"
    require("train.positive_weights", train.positive_weights, not has_weights or train.loss != "zlpr", rule)
    rule = "left out with train.loss zlpr, which gives no probabilities"
    require("train.r_drop", train.r_drop, train.r_drop is None or train.loss != "zlpr", rule)
    is_chosen = {
        "train.class_weights balanced": train.class_weights == "balanced",
        "train.positive_weights balanced": train.positive_weights == "balanced",
        "train.sampling balanced": train.sampling == "balanced",
        "train.loss logit_adjusted": train.loss == "logit_adjusted",
    }
    corrections = [setting for setting, chosen in is_chosen.items() if chosen]
    if len(corrections) > 1:
        raise InputError(
            f"{' and '.join(corrections)} correct the same imbalance, and together they correct it twice; "
            "choose one of them"
        )


def _check_multi_label(data: DataConfig) -> None:
    """Raise InputError for settings of multi-label rows that contradict each other."""
    if data.task != DataConfig.task and "labels" in TASKS[data.task].has:
        rule = f"a file with data.task {data.task} (the sample set has one label a row)"
        require("data.train", data.train, data.train is not None, rule)
    if data.label_columns is not None:
        for key in ("labels", "label_column", "label_separator"):
            value = getattr(data, key)
            rule = "left out with data.label_columns, which has the labels"
            require(f"data.{key}", value, value is None, rule)
    most = data.max_labels
    require(
        "data.max_labels", most, most is None or most >= data.min_labels, "at least data.min_labels, or null"
    )


def _refuse_nul(value: Any, key: str = "") -> None:
    """Raise InputError for a string with a NUL character in this value and those inside it."""
    if isinstance(value, str):
        require(
            key, shorten(value, 80), "\0" not in value, "without NUL characters, which no file name can have"
        )
    elif isinstance(value, dict):
        for name, inner in value.items():
            _refuse_nul(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            _refuse_nul(inner, key)
