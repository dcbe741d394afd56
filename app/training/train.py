"""A run of one rank, from its first step to its report. Read `open_run.py` first, which opens all that a run
works with, then this file from top to bottom, then `step.py`."""

import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from safetensors import SafetensorError

from ..checkpoints.decision import fit_decision
from ..checkpoints.model_record import add_record
from ..checkpoints.progress import RunProgress
from ..checkpoints.resume import load_best_weights
from ..checkpoints.run_files import PAGE, STATES
from ..checkpoints.run_folder import cannot_write
from ..checkpoints.run_start import RunStart
from ..checkpoints.saver import Saver
from ..checkpoints.training_state import size_of_states
from ..errors import TrainingError, counted, show
from ..modes.mode import Mode
from ..modes.signals import Stopped, StopSignals, stop_at_once
from ..report.commands import command_after_pretraining, path_word, predict_command
from ..report.logits_file import split_of_report
from ..report.measure import metrics_in_training
from ..report.metrics import is_better
from ..runtime.devices import peak_memory
from .build import Components
from .evaluation import evaluate_rows
from .final_report import write_report
from .log import RunLog
from .merge_adapter import merge_adapter
from .step import train_steps
from .step_results import StepResult, add_losses

logger = logging.getLogger(__name__)


class Run:
    """One run of one rank, which `open_run` makes. Every rank calls the same; rank 0 has the run folder.

    A caller that needs only the model may do without the report (`with_report`); the run then counts as not
    finished. Where this process ends with the run (`ends_process`), the report is also printed, there may be
    a progress bar, and signals after the report are ignored.
    """

    def __init__(
        self,
        mode: Mode,
        components: Components,
        start: RunStart,
        progress: RunProgress,
        log: RunLog,
        saver: Saver,
        with_report: bool,
        ends_process: bool,
    ) -> None:
        self.mode = mode
        self.group = mode.group
        self.components = components
        self.config = components.config
        self.task = components.task
        self.loaders = components.loaders
        self.start = start
        self.folder = start.folder
        self.total_steps = start.job["steps"]
        self.progress = progress
        self.log = log
        self.saver = saver
        self.with_report = with_report
        self.ends_process = ends_process
        # The results of steps stay on the device until they are needed
        self.steps: list[StepResult] = []
        self.stopped_by = 0  # the number of the signal that has stopped the run
        self.status = 0  # 1 where the report could not be printed
        self.failure: Exception | None = None  # rank 0 cannot write: all ranks end with it after a step
        self.dev_logits: np.ndarray | None = None  # of the best checkpoint, if this process has evaluated it

    def run(self) -> int:
        """Run to the end; return the exit status: 0, 1 where the report could not be printed, or 128 + the
        signal that stopped it."""
        try:
            if not self.progress.is_trained(self.total_steps):
                self.train()
            self.log.bar.close()
            if self.stopped_by:
                # A barrier: the launcher ends all other ranks as soon as one has ended.
                self.group.broadcast(None)
                return 128 + self.stopped_by
            with stop_at_once():
                self.finish()
        except Stopped as stop:
            logger.info("Stopped by %s before the report was complete; --resume auto writes it.", stop)
            raise
        except (OSError, SafetensorError) as error:
            if self.folder is None:
                raise
            raise cannot_write(error, self.folder) from error
        return self.status

    def train(self) -> None:
        """Train to the last step, or to the one after which the run is stopped."""
        with StopSignals(self.group) as self.signals:
            if not self.progress.step:
                self.evaluate_start()
            self.log.started = time.perf_counter()
            train_steps(
                self.mode,
                self.loaders["train"],
                self.components.plan,
                self.task.loss,
                self.progress,
                self.after_step,
            )
            # The training ends when all files are written; a signal that comes until then still stops it.
            with self.failure_of_rank_0():
                self.saver.wait()
            self.agree()
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            logger.info("Stopped by %s after step %d; resume with --resume auto.", name, self.progress.step)

    def evaluate_start(self) -> None:
        """Evaluate the model as it is before the first step: with masked tokens on the rows of the report;
        else on dev, where it is a candidate for the best checkpoint. A head that starts at random knows no
        label, so the time for it is saved."""
        if not self.task.has_labels:
            self.evaluate_masked_start()
        elif self.components.model.knows_labels and "dev" in self.loaders and self.evaluate_dev():
            with self.log.paused(), self.failure_of_rank_0():
                self.saver.save(
                    self.progress,
                    is_best=True,
                    with_state=False,
                    fit_decision=self.decision_fitter(),
                )

    def evaluate_masked_start(self) -> None:
        split = split_of_report(self.loaders)
        results = self.evaluate_split(split)
        metrics = metrics_in_training(self.task, self.loaders[split].split, results)
        self.progress.start_metrics = {name: metrics[name] for name in self.task.log_metrics}
        self.log.evaluation(0, split, metrics, is_best=False)

    def after_step(self, progress: RunProgress, step: StepResult) -> None:
        """Log, agree on signals, evaluate on dev, save; every rank calls it after each step."""
        settings = self.config.train
        eval_every = settings.eval_every or self.components.plan.steps_per_epoch
        self.log_step(step)
        self.agree()
        is_evaluated = progress.step % eval_every == 0 or progress.step == self.total_steps
        is_best = is_evaluated and self.evaluate_dev()
        # Early stopping may have ended the training.
        is_last = progress.is_trained(self.total_steps) or bool(self.stopped_by)
        with_state = is_last or progress.step % (settings.save_every or eval_every) == 0
        if is_best or with_state:
            with self.log.paused():
                self.collect()
                with self.failure_of_rank_0():
                    self.saver.save(progress, is_best, with_state, self.decision_fitter())
        progress.stop = progress.stopped_early or bool(self.stopped_by)

    def collect(self) -> None:
        """Read the losses of the steps since the last call from the device; every rank calls it."""
        add_losses(self.mode, self.loaders["train"], self.steps, self.progress)
        self.steps.clear()

    def log_step(self, step: StepResult) -> None:
        """Log a step, of which the loss is read from the device only now and then."""
        self.steps.append(step)
        self.log.count(step)
        if step.step % self.config.train.log_every == 0 or step.step in (1, self.total_steps):
            self.collect()
            with self.failure_of_rank_0():
                self.log.step(step, self.progress.mean_loss(self.progress.logged))
        if self.log.steps == 1:
            self.log_peak_memory(step.step)

    def log_peak_memory(self, step: int) -> None:
        """Log the most memory that the device has had in use, where it is known."""
        num_bytes = peak_memory(self.mode.device)
        if num_bytes is not None:
            logger.info(f"Peak memory of {self.mode.device} after step {step}: {num_bytes / 2**20:,.0f} MiB.")

    def agree(self) -> None:
        """Stop by a signal that any rank has received; raise a failure of rank 0 on all ranks."""

        def fail() -> None:
            raise self.failure

        with self.failure_of_rank_0():
            self.saver.check()
        if self.signals.agree(self.failure is not None):
            self.group.on_rank_0(fail)
        self.stopped_by = self.signals.stopped_by

    @contextmanager
    def failure_of_rank_0(self) -> Iterator[None]:
        """Return a context in which the error of a file is not raised before all ranks know of it."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            if self.group.world_size == 1:
                raise
            self.failure = self.failure or cannot_write(error, self.folder)

    def evaluate_dev(self) -> bool:
        """Evaluate on dev, stop early where that is due; return whether this is the best checkpoint so far.
        Without dev rows the last checkpoint is the best."""
        progress = self.progress
        metric = self.task.best_metric
        if "dev" not in self.loaders:
            is_end = progress.step == self.total_steps
            if is_end:
                progress.best_step = progress.step
            return is_end
        with self.log.paused():
            self.collect()
            logits = self.evaluate_split("dev")
            metrics = metrics_in_training(self.task, self.loaders["dev"].split, logits)
        if progress.step:
            metrics["train_loss"] = progress.mean_loss(progress.evaluated)
        is_best = is_better(metrics[metric], progress.best_value, metric)
        if is_best:
            progress.best_value = metrics[metric]
            progress.best_step = progress.step
            progress.evaluations_without_improvement = 0
            self.dev_logits = logits
        else:
            progress.evaluations_without_improvement += 1
        with self.failure_of_rank_0():
            self.log.evaluation(progress.step, "dev", metrics, is_best)
        num_failed = progress.evaluations_without_improvement
        if num_failed >= (self.config.train.early_stopping or math.inf):
            progress.stopped_early = True
            logger.info(
                f"Stopped early after step {progress.step}: {metric} has not been better than at step "
                f"{progress.best_step} in {counted(num_failed, 'evaluation')}."
            )
        return is_best

    def decision_fitter(self) -> Callable[[], dict]:
        """Return a function that fits the decision of the best checkpoint so far, as `fit_decision` does; it
        may be called while the run trains on. Without a report there is none but that of several labels a
        row, which always have thresholds."""
        if not self.task.has_labels:
            return dict
        if not self.with_report and not self.task.form.has_several:
            return dict
        dev = None
        if "dev" in self.loaders:
            dev = self.loaders["dev"].split
        return partial(fit_decision, self.task, dev, self.dev_logits, self.progress.best_step)

    def evaluate_split(self, name: str) -> np.ndarray:
        """Return what the task keeps of the rows of a split, (num_rows, any); every rank calls it."""
        loader = self.loaders[name]
        with self.log.evaluation_bar(name, len(loader)) as bar:
            return evaluate_rows(self.mode, loader, on_batch=bar.update, row_results=self.task.row_results)

    def finish(self) -> None:
        """Evaluate the best checkpoint on test (without test on dev), and report; every rank calls it. Dev is
        evaluated too, unless its logits by this checkpoint are known; the run folder gets both."""
        if not self.progress.updates:
            raise TrainingError(
                f"all {self.progress.step} steps were skipped, because their numbers were not finite: "
                "nothing was trained, and there is no report; start again with train.precision fp32"
            )
        self.group.on_rank_0(self.start.record)
        if self.components.model.adapter:
            best_step = self.progress.best_step
            self.group.on_rank_0(partial(merge_adapter, self.folder, self.components, best_step))
        if not self.with_report:
            self.group.on_rank_0(partial(add_record, self.folder))
            return
        if self.progress.best_step != self.progress.step:
            load_best_weights(self.mode, self.folder)
        split = split_of_report(self.loaders)
        results = {split: self.evaluate_split(split)}
        if split != "dev" and "dev" in self.loaders:
            if self.dev_logits is None:
                self.dev_logits = self.evaluate_split("dev")
            results["dev"] = self.dev_logits
        # A report that is being written is finished first.
        with StopSignals(self.group) as signals:
            self.group.on_rank_0(partial(self.report, split, results))
            if self.ends_process:
                signals.ignore_later_ones()

    def report(self, split: str, results: dict[str, np.ndarray]) -> None:
        """Write, print and log the report on a split, given the `results` of the rows by split; rank 0 calls
        it."""
        text, metrics = write_report(self.folder, self.components, split, self.progress, results)
        if self.ends_process and show(f"\n{text}\n\n") == 1:
            self.status = 1
        tracked_metrics = {name: metrics[name] for name in self.log.metrics}
        self.log.track(f"report_{split}", tracked_metrics, self.progress.step)
        logger.info("\n".join([f"Saved in {self.folder}", *self.last_lines()]))

    def last_lines(self) -> list[str]:
        """Return what people want to know at the end of a run: where its report is, what the training state
        is for, and what to do with the model. Commands stand at the end of a line."""
        lines = []
        page = self.folder / PAGE
        if page.exists():
            lines.append(f"  report, for a browser: {page}")
        num_bytes = size_of_states(self.folder)
        if num_bytes:
            command = f"rm -r {path_word(self.folder / STATES)}"
            size = f"{num_bytes / 1e6:,.1f} MB"
            lines.append(f"  training state, {size}, only to train for longer; remove it with: {command}")
        if not self.task.has_labels:
            command = command_after_pretraining(self.folder)
            lines.append(f"  train a classifier on rows with labels, here in rows.tsv, with: {command}")
            return lines
        train_file = self.components.dataset.splits["train"].table.sources[0]
        if self.config.is_of_program:
            train_file = "FILE"
        command = predict_command(self.folder, self.config.data, train_file)
        lines.append(f"  classify text with: {command}")
        return lines
