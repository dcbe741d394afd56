"""Resuming a run from its training state: what must be equal, what may change, and training for longer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from safetensors.torch import load_file

from app.checkpoints.find_run import is_finished
from app.checkpoints.parameter_names import add_prefix
from app.checkpoints.run_config import settings_file, write_config
from app.checkpoints.run_contents import MODEL
from app.checkpoints.run_folder import finished_error, keep_reports
from app.checkpoints.training_state import TrainingState, add_best_model, load_training_state, restore_best_model
from app.config.schema import Config
from app.config.yaml_files import read_yaml
from app.errors import InputError
from app.run.assembly import Components
from app.strategies.strategy import Strategy
from app.training.state import RunState

logger = logging.getLogger(__name__)
LENGTH = ("epochs", "max_steps")  # settings that decide how long a run trains
# Settings that may change when a run resumes: they decide how, or how long, the same job is done.
FREE = (
    *LENGTH,
    *("accumulation_steps", "micro_batch_size", "eval_batch_size", "collate", "attention", "cuda_graphs"),
    *("eval_every", "save_every", "early_stopping", "log_every", "on_nonfinite", "timeout", "deterministic"),
    *("device", "threads", "nprocs"),
)
CHANGED = {
    "data": "the data are not the same (the file's content or path, the labels or the splits)",
    "tokens": "the tokens are not the same (the tokenizer, data.max_length or the data)",
}


@dataclass(frozen=True)
class SavedRun:
    """What every rank needs to know of a saved run."""

    state: RunState
    job: dict
    has_tensors: bool
    is_finished: bool


@dataclass(frozen=True)
class Resumed:
    """The state that a run continues with; `before_first_write` prepares the folder of one that trains for longer, on rank 0."""

    state: RunState
    before_first_write: Callable[[], None] | None = None


def job_signature(config: Config, components: Components, total_steps: int) -> dict:
    """Return what a training state keeps of its job. Mode and number of processes are not part of it.

    All but `steps` must be equal for a run to resume.
    """
    train, model = asdict(config.train), asdict(config.model)
    signature = {f"train.{key}": value for key, value in train.items() if key not in FREE}
    signature |= {f"model.{key}": value for key, value in model.items()}
    store = components.stores["train"].folder.name  # of this data, tokenizer and max_length
    return signature | {"steps": total_steps, "data": components.dataset.folder.name, "tokens": store}


def check_not_done(config: Config) -> None:
    """Raise InputError at once where a finished run would be resumed with the same length, before any long work."""
    folder = Path(config.output.dir) if config.output.dir else None
    if folder is None or not is_finished(folder) or config.output.overwrite:
        return
    _, settings = read_yaml(settings_file(folder))
    train = settings.get("train") if isinstance(settings, dict) else None
    if isinstance(train, dict) and all(train.get(key) == getattr(config.train, key) for key in LENGTH):
        raise finished_error(folder)


def resume(strategy: Strategy, config: Config, folder: Path | None, job: dict) -> Resumed:
    """Continue from the newest training state in `folder`, which rank 0 passes in where there is a run to resume.

    Every rank calls it. Loads weights, optimizer and loss scale into the strategy; where the training is done already, the
    best model. Raises InputError for another job than the one that was started, and for steps that cannot be trained.
    """
    saved = load_training_state(folder) if folder else None
    known = SavedRun(saved.run_state, saved.job, bool(saved.weights), is_finished(folder)) if saved else None
    known = strategy.group.broadcast(known)
    if known is None:
        if folder and is_finished(folder):
            raise InputError(
                f"{folder} holds a finished run whose training states are damaged, so it cannot train for longer; start a new run "
                f"from its model with --model.name {folder}"
            )
        if folder:
            logger.info("%s has no training state to resume from; the run starts from the beginning.", folder)
        return Resumed(RunState())
    check_same_job(known.job, job)
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
    return Resumed(state, partial(start_longer, folder, saved.folder, state.step, config) if saved else None)


def check_same_job(saved: dict, job: dict) -> None:
    """Raise InputError unless everything of two jobs but their number of steps is equal."""
    different = [key for key, value in job.items() if key != "steps" and saved.get(key) != value]
    if different:
        changes = ", ".join(CHANGED.get(key, f"{key} was {saved.get(key)} and is {job[key]}") for key in different)
        raise InputError(
            f"a run can be resumed only with the settings and data it was started with: {changes}; change them back, or "
            "choose another output.dir"
        )


def check_can_train(known: SavedRun, total_steps: int, folder: str | None) -> None:
    """Raise InputError unless a saved run can train to another last step than the one it was started with."""
    done = known.state.step
    if total_steps <= done:
        raise InputError(
            f"train.epochs and train.max_steps must give more steps than the {done} that the run has done, found {total_steps}; "
            "raise them, or choose another output.dir"
        )
    if not known.has_tensors:
        raise InputError(
            f"a run whose training is done can train for longer only from its last training state, which was not kept "
            f"(output.keep_final_state); start a new run from its model with --model.name {folder or 'RUN'}"
        )


def load(
    strategy: Strategy, saved: TrainingState | None, known: SavedRun, folder: Path | None, is_trained: bool
) -> None:
    """Load a training state, or where `is_trained` the run's best model, into the strategy; every rank calls it."""
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


def start_longer(folder: Path, state: Path, step: int, config: Config) -> None:
    """Prepare a run folder for new files of a run that trains for longer: nothing of the shorter one is lost.

    Only from here on the run counts as not finished. Whenever it is interrupted, it can be resumed again.
    """
    add_best_model(state, folder / MODEL)
    keep_reports(folder, step)
    write_config(folder, config)
