"""What a run does after each optimizer step: log, agree on signals, evaluate on dev, save."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ..config.schema import TrainConfig
from ..errors import TrainingError
from ..modes.mode import Mode
from ..report.metrics import is_better, metrics_in_training
from ..runtime.devices import peak_memory
from ..runtime.signals import StopSignals
from ..training.loop import RunProgress
from ..training.non_finite import FiniteCheck
from ..training.step import StepResult
from .assembly import Components
from .evaluation import evaluate_split
from .log.loss_window import Losses
from .log.run_log import RunLog
from .memory_errors import Remedy, memory_for
from .saving import Saver


@dataclass
class AfterStep:
    """Called on every rank after each step, with the same steps; all ranks do the same in the same order.

    `stopped_by` is the signal that has stopped the run, or 0; `best_dev_logits` (num_rows, num_labels) are of
    the best checkpoint, None where it was evaluated before this process started. A file that rank 0 cannot
    write is the `failure` with which all ranks end after their next step.
    """

    mode: Mode
    components: Components
    config: TrainConfig
    progress: RunProgress
    total_steps: int
    log: RunLog
    saver: Saver
    signals: StopSignals
    stopped_by: int = 0
    failure: Exception | None = None
    best_dev_logits: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.eval_every = self.config.eval_every or self.components.plan.steps_per_epoch
        self.save_every = self.config.save_every or self.eval_every
        self.first_step = self.progress.step + 1
        self.losses = Losses(self.mode, self.progress.loss_window)
        train = self.components.loaders["train"]
        self.check_finite = FiniteCheck(self.mode, train)

    def __call__(self, progress: RunProgress, step: StepResult) -> None:
        self.log_step(step)
        self.stopped_by = self.agree()
        self.check_trained()
        is_best = False
        if progress.step % self.eval_every == 0 or progress.step == self.total_steps:
            is_best = self.evaluate_dev()
        # Early stopping may have ended the training
        self.check_trained()
        is_trained = progress.is_trained(self.total_steps)
        with_state = progress.step % self.save_every == 0 or is_trained or bool(self.stopped_by)
        if is_best or with_state:
            self.save(is_best, with_state, is_trained)
        self.say_stopped("resume with --resume auto")
        progress.stop = progress.stopped_early or bool(self.stopped_by)

    def share(self) -> None:
        """Start to tell the other ranks of a signal or a failure; every rank calls it in each step."""
        with self.failure_of_rank_0():
            self.saver.check()
        self.signals.share(self.failure is not None)

    def agree(self) -> int:
        """Return the signal that any rank had at the last `share`, or 0; raises rank 0's failure on all."""
        stopped_by = self.signals.agreed()
        if self.signals.has_failed:
            self.mode.group.on_rank_0(self.raise_failure)
        return stopped_by

    def after_last_step(self) -> None:
        """Wait until all is written, and agree on the signals that came meanwhile; every rank calls it."""
        with self.failure_of_rank_0():
            self.saver.wait()
        self.share()
        late_signal = self.agree()
        if late_signal and not self.stopped_by:
            self.stopped_by = late_signal
            self.say_stopped("only the report is missing, and --resume auto writes it")

    @contextmanager
    def failure_of_rank_0(self) -> Iterator[None]:
        """Return a context in which the error of a file is not raised before all ranks know of it."""
        try:
            yield
        except (OSError, TrainingError) as error:
            if self.mode.group.world_size == 1:
                raise
            self.failure = self.failure or error

    def raise_failure(self) -> None:
        """Raise the failure of rank 0."""
        if self.failure:
            raise self.failure

    def say_stopped(self, remedy: str) -> None:
        """Say which signal has stopped the run, if one has, and what to do."""
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            self.log.bar.say(f"Stopped by {name} after step {self.progress.step}; {remedy}.")

    def log_step(self, step: StepResult) -> None:
        """Count a step, and show those since the last line where a line is due."""
        self.losses.on_device.append(step)
        self.log.count(step)
        if self.log.is_due(step.step):
            self.collect_losses()
            mean = self.losses.take_mean()
            with self.failure_of_rank_0():
                self.log.step(step, mean)
        if step.step == self.first_step and (peak := peak_memory(self.mode.device)) is not None:
            self.log.bar.say(
                f"Peak memory of {self.mode.device} after step {step.step}: {peak / 2**20:,.0f} MiB."
            )

    def collect_losses(self) -> None:
        """Add up the last losses over all ranks; raise TrainingError, or warn, where one is not finite."""
        steps, sums = self.losses.collect()
        self.progress.loss_sum += sum(sums)
        self.progress.loss_targets += sum(step.divisor for step in steps)
        self.check_finite(steps, sums)

    def check_trained(self) -> None:
        """Raise TrainingError where the training has ended without an update, after its warnings."""
        if self.progress.is_trained(self.total_steps) and not self.progress.updates:
            self.collect_losses()
            self.progress.check_trained(self.total_steps)

    def evaluate_dev(self) -> bool:
        """Evaluate on dev, stop early where that is due; return whether this is the best checkpoint so far.
        Without dev rows the last checkpoint is the best."""
        progress = self.progress
        if "dev" not in self.components.loaders:
            is_end = progress.step == self.total_steps
            if is_end:
                progress.best_step = progress.step
            return is_end
        with self.log.speed.paused():
            self.collect_losses()
            started = time.perf_counter()
            with memory_for("dev was evaluated", Remedy.EVALUATION):
                logits = evaluate_split(self.mode, self.components, "dev", self.log, progress.step)
            split = self.components.loaders["dev"].split
            metrics = metrics_in_training(self.components.task, split, logits)
            is_best = self.update_best(metrics)
            metrics |= self.take_train_loss()
            self.best_dev_logits = logits if is_best else self.best_dev_logits
            with self.failure_of_rank_0():
                self.log.evaluation(progress.step, "dev", metrics, is_best, time.perf_counter() - started)
        metric, evaluations = self.components.task.best_metric, progress.evaluations_without_improvement
        if self.config.early_stopping and evaluations >= self.config.early_stopping:
            progress.stopped_early = True
            self.log.bar.say(
                f"Stopped early after step {progress.step}: {metric} has not been better than at step "
                f"{progress.best_step} in {evaluations} evaluations."
            )
        return is_best

    def update_best(self, metrics: dict) -> bool:
        """Return whether the evaluation at the current step is the best so far; the progress keeps it."""
        progress, metric = self.progress, self.components.task.best_metric
        if not is_better(metrics[metric], progress.best_value, metric):
            progress.evaluations_without_improvement += 1
            return False
        progress.best_value, progress.best_step = metrics[metric], progress.step
        progress.evaluations_without_improvement = 0
        return True

    def take_train_loss(self) -> dict[str, float]:
        """Return the mean loss of training since the last evaluation, where it is finite, and reset it."""
        progress = self.progress
        mean = progress.loss_sum / max(1, progress.loss_targets)
        progress.loss_sum, progress.loss_targets = 0.0, 0
        return {"train_loss": mean} if math.isfinite(mean) else {}

    def save(self, is_best: bool, with_state: bool, is_trained: bool) -> None:
        """Save the best model or a training state, or both; first check that the losses are finite."""
        with self.log.speed.paused(), memory_for("weights were copied to be saved", Remedy.SAVING):
            self.collect_losses()
            with self.failure_of_rank_0():
                self.saver.save(self.progress, is_best, with_state, is_trained)
