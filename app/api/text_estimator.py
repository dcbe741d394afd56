"""What the estimators of scikit-learn share: parameters, and a training in this process."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..config.command_line import config_of
from ..config.schema import Config
from ..data.rows import Row
from ..errors import InputError, TrainingError
from ..prediction.open_model import ComputeOptions
from ..program import MODULE
from ..runtime.processes import MODEL_LOCK
from .errors import OF_TRAIN, errors_for_python
from .files import OwnFolder
from .model import Model

# `fit` sets these settings from what it is given.
SET_BY_FIT = (
    "data.train",
    "data.dev",
    "data.test",
    "data.test_size",
    "data.format",
    "data.task",
    "data.labels",
    "data.text_column",
    "data.label_column",
    "data.text_pair_column",
    "data.header",
    "data.sheet",
    "data.encoding",
    "data.quoting",
    "data.on_bad_row",
    "data.cache_dir",
)
TRAIN_FILE = "train.jsonl"
# These parameters are never None, so `settings` may have them too
ALSO_IN_SETTINGS = {"train.device", "data.dev_size"}


@dataclass(frozen=True)
class TrainingRows:
    """Texts with their answers: a label, a list of labels or a number for each. `label_names` are all labels;
    there are none for numbers."""

    texts: list[Row]
    answers: list[Any]
    task: str  # the value of data.task
    label_names: list[str]


class TextEstimator(BaseEstimator):
    """The parameters and the training of `TextClassifier` and `TextRegressor`, see there."""

    def __init__(
        self,
        *,
        model: str | None = None,
        epochs: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        max_length: int | None = None,
        dev_size: float = 0,
        early_stopping: int | None = None,
        precision: str | None = None,
        device: str = "auto",
        random_state: int | None = None,
        settings: dict[str, Any] | None = None,
        output_dir: str | Path | None = None,
        cache_dir: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        # scikit-learn reads each parameter from the attribute of its name
        self.model = model
        self.epochs = epochs
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_length = max_length
        self.dev_size = dev_size
        self.early_stopping = early_stopping
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.settings = settings
        self.output_dir = output_dir
        self.cache_dir = cache_dir
        self.verbose = verbose

    def _fit(self, rows: TrainingRows, settings: dict[str, Any]) -> None:
        """Train on rows, and set `model_`; `settings` are those of `_settings`."""
        temporary = OwnFolder()
        with MODEL_LOCK, ExitStack() as stack:
            stack.callback(temporary.remove)
            with errors_for_python(own_file=str(temporary.path / TRAIN_FILE)):
                run_folder = self._train(temporary.path, settings, rows)
            options = ComputeOptions(self.device)
            if self.output_dir is None:
                self.model_ = Model(run_folder, options, temporary)
                # From now on the folder lives as long as the model
                stack.pop_all()
            else:
                self.model_ = Model(run_folder, options)

    def _train(self, folder: Path, settings: dict[str, Any], rows: TrainingRows) -> Path:
        """Train on rows; return the run's folder.

        `settings` have dotted names. Without `output_dir` the run is in `folder`, and has no report. Raises
        KeyboardInterrupt after Ctrl-C.
        """
        from ..model.checkpoint import checkpoint_place
        from ..model.head_choice import with_head

        path = folder / TRAIN_FILE
        write_rows(path, rows)
        has_pairs = rows.texts[0].pair is not None
        settings = settings | settings_of_rows(path, rows, has_pairs)
        with_report = "output.dir" in settings
        if not with_report:
            settings["output.dir"] = str(folder / "run")
            settings["output.trackers"] = []
        config = config_of({name: python_value(value) for name, value in settings.items()})
        config = replace(config, is_of_program=True)
        if config.train.best_metric == "rare_f1" and not with_report:
            raise InputError("train.best_metric rare_f1: its threshold is kept with a report; set output_dir")
        with process_restored(), shown_log(self.verbose):
            # It knows the default model by its name, in whose place comes a path below
            config = with_head(config, len(rows.texts), len(rows.label_names), has_pairs)
            model_folder = checkpoint_place(config.model, str(self.cache_dir or config.data.cache_dir))
            if model_folder is not None:
                config = replace(config, model=replace(config.model, name=str(model_folder)))
            # The rows of one call are of no use to the next
            config = replace(config, data=replace(config.data, cache_dir=str(folder / "cache")))
            status = train_run(config, with_report)
        if status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if status:
            raise TrainingError(f"the training was stopped by signal {status - 128}")
        run_folder = Path(config.output.dir)
        if self.verbose and with_report:
            print((run_folder / "report.txt").read_text(encoding="utf-8"))  # noqa: T201
        return run_folder

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the parameters, by their dotted names. Raises InputError where `settings`
        have one that is a parameter, or that `fit` sets."""
        parameters: dict[str, Any] = {}
        for name in OF_TRAIN:
            # A regressor has no class_weights
            parameters[f"train.{name}"] = getattr(self, name, None)
        parameters["train.seed"] = self.random_state
        parameters["model.name"] = self.model
        parameters["data.max_length"] = self.max_length
        parameters["data.dev_size"] = self.dev_size
        if self.output_dir is not None:
            parameters["output.dir"] = str(self.output_dir)
        chosen = {name: value for name, value in parameters.items() if value is not None}
        settings = self.settings or {}
        reserved = chosen.keys() - ALSO_IN_SETTINGS
        reserved.update(SET_BY_FIT)
        conflicts = sorted(reserved.intersection(map(str, settings)))
        if conflicts:
            raise InputError(
                f"{conflicts[0]} follows from what fit is given, or from a parameter; leave it out of "
                "settings"
            )
        return chosen | settings

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def write_rows(path: Path, rows: TrainingRows) -> None:
    """Write rows with their answers as JSON Lines."""
    with path.open("w", encoding="utf-8") as file:
        for text, answer in zip(rows.texts, rows.answers, strict=True):
            record = {"text": text.text, "pair": text.pair, "label": answer}
            file.write(json.dumps(record) + "\n")


