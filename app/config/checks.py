"""Rules for the values of settings, beyond their types."""

from __future__ import annotations

from typing import Any

from ..errors import InputError, shorten
from .schema import Config, DataConfig, TrainConfig

MAX_SEED = (1 << 63) - 1
# seconds; ranks beat once a second, and a busy or swapping machine delays some of these beats
MIN_TIMEOUT = 10
TRACKERS = ("mlflow", "wandb", "swanlab")
MAX_TOKENS = 1_000_000
# A stride is at least one in so many of max_length: windows of almost the same tokens only take time
MIN_STRIDE = 4
MAX_WINDOWS = 10_000
MAX_THREADS = 4096
LOSSES = {
    "single_label": ("cross_entropy", "focal", "logit_adjusted"),
    "multi_label": ("cross_entropy", "focal"),
    "masked_words": ("cross_entropy",),
}
MULTI_LABEL_ONLY = (
    *("data.label_separator", "data.label_columns", "data.min_labels", "data.max_labels"),
    "train.positive_weights",
)
MAX_ROWS = 10**12
MAX_EPOCHS = 10**9
MAX_FOLDS = 1000


def check_values(config: Config) -> None:
    """Raise InputError, naming the key, for a value of the right type that is out of range; looks at each
    value by itself."""
    _refuse_nul(config.to_dict())
    _check_data(config.data)
    _check_train(config.train)
    known = all(name in TRACKERS for name in config.output.trackers)
    _require("output.trackers", config.output.trackers, known, f"names out of {', '.join(TRACKERS)}")
    _require("output.keep_states", config.output.keep_states, config.output.keep_states >= 1, "at least 1")
    if config.model.dropout is not None:
        _require("model.dropout", config.model.dropout, 0 <= config.model.dropout < 1, "from 0 to below 1")


def check_together(config: Config) -> None:
    """Raise InputError for settings that contradict each other."""
    data = config.data
    if data.train is None:
        for key in ("dev", "test"):
            _require(
                f"data.{key}", getattr(data, key), not getattr(data, key), "given together with data.train"
            )
    if (data.folds is None) != (data.fold is None) or (data.folds is not None and data.fold >= data.folds):
        raise InputError(
            "data.fold must be from 0 to data.folds - 1, and given together with data.folds; found "
            f"data.fold {data.fold} and "
            f"data.folds {data.folds}"
        )
    _check_long(data)
    _check_multi_label(config)
    _check_imbalance(config)
    if data.task == "masked_words":
        for key in ("labels", "label_column", "text_pair_column", "folds", "relabel"):
            _require(
                f"data.{key}",
                getattr(data, key),
                getattr(data, key) is None,
                "left out with data.task masked_words",
            )
        for key in ("label_smoothing", "class_weights"):
            value = getattr(config.train, key)
            _require(f"train.{key}", value, value in (0, "none"), "left out with data.task masked_words")
    else:
        _require(
            "data.whole_words",
            data.whole_words,
            not data.whole_words,
            "left out unless data.task is masked_words",
        )
        _require(
            "data.format",
            data.format,
            data.format != "text",
            "a format with labels unless data.task is masked_words",
        )


