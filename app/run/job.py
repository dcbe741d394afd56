"""One run: prepare, train with evaluations on the way, report; and go on where an interrupted run stopped."""

from __future__ import annotations

import logging
import shutil
import signal
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from app.checkpoints.run_folder import (
    REPORT,
    check_run_folder,
    open_run_folder,
    write_start,
)
from app.checkpoints.training_state import (
    BackgroundWriter,
    Progress,
    Tensors,
    TrainingState,
    cannot_write,
    is_full,
    load_training_state,
    restore_model,
    save_training_state,
    states_folder,
)
from app.config.schema import Config
from app.data.report import render as render_data_report
from app.errors import InputError
from app.evaluation.metrics import compute_metrics, is_better
from app.evaluation.predictions import write_predictions
from app.evaluation.report import render_report
from app.model.pretrained import save_model
from app.run.assembly import assemble, describe, set_up
from app.run.log import RunLog
from app.runtime.disk import write_json, write_text
from app.runtime.signals import StopSignals
from app.strategies.strategy import Strategy
from app.training.evaluate import evaluate
from app.training.loop import StepLog, planned_steps, train
from app.training.non_finite import FiniteCheck
from app.training.state import RunState

logger = logging.getLogger(__name__)
# Settings that may change when a run goes on: they decide how the same job is done.
FREE = (
    "accumulation_steps",
    "micro_batch_size",
    "eval_batch_size",
    "collate",
    "attention",
    "cuda_graphs",
    "epochs",
    "max_steps",
    "eval_every",
    "save_every",
    "early_stopping",
    "log_every",
    "on_nonfinite",
    "timeout",
    "deterministic",
    "device",
    "threads",
    "nprocs",
)
PREFIX = "model."  # of parameter names inside our Classifier; files have the names of transformers