def settings_of_rows(path: Path, rows: TrainingRows, has_pairs: bool) -> dict[str, Any]:
    """Return the settings for training on the file of `write_rows`."""
    settings: dict[str, Any] = {
        "output.name": "fit",
        "data.task": rows.task,
        "data.train": str(path),
        "data.format": "jsonl",
        "data.test_size": 0,
        "data.text_column": "text",
        "data.label_column": "label",
    }
    if rows.label_names:
        settings["data.labels"] = rows.label_names
    if has_pairs:
        settings["data.text_pair_column"] = "pair"
    return settings


def python_value(value: Any) -> Any:
    """Return a number of NumPy as one of Python, anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return value


def train_run(config: Config, with_report: bool) -> int:
    """Train in this process; return the exit status of the run, 128 + the number of a signal that ended
    it."""
    from ..modes.mode import Single
    from ..modes.signals import Stopped
    from ..training.open_run import open_run

    with Single(config) as mode:
        try:
            with open_run("single", mode, with_report) as run:
                return run.run()
        except Stopped as stop:
            return 128 + stop.number


@contextmanager
def process_restored() -> Iterator[None]:
    """Give a context after which the settings of this process that a training changes are as before. Standard
    output is not redirected inside, because other threads print too."""
    import torch

    with ExitStack() as restored:
        restored.enter_context(torch.random.fork_rng())
        restored.callback(torch.set_num_threads, torch.get_num_threads())
        restored.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        yield


@contextmanager
def shown_log(is_shown: bool) -> Iterator[None]:
    """Give a context in which the log of this package goes to standard error, where `is_shown`."""
    if not is_shown:
        yield
        return
    logger = logging.getLogger(MODULE)
    level = logger.level
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
