"""Resuming a run from its training state: what must be equal, what may change, and training for longer."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from safetensors.torch import load_file

from ..checkpoints.progress import RunProgress
from ..checkpoints.run_files import ADAPTER, keep_reports
from ..checkpoints.run_folder import finished_error, is_finished, run_to_resume
from ..checkpoints.run_history import add_start, read_settings
from ..checkpoints.training_state import (
    TrainingState,
    add_best_model,
    best_weights,
    load_training_state,
    restore_best_model,
)
from ..config.schema import Config
from ..errors import InputError
from ..model.pretrained import add_prefix
from ..model.recipe import with_few_labels, with_head_random, with_linear_start
from ..model.trained_weights import WEIGHTS, has_frozen, load_adapter
from ..modes.mode import Mode
from .job_signature import LENGTH, changes, listed_changes

logger = logging.getLogger(__name__)


def check_not_done(config: Config) -> None:
    """Raise InputError, before any long work, where a finished run would be resumed with the same length."""
    folder = Path(config.output.dir) if config.output.dir else None
    if folder is None or not is_finished(folder):
        return
    train = read_settings(folder).get("train", {})
    names = [name.removeprefix("train.") for name in LENGTH]
    if all(name in train and train[name] == getattr(config.train, name) for name in names):
        raise finished_error(folder)


def with_saved_choices(config: Config) -> Config:
    """Return the configuration with the head and the precision of the run that it resumes, where they are
    auto. Measured again, another precision could be the fastest; another version may call other rows few."""
    if "auto" not in (config.train.precision, config.model.head):
        return config
    folder = run_to_resume(config.output)
    saved = read_settings(folder) if folder else {}
    model, precision = saved.get("model", {}), saved.get("train", {}).get("precision")
    if config.model.head == "auto" and model.get("head") == "linear":
        config = with_few_labels(config) if model.get("freeze") else with_linear_start(config)
    elif config.model.head == "auto" and model.get("head") == "random":
        config = with_head_random(config)
    if config.train.precision != "auto" or precision not in ("fp32", "bf16"):
        return config
    return replace(config, train=replace(config.train, precision=precision))


def find_state(config: Config, folder: Path, job: dict) -> TrainingState | None:
    """Return the newest training state of the run in `folder`, or None: the run starts from the beginning.
    Rank 0 calls it. Raises InputError for a state of another job, and for steps that cannot be trained."""
    state = load_training_state(folder)
    if state is None:
        if is_finished(folder):
            raise InputError(
                f"{folder} holds a finished run whose training states are damaged, so it cannot train for "
                f"longer; start a new run from its model with --model.name {folder}"
            )
        logger.info("%s has no training state to resume from; the run starts from the beginning.", folder)
        return None
    if changed := changes(state.job, job):
        raise InputError(
            "a run can be resumed only with the settings and data it was started with: "
            f"{listed_changes(changed)}; change them back, or choose another output.dir"
        )
    if state.job["steps"] != job["steps"]:
        check_can_train(state, job["steps"])
    elif is_finished(folder):
        raise finished_error(Path(config.output.dir))
    return state


def check_can_train(state: TrainingState, total_steps: int) -> None:
    """Raise InputError unless a run can train from its state to another last step than it began with."""
    done = state.progress.step
    if total_steps <= done:
        raise InputError(
            f"train.epochs and train.max_steps must give more steps than the {done} that the run has done, "
            f"found {total_steps}; raise them, or choose another output.dir"
        )


def load_state(mode: Mode, state: TrainingState | None, folder: Path | None, job: dict) -> RunProgress:
    """Load a training state into the mode and return the progress of the run; every rank calls it. Rank 0
    passes in state and folder. Where no step is left, the run's best model is loaded."""
    group = mode.group
    progress, steps = group.broadcast((state.progress, state.job["steps"]) if state else None)
    is_longer = steps != job["steps"]
    has_adapter = mode.full_state.has_adapter
    group.on_rank_0(lambda: restore_best_model(state.folder, best_weights(folder, has_adapter)))
    if not is_longer and progress.is_trained(steps):
        load_best(mode, folder)
    else:
        # Frozen weights, which a state does not have, stay as they are
        frozen = mode.full_state.weights() if has_frozen(mode.unwrapped_module()) else {}
        mode.full_state.load_weights(frozen | add_prefix(state.weights if state else {}))
        mode.full_state.load_optimizer(add_prefix(state.optimizer if state else {}))
        mode.full_state.load_scaler(progress.scaler)
    logger.info("Resuming from step %d.", progress.step)
    if not is_longer:
        return progress
    logger.info(
        "Training to step %d instead of %d; from here on the learning rate is that of a run of %d steps.",
        *(job["steps"], steps, job["steps"]),
    )
    if progress.stopped_early:
        return replace(progress, stopped_early=False, evaluations_without_improvement=0)
    return progress


def load_best(mode: Mode, folder: Path | None) -> None:
    """Load the best weights so far, which rank 0 reads from `folder`, into the model; every rank calls it."""
    weights = {}

    def read() -> None:
        path = best_weights(folder, mode.full_state.has_adapter)
        weights.update(load_adapter(path) if path.name == WEIGHTS else load_file(path))

    mode.group.on_rank_0(read)
    mode.full_state.load_weights(add_prefix(weights))


def writes_of_resumed_run(
    folder: Path,
    config: Config,
    start: dict,
    state: TrainingState,
    progress: RunProgress,
    total_steps: int,
) -> list[Callable[[], None]]:
    """Return what to write before the first new file of a run that resumes from `state`; for rank 0. Until
    then the run stays as it was. A run that only lacks its report writes them now."""
    if progress.is_trained(total_steps):
        add_start(folder, config, start, progress.step)
        return []
    is_longer = state.job["steps"] != total_steps
    longer = [partial(start_longer, folder, state.folder, progress.step)] if is_longer else []
    return [*longer, partial(add_start, folder, config, start, progress.step)]


def start_longer(folder: Path, state: Path, step: int) -> None:
    """Prepare a run folder for training on from a `state` of so many steps: nothing of the shorter run is
    lost. From here on it counts as not finished, and can be resumed again whenever it is interrupted."""
    add_best_model(state, best_weights(folder, (folder / ADAPTER).exists()))
    keep_reports(folder, step)