class Job:
    """The state of a run: its parts, how far it has come, and which checkpoint is the best so far."""

    def __init__(self, config: Config, mode: str, strategy: Strategy) -> None:
        self.config = config
        self.mode = mode
        self.strategy = strategy
        self.is_main = strategy.group.rank == 0
        self.state = RunState()
        self.best_value: float | None = None
        self.best_step = 0
        self.without_gain = 0
        self.writer = BackgroundWriter()
        self.folder: Path | None = None  # on rank 0
        self.log: RunLog | None = None

    def run(self) -> int:
        """Prepare, train and report; returns the exit status: 0, or 128 + the signal that stopped it. Every rank calls it."""
        try:
            self.prepare()
            stopped_by = self.train()
            self.log.close_bar()
            if stopped_by:
                self.strategy.group.broadcast(None)  # the launcher ends all others as soon as one rank is gone
                return 128 + stopped_by
            self.report()
        except OSError as error:
            if not is_full(error) or self.folder is None:
                raise
            raise cannot_write("a file of the run", error, self.folder) from error
        finally:
            self.writer.close()
            if self.log:
                self.log.close()
        return 0

    def prepare(self) -> None:
        """Open the data, print its report, build the model, make the run folder or go on with the one there is."""
        config, settings = self.config, self.config.train
        if self.is_main:
            check_run_folder(config.output)  # before the long work, not after it
        self.parts = parts = assemble(config, self.strategy)
        self.transformers_model = parts.model.model
        self.total_steps = planned_steps(parts.plan, settings)
        if self.is_main:
            logger.info(render_data_report(parts.dataset, parts.stores))
        self.folder, goes_on = open_run_folder(config.output) if self.is_main else (None, False)
        if self.is_main and not goes_on:
            write_start(
                self.folder, config, self.mode, self.strategy.group.world_size, str(self.strategy.device), parts.dataset
            )
        if self.is_main:
            logger.info(describe(parts.model, self.strategy, parts.layout, parts.plan, settings, self.folder))
        set_up(self.strategy, parts, settings)
        progress = self.go_on(load_training_state(self.folder) if goes_on else None)
        self.log = RunLog(
            self.folder,
            config.output,
            self.strategy,
            self.total_steps,
            settings.log_every,
            progress.step,
            progress.window,
            FiniteCheck(self.strategy, parts.loaders["train"], settings.on_nonfinite),
        )

    def go_on(self, saved: TrainingState | None) -> Progress:
        """Continue from a training state that rank 0 passes in (None: start at the beginning); every rank calls it."""
        progress = self.strategy.group.broadcast(saved.progress if saved else None)
        if progress is None:
            return Progress()
        different = [key for key, value in self.job_signature().items() if progress.job.get(key) != value]
        if different:
            found = ", ".join(
                f"{key} was {progress.job.get(key)} and is {self.job_signature()[key]}" for key in different
            )
            raise InputError(f"a run goes on only with the job it was started with: {found}; choose another output.dir")
        if saved:
            restore_model(saved, self.model_file)
        self.state = RunState(progress.step, progress.updates, progress.micro_batch_size, progress.stopped)
        self.best_value, self.best_step = progress.best_value, progress.best_step
        self.without_gain = progress.without_gain
        if self.is_trained():
            self.load_best()
        else:
            self.strategy.full_state.load_weights(add_prefix(saved.weights if saved else {}))
            self.strategy.full_state.load_optimizer(add_prefix(saved.optimizer if saved else {}))
            self.strategy.full_state.load_scaler(progress.scaler)
        logger.info("going on from step %d", self.state.step)
        return progress

    def is_trained(self) -> bool:
        """Return whether no step is left: all are done, or the run was stopped early."""
        return self.state.stop or self.state.step == self.total_steps

    @property
    def model_file(self) -> Path:
        """The weights of the best checkpoint so far."""
        return self.folder / "model.safetensors"

    def job_signature(self) -> dict:
        """Return what must be equal for a run to go on; the mode and the number of processes may change."""
        train, model, parts = asdict(self.config.train), asdict(self.config.model), self.parts
        signature = {f"train.{key}": value for key, value in train.items() if key not in FREE}
        signature |= {f"model.{key}": value for key, value in model.items()}
        store = parts.stores["train"].folder.name  # of this data, tokenizer and max_length
        return signature | {"steps": self.total_steps, "data": parts.dataset.folder.name, "tokens": store}

    def train(self) -> int:
        """Run the loop, with an evaluation on dev every `eval_every` steps or after each epoch, and at the end.

        Returns the signal that stopped it, or 0.
        """
        settings, parts = self.config.train, self.parts
        every = settings.eval_every or parts.plan.steps_per_epoch
        save_every = settings.save_every or every
        stopped_by = 0

        def after_step(state: RunState, step: StepLog) -> None:
            nonlocal stopped_by
            self.log.after_step(state, step)
            stopped_by = signals.agreed()
            is_end = state.step == self.total_steps
            is_best = (state.step % every == 0 or is_end) and self.evaluate_dev(is_end)
            saves = state.step % save_every == 0 or self.is_trained() or stopped_by
            if is_best or saves:
                self.save(bool(saves), is_best)
            if stopped_by:
                self.log.say(
                    f"stopped by {signal.Signals(stopped_by).name} behind step {state.step}; go on with --resume auto"
                )
                state.stop = True

        self.log.start(self.state)
        with StopSignals(self.strategy.group) as signals:
            train(
                self.strategy,
                parts.loaders["train"],
                parts.plan,
                parts.row_loss,
                settings,
                self.state,
                after_step,
                signals.share,
            )
            self.writer.wait()
        return stopped_by

    def save(self, saves: bool, is_best: bool) -> None:
        """Copy the weights to host memory, and write them in the background; every rank calls it.

        `is_best`: as the run's model; `saves`: as a training state too. That of a finished training has no tensors: what is
        left to do needs the best model only.
        """
        self.log.pause_clock()
        window = self.log.collect()
        with_tensors = saves and not self.is_trained()
        weights = strip_prefix(self.strategy.full_state.weights()) if is_best or with_tensors else {}
        optimizer = strip_prefix(self.strategy.full_state.optimizer()) if with_tensors else {}
        if self.is_main:
            progress = Progress(
                self.state.step,
                self.state.updates,
                self.best_value,
                self.best_step,
                self.without_gain,
                self.state.stop,
                self.job_signature(),
                self.strategy.full_state.scaler(),
                list(window),
                self.state.micro_batch_size,
            )
            model = weights if is_best else None
            state = (progress, weights if with_tensors else {}, optimizer) if saves else None
            self.writer.start(partial(self.write, model, state))
        self.log.resume_clock()

    def write(self, model: Tensors | None, state: tuple[Progress, Tensors, Tensors] | None) -> None:
        """Write the run's model and a training state; the background thread of rank 0 calls it."""
        if model is not None:
            try:
                save_model(self.folder, self.transformers_model, model, self.parts.tokenizer)
            except (OSError, SafetensorError) as error:
                raise cannot_write("the model", error, self.folder) from error
        if state:
            best = self.model_file if state[0].best_step else None
            save_training_state(self.folder, *state, self.config.output.keep_states, best)

    def evaluate_dev(self, is_end: bool) -> bool:
        """Evaluate on dev, and stop when it has not been better for too long; return whether this is the best checkpoint.

        Without dev rows the last is the best.
        """
        state, settings = self.state, self.config.train
        if "dev" not in self.parts.loaders:
            self.best_step = state.step if is_end else 0
            return is_end
        self.log.pause_clock()
        self.log.collect()
        started = time.perf_counter()
        metrics = self.evaluate("dev")[0]
        value = metrics[settings.best_metric]
        is_best = is_better(value, self.best_value, settings.best_metric)
        self.log.evaluation(state, "dev", metrics, is_best, time.perf_counter() - started)
        self.without_gain = 0 if is_best else self.without_gain + 1
        if is_best:
            self.best_value, self.best_step = value, state.step
        elif settings.early_stopping and self.without_gain >= settings.early_stopping:
            state.stop = True
            self.log.say(
                f"stopped early: {settings.best_metric} has not been better than at step {self.best_step} in "
                f"{self.without_gain} evaluations"
            )
        self.log.resume_clock()
        return is_best

    def evaluate(self, name: str) -> tuple[dict, np.ndarray]:
        """Return the metrics and the logits, (num_rows, num_labels), of a split; every rank gets the same."""
        loader = self.parts.loaders[name]
        with self.log.evaluation_bar(name, len(loader)) as bar:
            logits = evaluate(self.strategy, loader, self.config.train.eval_batch_size, bar.update)
        return compute_metrics(np.asarray(loader.split.labels), logits, self.parts.dataset.label_names), logits

    def load_best(self) -> None:
        """Load the best weights so far into the model; every rank calls it."""
        self.strategy.full_state.load_weights(add_prefix(load_file(self.model_file) if self.is_main else {}))

    def report(self) -> dict:
        """Evaluate the kept checkpoint on test (on dev where there is no test), print the report and write it."""
        if self.best_step != self.state.step:
            self.load_best()
        name = next((name for name in ("test", "dev", "train") if name in self.parts.loaders), "train")
        metrics, logits = self.evaluate(name)
        if self.is_main:
            chosen = (
                f", chosen by {self.config.train.best_metric} on dev {self.best_value:.4f}"
                if self.best_value is not None
                else ""
            )
            note = {
                "test": "",
                "dev": "; there is no test split, so these rows also chose the checkpoint",
                "train": "; the rows it was trained on",
            }[name]
            text = render_report(metrics, f"Report on {name}: checkpoint of step {self.best_step}{chosen}{note}")
            print(f"\n{text}\n")  # noqa: T201
            write_text(self.folder / "report.txt", text + "\n")
            write_predictions(
                self.folder / "predictions.csv", self.parts.loaders[name].split, logits, self.parts.dataset.label_names
            )
            details = {"split": name, "step": self.best_step, "data": self.parts.dataset.statistics}
            write_json(self.folder / REPORT, details | metrics)
            shutil.rmtree(states_folder(self.folder), ignore_errors=True)  # a finished run needs none
            logger.info(
                "Saved in %s; classify text with: python predict.py --checkpoint %s 今天真开心",
                self.folder,
                self.folder,
            )
        return metrics


def strip_prefix(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors by the names of transformers' model, as they stand in model.safetensors."""
    return {name.removeprefix(PREFIX): value for name, value in state.items()}


def add_prefix(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors by the names of our Classifier."""
    return {f"{PREFIX}{name}": value for name, value in state.items()}
