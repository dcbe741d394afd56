"""Rules for the values of settings, beyond their types."""

from __future__ import annotations

from typing import Any

from app.config.schema import Config, DataConfig, TrainConfig
from app.errors import InputError, shorten

LARGEST_SEED = (1 << 63) - 1
LEAST_TIMEOUT = 10  # seconds; ranks beat once a second, and a busy or swapping machine delays some of these beats
MOST_TOKENS = 1_000_000
MOST_THREADS = 4096
MOST_EPOCHS = 10**9


def check_values(config: Config) -> None:
    """Raise InputError, naming the key, for a value of the right type that is out of range; looks at each value by itself."""
    _refuse_nul(config.to_dict())
    _check_data(config.data)
    _check_train(config.train)
    _require("output.keep_states", config.output.keep_states, config.output.keep_states >= 1, "at least 1")
    if config.model.dropout is not None:
        _require("model.dropout", config.model.dropout, 0 <= config.model.dropout < 1, "from 0 to below 1")


def check_together(config: Config) -> None:
    """Raise InputError for settings that contradict each other."""
    data = config.data
    if data.train is None:
        for key in ("dev", "test"):
            _require(f"data.{key}", getattr(data, key), not getattr(data, key), "given together with data.train")


def _require(key: str, value: Any, is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise InputError(f"{key} must be {rule}, found {value!r}")


def _refuse_nul(value: Any, key: str = "") -> None:
    """Raise InputError for a string with a NUL character in this value and those inside it."""
    if isinstance(value, str):
        _require(key, shorten(value, 80), "\0" not in value, "without NUL characters, which no file name can have")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _refuse_nul(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            _refuse_nul(inner, key)


def _check_data(data: DataConfig) -> None:
    for key in ("dev_size", "test_size"):
        size = getattr(data, key)
        is_valid = size >= 0 and (size < 1 or float(size).is_integer())
        _require(f"data.{key}", size, is_valid, "0, a fraction below 1 or a whole number of rows")
    _require("data.max_length", data.max_length, data.max_length >= 4, "at least 4 tokens")
    _require("data.max_length", data.max_length, data.max_length <= MOST_TOKENS, f"at most {MOST_TOKENS:,} tokens")
    _require("data.limit", data.limit, data.limit is None or data.limit >= 1, "at least 1 row")
    _require_seed("data.split_seed", data.split_seed)
    if data.labels is not None:
        are_different = len(set(data.labels)) == len(data.labels) >= 2
        _require("data.labels", data.labels, are_different, "two or more different names")
        are_clean = all(name == name.strip() != "" for name in data.labels)
        _require("data.labels", data.labels, are_clean, "names without white space around them, none of them empty")


def _check_train(train: TrainConfig) -> None:
    _require_seed("train.seed", train.seed)
    for key in ("epochs", "batch_size", "accumulation_steps", "eval_batch_size", "log_every"):
        _require(f"train.{key}", getattr(train, key), getattr(train, key) >= 1, "at least 1")
    _require("train.epochs", train.epochs, train.epochs <= MOST_EPOCHS, f"at most {MOST_EPOCHS:,}")
    for key in ("threads", "nprocs"):
        value = getattr(train, key)
        _require(f"train.{key}", value, value is None or value <= MOST_THREADS, f"at most {MOST_THREADS:,}, or null")
    rule = f"at least {LEAST_TIMEOUT} seconds, or ranks that are only slow would be taken for dead"
    _require("train.timeout", train.timeout, train.timeout >= LEAST_TIMEOUT, rule)
    for key in ("max_steps", "eval_every", "save_every", "early_stopping", "threads", "nprocs"):
        value = getattr(train, key)
        _require(f"train.{key}", value, value is None or value >= 1, "at least 1, or null")
    size = train.micro_batch_size
    _require("train.micro_batch_size", size, not isinstance(size, int) or size >= 1, "at least 1, auto or null")
    for key in ("learning_rate", "weight_decay", "warmup", "max_grad_norm"):
        _require(f"train.{key}", getattr(train, key), 0 <= getattr(train, key) < float("inf"), "a finite number from 0")
    _require("train.layer_lr_decay", train.layer_lr_decay, 0 < train.layer_lr_decay <= 1, "above 0 and at most 1")
    _require("train.label_smoothing", train.label_smoothing, 0 <= train.label_smoothing < 1, "from 0 to below 1")


def _require_seed(key: str, seed: int) -> None:
    _require(key, seed, 0 <= seed <= LARGEST_SEED, "an integer from 0 to below 2**63")
