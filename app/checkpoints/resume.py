"""How a run resumes: with which settings, from which training state, and how that is loaded."""

import logging
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file

from ..config.earlier_values import with_present_names
from ..config.schema import Config
from ..errors import InputError
from ..model.head_choice import started
from ..model.lora import load_adapter
from ..modes.mode import Mode, Tensors
from ..runtime.disk import whole_file
from .decision import copy_decision, is_of_other_weights, remove_decision
from .job import FREE_TO_RESUME, MASKS, describe_changes, join_changes, model_name_of
from .progress import RunProgress
from .run_files import best_weights, is_finished
from .run_folder import finished_error, run_to_resume
from .run_history import read_settings
from .training_state import BEST, TrainingState, load_training_state

logger = logging.getLogger(__name__)


def with_saved_choices(config: Config) -> Config:
    """Return the configuration with the head and the precision of the run that it resumes, where they are
    auto: chosen again, they could be others."""
    if "auto" not in (config.train.precision, config.model.head):
        return config
    folder = run_to_resume(config.output)
    if folder is None:
        return config
    saved = read_settings(folder)
    head = saved.get("model.head")
    if config.model.head == "auto" and head in ("linear", "random"):
        is_few_labels = head == "linear" and saved.get("model.freeze")
        config = started(config, "few labels" if is_few_labels else head)
    precision = saved.get("train.precision")
    if config.train.precision == "auto" and precision in ("fp32", "bf16"):
        config = replace(config, train=replace(config.train, precision=precision))
    return config


def state_to_resume(folder: Path, job: dict) -> TrainingState | None:
    """Return the newest training state of the run in `folder`, or None: the run starts from the beginning.

    Rank 0 calls it. Raises InputError for a state of another job, for a finished run that gets no more steps,
    and for fewer steps than the run has done.
    """
    state = load_training_state(folder)
    if state is None:
        if is_finished(folder):
            raise finished_error(folder)
        logger.info("%s has no training state to resume from; the run starts from the beginning.", folder)
        return None
    _check_same_job(state.job, job)
    if state.job.get(MASKS) != job.get(MASKS):
        logger.info(
            "The run was started by a version that drew other masks of dropout: from here on it is not the "
            "run that it would have been."
        )
    done = state.progress.step
    total_steps = job["steps"]
    if total_steps == state.job["steps"]:
        if is_finished(folder):
            raise finished_error(folder)
    elif total_steps <= done:
        raise InputError(
            f"train.epochs and train.max_steps must give more steps than the {done} that the run has done, "
            f"found {total_steps}; raise them, or choose another output.dir"
        )
    return state


def _check_same_job(saved_job: dict, job: dict) -> None:
    """Raise InputError unless a run of `job` may resume from a training state of `saved_job`."""
    saved_job = with_present_names(saved_job)
    free = FREE_TO_RESUME
    if model_name_of(saved_job) == model_name_of(job):
        # A run resumes with its own weights, whatever those that it began with are now
        free = FREE_TO_RESUME | {"model.name"}
    changes = describe_changes(saved_job, job, free)
    if changes:
        raise InputError(
            "a run can be resumed only with the settings and data it was started with: "
            f"{join_changes(changes)}; change them back, or choose another output.dir"
        )


def load_state(mode: Mode, state: TrainingState | None, folder: Path | None, job: dict) -> RunProgress:
    """Load a training state into the mode, where there is one, and return the progress of the run. Every rank
    calls it; only rank 0 has a state and a folder, others pass None."""
    saved = None
    optimizer: Tensors = {}
    weights: Tensors = {}
    if state:
        saved = (state.progress, state.job["steps"])
        optimizer = state.optimizer
        weights = state.weights
    saved = mode.group.broadcast(saved)
    if saved is None:
        return RunProgress()
    saved_progress, saved_steps = saved
    # A copy, as training changes it
    progress = deepcopy(saved_progress)
    has_adapter = mode.unwrapped_module().adapter is not None

    def restore() -> None:
        restore_best_model(state.folder, best_weights(folder, has_adapter), progress.best_step)

    mode.group.on_rank_0(restore)
    mode.load_optimizer_state(optimizer)
    mode.load_weights(weights)
    if progress.scaler:
        mode.scaler.load_state_dict(progress.scaler)
    logger.info("Resuming from step %d.", progress.step)
    total_steps = job["steps"]
    if total_steps != saved_steps:
        logger.info(
            f"Training to step {total_steps} instead of {saved_steps}; from here on the learning rate is "
            f"that of a run of {total_steps} steps."
        )
        if progress.stopped_early:
            progress.stopped_early = False
            progress.evaluations_without_improvement = 0
    return progress


def restore_best_model(state: Path, model: Path, step: int) -> None:
    """Copy the best weights in the folder of a training state, those of `step`, to the file `model`, and
    their decision beside it, unless it is there."""
    if not (state / BEST).exists():
        return
    has_other_decision = is_of_other_weights(model.parent, state, step)
    if has_other_decision:
        remove_decision(model.parent)
    with (state / BEST).open("rb") as file, whole_file(model) as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
    if has_other_decision:
        copy_decision(state, model.parent, step)


def load_best_weights(mode: Mode, folder: Path | None) -> None:
    """Load the best weights so far, which rank 0 reads from `folder`, into the model; every rank calls it."""
    has_adapter = mode.unwrapped_module().adapter is not None
    weights: Tensors = {}

    def read() -> None:
        path = best_weights(folder, has_adapter)
        weights.update(load_adapter(path) if has_adapter else load_file(path))

    # The weights are not returned: `on_rank_0` would send them to all ranks, and the mode does that itself
    mode.group.on_rank_0(read)
    mode.load_weights(weights)
