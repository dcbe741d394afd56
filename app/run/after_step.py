"""What a run does after each optimizer step: log, agree on signals, evaluate on dev, save."""

from __future__ import annotations

import signal
import time

import numpy as np

from ..config.schema import TrainConfig
from ..runtime.signals import StopSignals
from ..strategies.strategy import Strategy
from ..training.loop import StepLog
from ..training.non_finite import FiniteCheck, check_trained
from ..training.progress import RunProgress
from .assembly import Components
from .best_checkpoint import BestCheckpoint
from .evaluation import evaluate_split
from .log.losses import Losses
from .log.run_log import RunLog
from .saving import Saver


class AfterStep:
    """Called on every rank after each step, with the same steps; all ranks do the same in the same order.

    `stopped_by` is the signal that has stopped the run, or 0; `best_dev_logits` (num_rows, num_labels) are of
    the best checkpoint, None where it was evaluated before this process started.
    """

    def __init__(
        self,
        strategy: Strategy,
        components: Components,
        config: TrainConfig,
        state: RunProgress,
        total_steps: int,
        log: RunLog,
        saver: Saver,
        signals: StopSignals,
    ) -> None:
        self.strategy = strategy
        self.components = components
        self.config = config
        self.state = state
        self.total_steps = total_steps
        self.log = log
        self.saver = saver
        self.signals = signals
        self.eval_every = config.eval_every or components.plan.steps_per_epoch
        self.save_every = config.save_every or self.eval_every
        self.losses = Losses(strategy, state.loss_window)
        self.check_finite = FiniteCheck(strategy, components.loaders["train"], config.on_nonfinite)
        self.best = BestCheckpoint(state, components.outcome.best_metric, config.early_stopping)
        self.stopped_by = 0
        self.best_dev_logits: np.ndarray | None = None

    def __call__(self, state: RunProgress, step: StepLog) -> None:
        self.log_step(step)
        self.stopped_by = self.signals.agreed()
        self.check_trained()
        is_best = False
        if state.step % self.eval_every == 0 or state.step == self.total_steps:
            is_best = self.evaluate_dev()
        # Early stopping may have ended the training
        self.check_trained()
        is_trained = state.is_trained(self.total_steps)
        with_state = state.step % self.save_every == 0 or is_trained or bool(self.stopped_by)
        if is_best or with_state:
            self.save(is_best, with_state, is_trained)
        self.say_stopped("resume with --resume auto")
        state.stop = state.stopped_early or bool(self.stopped_by)

    def after_last_step(self) -> None:
        """Agree on the signals that came during the last step's evaluation and while it was saved; every rank
        calls it."""
        if not self.stopped_by:
            self.signals.share()
            self.stopped_by = self.signals.agreed()
            self.say_stopped("only the report is missing, and --resume auto writes it")

    def say_stopped(self, remedy: str) -> None:
        """Say which signal has stopped the run, if one has, and what to do."""
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            self.log.say(f"Stopped by {name} after step {self.state.step}; {remedy}.")

    def log_step(self, step: StepLog) -> None:
        """Count a step, and show those since the last line where a line is due."""
        self.losses.add(step)
        self.log.count(step)
        if self.log.is_due(step.step):
            self.collect_losses()
            self.log.step(step, self.losses.take_mean())

    def collect_losses(self) -> None:
        """Add up the losses of the last steps over all ranks; raise TrainingError, or warn, where one is not
        finite."""
        self.check_finite(*self.losses.collect())

    def check_trained(self) -> None:
        """Raise TrainingError where the training has ended without an update, after the warnings about its
        last steps."""
        if self.state.is_trained(self.total_steps) and not self.state.updates:
            self.collect_losses()
            check_trained(self.state, self.total_steps)

    def evaluate_dev(self) -> bool:
        """Evaluate on dev, and stop early where that is due; return whether this is the best checkpoint so
        far.

        Without dev rows the last checkpoint is the best.
        """
        state = self.state
        if "dev" not in self.components.loaders:
            is_end = state.step == self.total_steps
            if is_end:
                self.best.take_last()
            return is_end
        with self.log.speed.paused():
            self.collect_losses()
            started = time.perf_counter()
            batch_size = self.config.eval_batch_size
            metrics, logits = evaluate_split(
                self.strategy, self.components, "dev", batch_size, self.log, state.step
            )
            is_best = self.best.update(metrics)
            self.best_dev_logits = logits if is_best else self.best_dev_logits
            self.log.evaluation(state.step, "dev", metrics, is_best, time.perf_counter() - started)
        if self.best.should_stop:
            state.stopped_early = True
            self.log.say(
                f"Stopped early after step {state.step}: {self.best.metric} has not been better than at step "
                f"{state.best_step} in {state.evaluations_without_improvement} evaluations."
            )
        return is_best

    def save(self, is_best: bool, with_state: bool, is_trained: bool) -> None:
        """Save the best model or a training state, or both, after checking that the losses up to here are
        finite."""
        with self.log.speed.paused():
            self.collect_losses()
            self.saver.save(self.state, is_best, with_state, is_trained)
