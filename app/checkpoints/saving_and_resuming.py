"""What a run writes while it trains, and how it resumes from there or trains for longer."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file

from ..config.schema import Config
from ..errors import InputError
from ..model.classifier import PackedModel
from ..model.pretrained import save_model
from ..model.recipe import started
from ..model.trained_weights import load_adapter, save_adapter
from ..modes.mode import Mode
from .job import FREE_TO_RESUME, changes, listed_changes
from .run_folder import (
    best_weights,
    check_is_there,
    finished_error,
    is_finished,
    keep_reports,
    run_to_resume,
)
from .run_history import add_start, read_settings
from .training_state import (
    RunProgress,
    TrainingState,
    load_training_state,
    restore_best_model,
    save_training_state,
)

logger = logging.getLogger(__name__)
KEPT_STATES = 2  # training states of an unfinished run


class Saver:
    """Copies weights and writes them in the background, one write at a time; the error of a write is raised
    by the next call. Each rank has one, and the one with a `folder` writes. `job` is stored in each training
    state; `before_write` is called first in each write."""

    def __init__(
        self,
        mode: Mode,
        folder: Path | None,
        model: PackedModel,
        tokenizer,
        job: dict,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        self.mode, self.folder, self.tokenizer, self.job = mode, folder, tokenizer, job
        # The configuration of this model is saved; the mode has wrapped it
        self.model = model
        # Training states leave these out: a run that resumes has them already
        self.frozen = {name for name, value in model.model.named_parameters() if not value.requires_grad}
        self.before_write = before_write
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.running: Future | None = None

    def save(self, progress: RunProgress, is_best: bool, with_state: bool) -> None:
        """Copy, and write in the background, the model where `is_best`, and a training state where
        `with_state`. Every rank calls it."""
        mode, folder, adapter = self.mode, self.folder, self.model.adapter
        weights = mode.weights() if is_best or with_state else {}
        optimizer = mode.optimizer_state() if with_state else {}
        if folder is None:
            return
        progress = deepcopy(progress)
        progress.scaler = mode.scaler.state_dict() if mode.scaler else {}

        def write() -> None:
            check_is_there(folder)
            self.before_write()
            if is_best and adapter:
                save_adapter(folder, adapter, weights)
            elif is_best:
                save_model(folder, self.model.model, weights, self.tokenizer)
            if with_state:
                best = best_weights(folder, adapter is not None) if progress.best_step else None
                trained = {name: value for name, value in weights.items() if name not in self.frozen}
                check_is_there(folder)
                save_training_state(folder, progress, self.job, trained, optimizer, KEPT_STATES, best)

        self.wait()
        self.running = self.pool.submit(write)

    def check(self) -> None:
        if self.running and self.running.done():
            self.wait()

    def wait(self) -> None:
        running, self.running = self.running, None
        if running:
            running.result()

    def close(self) -> None:
        self.pool.shutdown(wait=True)


def with_saved_choices(config: Config) -> Config:
    """Return the configuration with the head and the precision of the run that it resumes, where they are
    auto. Chosen again, they could be others: another precision may be the fastest in a new measurement, and
    another version of this program may call other numbers of rows few."""
    if "auto" not in (config.train.precision, config.model.head):
        return config
    folder = run_to_resume(config.output)
    saved = read_settings(folder) if folder else {}
    model, precision = saved.get("model", {}), saved.get("train", {}).get("precision")
    if config.model.head == "auto" and model.get("head") in ("linear", "random"):
        is_few = model["head"] == "linear" and model.get("freeze")
        config = started(config, "few labels" if is_few else model["head"])
    if config.train.precision == "auto" and precision in ("fp32", "bf16"):
        config = replace(config, train=replace(config.train, precision=precision))
    return config


def find_state(folder: Path, job: dict) -> TrainingState | None:
    """Return the newest training state of the run in `folder`, or None: the run starts from the beginning.
    Rank 0 calls it. Raises InputError for a state of another job, for a finished run that gets no more steps,
    and for fewer steps than the run has done."""
    state = load_training_state(folder)
    if state is None:
        if is_finished(folder):
            raise finished_error(folder)
        logger.info("%s has no training state to resume from; the run starts from the beginning.", folder)
        return None
    paths = [(one.get("model.name") or {}).get("path") for one in (state.job, job)]
    # A run resumes with its own weights, whatever those that it began with are now
    free = FREE_TO_RESUME | {"model.name"} if paths[0] == paths[1] else FREE_TO_RESUME
    if changed := changes(state.job, job, free):
        raise InputError(
            "a run can be resumed only with the settings and data it was started with: "
            f"{listed_changes(changed)}; change them back, or choose another output.dir"
        )
    done, steps = state.progress.step, job["steps"]
    if state.job["steps"] == steps and is_finished(folder):
        raise finished_error(folder)
    if state.job["steps"] != steps and steps <= done:
        raise InputError(
            f"train.epochs and train.max_steps must give more steps than the {done} that the run has done, "
            f"found {steps}; raise them, or choose another output.dir"
        )
    return state


def load_state(mode: Mode, state: TrainingState | None, folder: Path | None, job: dict) -> RunProgress:
    """Load a training state into the mode, where there is one, and return the progress of the run. Every rank
    calls it; only rank 0 has a state and a folder, others pass None."""
    found = mode.group.broadcast((state.progress, state.job["steps"]) if state else None)
    if found is None:
        return RunProgress()
    # A copy, as training changes it
    progress, steps = deepcopy(found)
    has_adapter = mode.unwrapped_module().adapter is not None
    mode.group.on_rank_0(lambda: restore_best_model(state.folder, best_weights(folder, has_adapter)))
    mode.load_optimizer_state(state.optimizer if state else {})
    mode.load_weights(state.weights if state else {})
    if mode.scaler and progress.scaler:
        mode.scaler.load_state_dict(progress.scaler)
    logger.info("Resuming from step %d.", progress.step)
    if steps != job["steps"]:
        logger.info(
            "Training to step %d instead of %d; from here on the learning rate is that of a run of %d steps.",
            *(job["steps"], steps, job["steps"]),
        )
        if progress.stopped_early:
            progress.stopped_early, progress.evaluations_without_improvement = False, 0
    return progress


def load_best(mode: Mode, folder: Path | None) -> None:
    """Load the best weights so far, which rank 0 reads from `folder`, into the model; every rank calls it."""
    weights, has_adapter = {}, mode.unwrapped_module().adapter is not None

    def read() -> None:
        path = best_weights(folder, has_adapter)
        weights.update(load_adapter(path) if has_adapter else load_file(path))

    mode.group.on_rank_0(read)
    mode.load_weights(weights)


def record_resume(folder: Path, config: Config, start: dict, state: TrainingState, total_steps: int) -> None:
    """Write that a run resumes from `state`. Rank 0 calls it before the first new file; until then the run
    stays as it was. A run that trains for longer puts its report aside: from here on it is not finished."""
    step = state.progress.step
    if state.job["steps"] != total_steps:
        keep_reports(folder, step)
    add_start(folder, config, start, step)