def _check_long(data: DataConfig) -> None:
    """Raise InputError where settings of long texts contradict each other."""
    if data.long != "windows":
        _require("data.stride", data.stride, data.stride is None, "left out unless data.long is windows")
    elif data.stride is not None:
        least = -(-data.max_length // MIN_STRIDE)
        rule = f"from {least} to below {data.max_length} (a quarter of data.max_length, and data.max_length)"
        _require("data.stride", data.stride, least <= data.stride < data.max_length, rule)
    if data.long != "cut":
        rule = f"left out with data.long {data.long}, which reads single texts"
        _require("data.text_pair_column", data.text_pair_column, data.text_pair_column is None, rule)
        _require("data.long", data.long, data.task != "masked_words", "cut with data.task masked_words")


def _check_imbalance(config: Config) -> None:
    """Raise InputError where settings against imbalance contradict each other, or the task."""
    train, task = config.train, config.data.task
    losses = LOSSES[task]
    _require("train.loss", train.loss, train.loss in losses, f"{' or '.join(losses)} with data.task {task}")
    if task == "masked_words":
        _require("train.sampling", train.sampling, train.sampling == "all", "all with data.task masked_words")
    if train.loss == "focal":
        _require(
            "train.label_smoothing",
            train.label_smoothing,
            train.label_smoothing == 0,
            "0 with train.loss focal",
        )
    chosen = {
        "train.class_weights balanced": train.class_weights == "balanced",
        "train.positive_weights balanced": train.positive_weights == "balanced",
        "train.sampling balanced": train.sampling == "balanced",
        "train.loss logit_adjusted": train.loss == "logit_adjusted",
    }
    found = [setting for setting, is_chosen in chosen.items() if is_chosen]
    if len(found) > 1:
        raise InputError(
            f"{' and '.join(found)} correct the same imbalance, and together they correct it twice; choose "
            "one of them"
        )


def _check_multi_label(config: Config) -> None:
    """Raise InputError for settings that contradict data.task multi_label, or need it."""
    data, train = config.data, config.train
    if data.task != "multi_label":
        for key in MULTI_LABEL_ONLY:
            group, name = key.split(".")
            value, default = getattr(getattr(config, group), name), getattr(getattr(Config(), group), name)
            _require(key, value, value == default, "left out unless data.task is multi_label")
        return
    _require(
        "data.train",
        data.train,
        data.train is not None,
        "a file with data.task multi_label (the sample set has one label a row)",
    )
    if data.label_columns is not None:
        for key in ("labels", "label_column", "label_separator"):
            value = getattr(data, key)
            _require(
                f"data.{key}", value, value is None, "left out with data.label_columns, which has the labels"
            )
    _require(
        "train.class_weights",
        train.class_weights,
        train.class_weights == "none",
        "none with data.task multi_label; set train.positive_weights",
    )
    _require(
        "train.label_smoothing",
        train.label_smoothing,
        train.label_smoothing == 0,
        "0 with data.task multi_label",
    )


def _require(key: str, value: Any, is_valid: bool, rule: str) -> None:
    if not is_valid:
        raise InputError(f"{key} must be {rule}, found {value!r}")


def _refuse_nul(value: Any, key: str = "") -> None:
    """Raise InputError for a string with a NUL character in this value and those inside it."""
    if isinstance(value, str):
        _require(
            key, shorten(value, 80), "\0" not in value, "without NUL characters, which no file name can have"
        )
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
        _require(f"data.{key}", size, size <= MAX_ROWS, f"at most {MAX_ROWS:,} rows")
    _require("data.max_length", data.max_length, data.max_length >= 4, "at least 4 tokens")
    _require(
        "data.max_length", data.max_length, data.max_length <= MAX_TOKENS, f"at most {MAX_TOKENS:,} tokens"
    )
    _require(
        "data.max_windows",
        data.max_windows,
        1 <= data.max_windows <= MAX_WINDOWS,
        f"from 1 to {MAX_WINDOWS:,}",
    )
    _require("data.limit", data.limit, data.limit is None or data.limit >= 1, "at least 1 row")
    _require_seed("data.split_seed", data.split_seed)
    _require(
        "data.folds",
        data.folds,
        data.folds is None or 2 <= data.folds <= MAX_FOLDS,
        f"from 2 to {MAX_FOLDS}",
    )
    _require("data.fold", data.fold, data.fold is None or data.fold >= 0, "at least 0")
    for key in ("labels", "label_columns"):
        names = getattr(data, key)
        if names is not None:
            _require(f"data.{key}", names, len(set(names)) == len(names) >= 2, "two or more different names")
            are_clean = all(name == name.strip() != "" for name in names)
            _require(
                f"data.{key}", names, are_clean, "names without white space around them, none of them empty"
            )
    separator = data.label_separator
    _require("data.label_separator", separator, separator != "", "one or more characters, or null")
    _require("data.min_labels", data.min_labels, data.min_labels >= 0, "at least 0")
    most = data.max_labels
    _require(
        "data.max_labels",
        most,
        most is None or most >= max(1, data.min_labels),
        "at least 1 and min_labels, or null",
    )


def _check_train(train: TrainConfig) -> None:
    _require_seed("train.seed", train.seed)
    for key in ("epochs", "batch_size", "accumulation_steps", "eval_batch_size", "log_every"):
        _require(f"train.{key}", getattr(train, key), getattr(train, key) >= 1, "at least 1")
    _require("train.epochs", train.epochs, train.epochs <= MAX_EPOCHS, f"at most {MAX_EPOCHS:,}")
    for key in ("threads", "nprocs"):
        value = getattr(train, key)
        _require(
            f"train.{key}",
            value,
            value is None or value <= MAX_THREADS,
            f"at most {MAX_THREADS:,}, or null",
        )
    rule = f"at least {MIN_TIMEOUT} seconds, or ranks that are only slow would be taken for dead"
    _require("train.timeout", train.timeout, train.timeout >= MIN_TIMEOUT, rule)
    for key in ("max_steps", "eval_every", "save_every", "early_stopping", "threads", "nprocs"):
        value = getattr(train, key)
        _require(f"train.{key}", value, value is None or value >= 1, "at least 1, or null")
    size = train.micro_batch_size
    _require(
        "train.micro_batch_size", size, not isinstance(size, int) or size >= 1, "at least 1, auto or null"
    )
    for key in ("learning_rate", "head_learning_rate", "weight_decay", "warmup", "max_grad_norm"):
        value = getattr(train, key)
        _require(f"train.{key}", value, value is None or 0 <= value < float("inf"), "a finite number from 0")
    _require(
        "train.layer_lr_decay", train.layer_lr_decay, 0 < train.layer_lr_decay <= 1, "above 0 and at most 1"
    )
    _require("train.focal_gamma", train.focal_gamma, 0 <= train.focal_gamma <= 10, "from 0 to 10")
    _require(
        "train.label_smoothing", train.label_smoothing, 0 <= train.label_smoothing < 1, "from 0 to below 1"
    )


def _require_seed(key: str, seed: int) -> None:
    _require(key, seed, 0 <= seed <= MAX_SEED, "an integer from 0 to below 2**63")
