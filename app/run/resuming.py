"""Resuming a run from its training state: what must be equal, what may change, and training for longer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from safetensors.torch import load_file

from ..checkpoints.find_run import is_finished, run_to_resume
from ..checkpoints.parameter_names import add_prefix
from ..checkpoints.run_config import settings_file
from ..checkpoints.run_contents import MODEL
from ..checkpoints.run_folder import finished_error, keep_reports
from ..checkpoints.training_state import (
    TrainingState,
    add_best_model,
    load_training_state,
    restore_best_model,
)
from ..config.schema import Config
from ..config.yaml_files import read_yaml
from ..errors import InputError
from ..strategies.strategy import Strategy
from ..training.progress import RunProgress
from .job_signature import LENGTH, changes, listed_changes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedRun:
    """What every rank needs to know of a saved run."""

    state: RunProgress
    job: dict
    has_tensors: bool
    is_finished: bool
    changes: str


@dataclass(frozen=True)
class Resumed:
    """The state that a run continues with, unless there was none: a new one.

    `start_longer` prepares the folder of a run that trains for longer, on rank 0; it is called before the
    first write.
    """

    state: RunProgress
    has_state: bool = True
    start_longer: Callable[[], None] | None = None


def check_not_done(config: Config) -> None:
    """Raise InputError at once where a finished run would be resumed with the same length, before any long
    work."""
    folder = Path(config.output.dir) if config.output.dir else None
    if folder is None or not is_finished(folder) or config.output.overwrite:
        return
    _, settings = read_yaml(settings_file(folder))
    train = settings.get("train") if isinstance(settings, dict) else None
    if isinstance(train, dict) and all(train.get(key) == getattr(config.train, key) for key in LENGTH):
        raise finished_error(folder)


def with_saved_precision(config: Config) -> Config:
    """Return the configuration with the precision of the run that it resumes, where train.precision is auto.

    Measured again, another one could be the fastest.
    """
    folder = run_to_resume(config.output) if config.train.precision == "auto" else None
    _, settings = read_yaml(settings_file(folder)) if folder else (None, None)
    train = settings.get("train") if isinstance(settings, dict) else None
    precision = train.get("precision") if isinstance(train, dict) else None
    if precision not in ("fp32", "bf16"):
        return config
    return replace(config, train=replace(config.train, precision=precision))


def resume(strategy: Strategy, config: Config, folder: Path | None, job: dict, earlier: dict) -> Resumed:
    """Continue from the newest training state in `folder`, which rank 0 passes in where there is a run to
    resume.

    `job` is this job's signature, and `earlier` what earlier versions kept of its data. Every rank calls it.
    Loads weights, optimizer and loss scale into the strategy; where the training is done already, the best
    model. Raises InputError for another job than the one that was started, and for steps that cannot be
    trained.
    """
    saved = load_training_state(folder) if folder else None
    known = strategy.group.broadcast(saved_run(saved, folder, job, earlier) if saved else None)
    if known is None:
        if folder and is_finished(folder):
            raise InputError(
                f"{folder} holds a finished run whose training states are damaged, so it cannot train for "
                "longer; start a new run "
                f"from its model with --model.name {folder}"
            )
        if folder:
            logger.info("%s has no training state to resume from; the run starts from the beginning.", folder)
        return Resumed(RunProgress(), has_state=False)
    if known.changes:
        raise InputError(
            f"a run can be resumed only with the settings and data it was started with: {known.changes}; "
            "change them back, or "
            "choose another output.dir"
        )
    is_longer = known.job["steps"] != job["steps"]
    if is_longer:
        check_can_train(known, job["steps"], config.output.dir)
    elif known.is_finished:
        raise finished_error(Path(config.output.dir))
    load(strategy, saved, known, folder, is_trained=not is_longer and known.state.is_trained(job["steps"]))
    logger.info("Resuming from step %d.", known.state.step)
    if not is_longer:
        return Resumed(known.state)
    logger.info(
        "Training to step %d instead of %d; from here on the learning rate is that of a run of %d steps.",
        *(job["steps"], known.job["steps"], job["steps"]),
    )
    restarted = replace(known.state, stopped_early=False, evaluations_without_improvement=0)
    state = restarted if known.state.stopped_early else known.state
    return Resumed(
        state, start_longer=partial(start_longer, folder, saved.folder, state.step) if saved else None
    )


def saved_run(saved: TrainingState, folder: Path, job: dict, earlier: dict) -> SavedRun:
    """Return what every rank needs to know of a training state, and of how its job differs from this one."""
    different = changed_job(saved.job, job, folder, earlier)
    return SavedRun(saved.run_state, saved.job, bool(saved.weights), is_finished(folder), different)


def changed_job(saved: dict, job: dict, folder: Path, earlier: dict) -> str:
    """Return what a message says of a job that is not the one of a saved run, or an empty string."""
    if "data" not in saved:
        return listed_changes(changes(saved, job))
    # A state of an earlier version: for data and tokens it has names of the cache, which depended on the path
    # of the file.
    found = changes(saved, {key: value for key, value in job.items() if not key.startswith("data.")})
    if not found and any(saved.get(key) != name for key, name in earlier.items()):
        before = saved_data_settings(folder)
        found = changes(before, {key: job[key] for key in before if key in job}) or [
            "the content of the data or the tokenizer is not the same"
        ]
        found.append("(this state of an earlier version resumes only with the same paths of the data files)")
    return listed_changes(found)


def saved_data_settings(folder: Path) -> dict:
    """Return the settings of the data in the run's configuration file, as far as it can be read."""
    _, settings = read_yaml(settings_file(folder))
    data = settings.get("data") if isinstance(settings, dict) else None
    return (
        {f"data.{key}": value for key, value in data.items() if value is not None}
        if isinstance(data, dict)
        else {}
    )


def check_can_train(known: SavedRun, total_steps: int, folder: str | None) -> None:
    """Raise InputError unless a saved run can train to another last step than the one it was started with."""
    done = known.state.step
    if total_steps <= done:
        raise InputError(
            f"train.epochs and train.max_steps must give more steps than the {done} that the run has done, "
            f"found {total_steps}; "
            "raise them, or choose another output.dir"
        )
    if not known.has_tensors:
        raise InputError(
            "a run whose training is done can train for longer only from its last training state, which was "
            "not kept "
            f"(output.keep_final_state); start a new run from its model with --model.name {folder or 'RUN'}"
        )


def load(
    strategy: Strategy, saved: TrainingState | None, known: SavedRun, folder: Path | None, is_trained: bool
) -> None:
    """Load a training state, or where `is_trained` the run's best model, into the strategy; every rank calls
    it."""
    if saved:
        restore_best_model(saved.folder, folder / MODEL)
    if is_trained:
        load_best(strategy, folder)
        return
    strategy.full_state.load_weights(add_prefix(saved.weights if saved else {}))
    strategy.full_state.load_optimizer(add_prefix(saved.optimizer if saved else {}))
    strategy.full_state.load_scaler(known.state.scaler)


def load_best(strategy: Strategy, folder: Path | None) -> None:
    """Load the best weights so far, which rank 0 reads from `folder`, into the model; every rank calls it."""
    strategy.full_state.load_weights(add_prefix(load_file(folder / MODEL) if folder else {}))


def start_longer(folder: Path, state: Path, step: int) -> None:
    """Prepare a run folder for new files of a run that trains for longer: nothing of the shorter one is lost.

    Only from here on the run counts as not finished. Whenever it is interrupted, it can be resumed again.
    """
    add_best_model(state, folder / MODEL)
    keep_reports(folder, step)
