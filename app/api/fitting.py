"""One run of the trainer in this process, on rows that are in memory."""

import json
import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config.command_line import config_of
from ..config.schema import Config
from ..config.shipped import MODULE
from ..data.rows import Row
from ..errors import InputError, TrainingError

# `fit` sets these settings of data from what it is given.
SET_BY_FIT = ("train", "dev", "test", "test_size", "format", "task", "labels")
SET_BY_FIT += ("text_column", "text_pair_column")
SET_BY_FIT += ("label_column", "header", "encoding", "quoting", "on_bad_row", "cache_dir")


def write_rows(folder: Path, rows: list[Row], labels: list[str]) -> dict[str, Any]:
    """Write rows and their labels into a file in `folder`; return the settings that read it."""
    path = folder / "train.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for row, label in zip(rows, labels, strict=True):
            pair = {} if row.pair is None else {"pair": row.pair}
            file.write(json.dumps({"text": row.text, **pair, "label": label}) + "\n")
    columns = {"data.text_column": "text", "data.label_column": "label"}
    if rows[0].pair is not None:
        columns["data.text_pair_column"] = "pair"
    return {"data.train": str(path), "data.format": "jsonl", "data.test_size": 0, **columns}


def train_folder(
    folder: Path,
    settings: dict[str, Any],
    names: list[str],
    num_rows: int,
    cache_dir: str | Path | None,
    verbose: bool,
) -> Path:
    """Train with `settings`, by their dotted names, and return the run's folder; the labels are `names`.
    Without output.dir the run is in `folder`, without a report. Raises KeyboardInterrupt after Ctrl-C."""
    from ..model.recipe import with_head
    from ..model.source import checkpoint_place

    has_folder = "output.dir" in settings
    if not has_folder:
        settings = settings | {"output.dir": str(folder / "run"), "output.trackers": []}
    given = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()
    }
    config = config_of(given | {"data.labels": names, "output.name": "fit"}, "settings")
    with shown_log(verbose):
        # While the model has its name
        config = with_head(config, num_rows, len(names), "data.text_pair_column" in settings)
    encoders = str(cache_dir or config.data.cache_dir)
    place = checkpoint_place(config.model, encoders)
    model = config.model if place is None else replace(config.model, name=str(place))
    # The rows of one call are of no use to the next
    data = replace(config.data, cache_dir=str(folder / "cache"))
    status = run_quietly(replace(config, model=model, data=data), verbose, with_report=has_folder)
    if status == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if status:
        raise TrainingError(f"the training was stopped by signal {status - 128}")
    return Path(config.output.dir)


def check_settings(settings: dict[str, Any] | None) -> None:
    """Raise InputError for a setting that `fit` sets itself."""
    for name in settings or {}:
        if str(name).removeprefix("data.") in SET_BY_FIT and str(name).startswith("data."):
            raise InputError(
                f"{name} follows from what fit is given, or has a parameter; leave it out of settings"
            )


def run_quietly(config: Config, verbose: bool, with_report: bool) -> int:
    """Run one job in this process; return its exit status. torch's settings of this process are restored."""
    from ..modes import open_mode
    from ..runtime.signals import Stopped
    from ..training.train import Run

    with (
        shown_log(verbose),
        restored_signals(),
        restored_torch(),
        open_mode("single", config) as mode,
    ):
        try:
            return Run("single", mode, with_report, prints_report=verbose).run()
        except Stopped as stop:
            return 128 + stop.number


@contextmanager
def shown_log(verbose: bool) -> Iterator[None]:
    """Show the trainer's log lines, or none. Standard output is not redirected: other threads print too."""
    logger, handler = logging.getLogger(MODULE), logging.StreamHandler()
    level = logger.level
    if verbose:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def restored_signals() -> Iterator[None]:
    """Restore the handlers of signals afterwards: a finished run ignores signals, as its program ends."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items() if in_main_thread else ():
            signal.signal(number, handler)


@contextmanager
def restored_torch() -> Iterator[None]:
    """Restore torch's random state, its number of threads and its choice of kernels afterwards."""
    import torch

    threads = torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)
