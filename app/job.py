"""One run: prepare, train with evaluations on the way, report; and go on where an interrupted run stopped."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import asdict

import numpy as np
import torch
from safetensors.torch import load_file

from app.assembly import assemble, describe, set_up
from app.checkpoint import Progress, load_training_state, save_training_state, states_folder
from app.config import Config
from app.data.report import render as render_data_report
from app.errors import InputError
from app.metrics import compute_metrics, is_better, render_report
from app.progress import RunLog
from app.run_folder import (
    REPORT,
    check_run_folder,
    open_run_folder,
    save_model,
    write_json,
    write_predictions,
    write_start,
    write_text,
)
from app.strategies.base import Strategy
from app.trainer import StepLog, TrainState, evaluate, planned_steps, train

logger = logging.getLogger(__name__)
# Settings that may change when a run goes on: they decide how the same job is done.
FREE = (
    "accumulation_steps",
    "eval_batch_size",
    "collate",
    "epochs",
    "max_steps",
    "eval_every",
    "save_every",
    "early_stopping",
    "log_every",
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
        self.is_main = strategy.rank == 0
        self.state = TrainState()
        self.best_value: float | None = None
        self.best_step = 0
        self.without_gain = 0

    def run(self) -> dict:
        """Prepare, train and report; returns the metrics of the report. Every rank calls it."""
        self.prepare()
        try:
            self.train()
            self.log.close_bar()
            return self.report()
        finally:
            self.log.close()

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
                self.folder, config, self.mode, self.strategy.world_size, str(self.strategy.device), parts.dataset
            )
        if self.is_main:
            logger.info(describe(parts.model, self.strategy, parts.packed, parts.plan, settings, self.folder))
        set_up(self.strategy, parts, settings)
        self.go_on(load_training_state(self.folder) if goes_on else None)
        self.log = RunLog(
            self.folder, config.output, self.strategy, self.total_steps, settings.log_every, self.state.step
        )

    def go_on(self, saved: tuple[Progress, dict, dict] | None) -> None:
        """Continue from a training state that rank 0 passes in (None: start at the beginning); every rank calls it."""
        progress, weights, optimizer = saved or (None, {}, {})
        progress = self.strategy.broadcast(progress)
        if progress is None:
            return
        different = [key for key, value in self.job_signature().items() if progress.job.get(key) != value]
        if different:
            found = ", ".join(
                f"{key} was {progress.job.get(key)} and is {self.job_signature()[key]}" for key in different
            )
            raise InputError(f"a run goes on only with the job it was started with: {found}; choose another output.dir")
        self.strategy.load_state_dict(add_prefix(weights))
        self.strategy.load_optimizer_state(add_prefix(optimizer))
        self.strategy.load_scaler_state(progress.scaler)
        self.state = TrainState(progress.step, progress.updates, progress.stopped)
        self.best_value, self.best_step = progress.best_value, progress.best_step
        self.without_gain = progress.without_gain
        logger.info("going on from step %d", self.state.step)

    def job_signature(self) -> dict:
        """Return what must be equal for a run to go on; the mode and the number of processes may change."""
        train, model, parts = asdict(self.config.train), asdict(self.config.model), self.parts
        signature = {f"train.{key}": value for key, value in train.items() if key not in FREE}
        signature |= {f"model.{key}": value for key, value in model.items()}
        store = parts.stores["train"].folder.name  # of this data, tokenizer and max_length
        return signature | {"steps": self.total_steps, "data": parts.dataset.folder.name, "tokens": store}

    def save_progress(self) -> None:
        """Write the training state from which the run can go on; every rank calls it."""
        weights, optimizer = self.strategy.state_dict(), self.strategy.optimizer_state()
        if self.is_main:
            best = (self.best_value, self.best_step, self.without_gain)
            progress = Progress(
                self.state.step,
                self.state.updates,
                *best,
                self.state.stop,
                self.job_signature(),
                self.strategy.scaler_state(),
            )
            save_training_state(self.folder, progress, strip_prefix(weights), strip_prefix(optimizer))

    def train(self) -> None:
        """Run the loop, with an evaluation on dev every `eval_every` steps or after each epoch, and at the end."""
        settings, parts = self.config.train, self.parts
        every = settings.eval_every or parts.plan.steps_per_epoch
        save_every = settings.save_every or every

        def after_step(state: TrainState, step: StepLog) -> None:
            self.log.after_step(state, step)
            is_end = state.step == self.total_steps
            if state.step % every == 0 or is_end:
                self.evaluate_dev()
            if state.step % save_every == 0 or is_end or state.stop:
                self.log.pause_clock()
                self.save_progress()
                self.log.resume_clock()

        self.log.start(self.state)
        train(self.strategy, parts.loaders["train"], parts.plan, parts.row_loss, settings, self.state, after_step)
        if "dev" not in parts.loaders:
            self.keep(self.state.step)

    def evaluate_dev(self) -> None:
        """Evaluate on dev, keep the checkpoint if it is the best, and stop when it has not been for too long."""
        if "dev" not in self.parts.loaders:
            return
        state, settings = self.state, self.config.train
        self.log.pause_clock()
        started = time.perf_counter()
        metrics = self.evaluate("dev")[0]
        value = metrics[settings.best_metric]
        is_best = is_better(value, self.best_value, settings.best_metric)
        self.log.evaluation(state, "dev", metrics, is_best, time.perf_counter() - started)
        self.without_gain = 0 if is_best else self.without_gain + 1
        if is_best:
            self.best_value = value
            self.keep(state.step)
        elif settings.early_stopping and self.without_gain >= settings.early_stopping:
            state.stop = True
            self.log.say(
                f"stopped early: {settings.best_metric} has not been better than at step {self.best_step} in "
                f"{self.without_gain} evaluations"
            )
        self.log.resume_clock()

    def evaluate(self, name: str) -> tuple[dict, np.ndarray]:
        """Return the metrics and the logits, (num_rows, num_labels), of a split; every rank gets the same."""
        loader = self.parts.loaders[name]
        with self.log.evaluation_bar(name, len(loader)) as bar:
            logits = evaluate(self.strategy, loader, self.config.train.eval_batch_size, bar.update)
        return compute_metrics(np.asarray(loader.split.labels), logits, self.parts.dataset.label_names), logits

    def keep(self, step: int) -> None:
        """Write the current weights as the run's model."""
        self.best_step = step
        state = self.strategy.state_dict()
        if self.is_main:
            save_model(self.folder, self.transformers_model, strip_prefix(state), self.parts.tokenizer)

    def report(self) -> dict:
        """Evaluate the kept checkpoint on test (on dev where there is no test), print the report and write it."""
        if self.best_step != self.state.step:
            kept = load_file(self.folder / "model.safetensors") if self.is_main else {}
            self.strategy.load_state_dict(add_prefix(kept))
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
            details = {"split": name, "step": self.best_step, "data": self.parts.dataset.figures}
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
