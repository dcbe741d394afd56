"""A run of one rank, from its settings to its report: read it from top to bottom, then `step.py`.

`app/run.py` has read the command line and joined the processes: that is the `mode`, and each process makes
one `Run`. `Run.run` is its story; what it calls follows in order. `build.py` makes what it works with, and
`Run.after_step` is what happens between two steps.
"""

import logging
import math
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ..checkpoints.job import check_ranks, job_signature
from ..checkpoints.run_folder import cannot_write, check_run_folder, holds_run, open_run_folder
from ..checkpoints.run_history import describe_start, write_first_start
from ..checkpoints.saving_and_resuming import Saver, find_state, load_best, load_state, record_resume
from ..checkpoints.training_state import RunProgress, TrainingState, drop_states
from ..data.report import render
from ..errors import TrainingError
from ..modes.mode import Mode
from ..report.logits_file import split_of_report
from ..report.metrics import is_better, metrics_in_training
from ..runtime.devices import peak_memory
from ..runtime.disk import is_full
from ..runtime.signals import StopAtOnce, Stopped, StopSignals
from .build import build, set_up
from .evaluate import BATCH_ROWS, check_finite, evaluate
from .final_report import print_and_write
from .log import Losses, RunLog, token_limit
from .merging import merge_adapter
from .non_finite import REMEDY, FiniteCheck
from .step import StepResult, is_out_of_memory, out_of_memory_error, planned_steps, train_steps
from .trackers import check_trackers

logger = logging.getLogger(__name__)


class Run:
    """One run of one rank. Every rank has one and calls the same; rank 0 has the run folder.

    A caller that needs only the model may do without the report; the run then counts as not finished. The
    report is written, and printed where the run `prints_report`. Where this process ends with the run
    (`ends_process`), signals after the report are ignored.
    """

    def __init__(
        self,
        mode_name: str,
        mode: Mode,
        with_report: bool = True,
        ends_process: bool = False,
        prints_report: bool = True,
    ) -> None:
        self.config = mode.config
        self.mode_name = mode_name
        self.mode = mode
        self.with_report = with_report
        self.ends_process = ends_process
        self.prints_report = prints_report
        self.group = mode.group
        self.progress = RunProgress()
        # What is opened on the way is closed at the end, the last first.
        self.closing = ExitStack()
        # Only rank 0 has these three.
        self.folder: Path | None = None
        self.is_resumed = False
        self.saved: TrainingState | None = None
        # The best checkpoint has given these, where this process has evaluated it.
        self.dev_logits: np.ndarray | None = None
        # It is the number of the signal that has stopped the run, or 0.
        self.stopped_by = 0
        # Rank 0 could not write a file: all ranks end with this error after their next step.
        self.failure: Exception | None = None

    def run(self) -> int:
        """Run to the end; return the exit status: 0, or 128 + the signal that stopped it."""
        with self.closing, self.explained_errors():
            self.prepare()
            if not self.progress.is_trained(self.total_steps):
                self.train()
            self.log.bar.close()
            if self.stopped_by:
                # A barrier: the launcher ends all other ranks as soon as one has ended.
                self.group.broadcast(None)
                return 128 + self.stopped_by
            with StopAtOnce():
                if self.components.model.adapter:
                    self.group.on_rank_0(partial(merge_adapter, self.folder, self.components))
                if self.with_report:
                    self.report()
        return 0

    @contextmanager
    def explained_errors(self) -> Iterator[None]:
        """Return a context in which signals and errors of the machine say what to do."""
        try:
            yield
        except Stopped as stop:
            self.log.bar.say(f"Stopped by {stop} before the report was complete; --resume auto writes it.")
            raise
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise out_of_memory_error(error) from error
        except OSError as error:
            if self.folder is None or not (is_full(error) or not holds_run(self.folder)):
                raise
            raise cannot_write("a file of the run", error, self.folder) from error

    def prepare(self) -> None:
        """Build the components, open the run folder, and load the training state of a run that resumes."""
        # Before the long work, not after it.
        self.group.on_rank_0(self.check_output)
        self.components = build(self.config, self.mode)
        self.config = self.components.config
        self.total_steps = planned_steps(self.components.plan, self.config.train)
        dataset, stores, model = self.components.dataset, self.components.stores, self.components.model
        best_metric = self.components.task.best_metric
        self.job = job_signature(self.config, dataset, self.components.tokenizer, model, best_metric)
        check_ranks(self.group, self.mode_name, self.config, dataset, stores, self.job)
        self.job |= {"steps": self.total_steps, "the optimizer state": self.mode.state_form}
        self.group.on_rank_0(self.open_folder)
        set_up(self.mode, self.components)
        self.resume()
        self.first_step = self.progress.step + 1
        self.losses = Losses(self.mode, self.progress.loss_window)
        self.finite = FiniteCheck(self.mode, self.components.loaders["train"])

    def check_output(self) -> None:
        """Raise InputError where the run could not begin to write; rank 0 calls it."""
        check_run_folder(self.config.output)
        check_trackers(self.config.output)

    def open_folder(self) -> None:
        """Open the run folder, and say what will be trained; rank 0 calls it."""
        mode, components = self.mode, self.components
        logger.info(render(components.dataset, components.stores))
        self.folder, self.is_resumed, lock = open_run_folder(self.config.output)
        self.closing.callback(lock.release)
        self.start = describe_start(self.mode_name, self.group.world_size, str(mode.device))
        if not self.is_resumed:
            write_first_start(self.folder, self.config, self.start, components.dataset)
        model, layout = components.model, components.layout
        encoder = model.model.config
        layers, width = (getattr(encoder, key, "?") for key in ("num_hidden_layers", "hidden_size"))
        parameters = sum(parameter.numel() for parameter in model.parameters())
        logger.info(
            f"Model\n  {encoder.model_type}, {layers} layers, {width} wide, {parameters / 1e6:.1f} million "
            f"parameters, {self.config.train.precision}, {'packed' if layout.packed else 'padded'} batches"
            f"{', attention over rows of any length' if layout.varlen else ''}\n  "
            f"{self.group.world_size} process(es), {mode.device}, {torch.get_num_threads()} threads; "
            f"{self.total_steps:,} steps of {components.plan.batch_size} rows\n  run folder {self.folder}"
        )

    def resume(self) -> None:
        """Continue from the last training state, where there is one; then open log and saver."""
        if self.group.on_rank_0(self.find_state):
            self.progress = load_state(self.mode, self.saved, self.folder, self.job)
        self.group.on_rank_0(self.open_log)
        if self.folder is None:
            self.open_log()
        self.closing.callback(self.log.close)
        model, tokenizer = self.components.model, self.components.tokenizer
        self.saver = Saver(self.mode, self.folder, model, tokenizer, self.job)
        self.closing.callback(self.saver.close)
        self.group.on_rank_0(self.record_start)

    def find_state(self) -> bool:
        """Return whether there is a training state to resume from, then in `saved`; rank 0 calls it."""
        self.saved = find_state(self.config, self.folder, self.job) if self.is_resumed else None
        return self.saved is not None

    def record_start(self) -> None:
        """Have the start of a resumed run written, before its first new file; rank 0 calls it."""
        if not self.is_resumed:
            return
        start = self.folder, self.config, self.start
        if not self.saved:
            self.saver.before_first = partial(write_first_start, *start, self.components.dataset)
        elif self.progress.is_trained(self.total_steps):
            # It only lacks its report.
            record_resume(*start, self.saved, self.total_steps)
        else:
            self.saver.before_first = partial(record_resume, *start, self.saved, self.total_steps)

    def open_log(self) -> None:
        """Open the log of the run; on ranks other than 0 it says nothing."""
        task = self.components.task
        self.log = RunLog(
            self.folder,
            self.config.output,
            tuple(dict.fromkeys((*task.log_metrics, task.best_metric))),
            self.total_steps,
            self.config.train.log_every,
            self.progress.step,
            self.config.to_dict(),
            with_bar=self.ends_process,
        )
        if self.folder:
            self.log.speed.limit = token_limit(self.mode, self.components)

    def train(self) -> None:
        """Train to the last step, early stopping or a signal."""
        components, settings, task = self.components, self.config.train, self.components.task
        loader = components.loaders["train"]
        with StopSignals(self.group) as self.signals:
            if task.measures_start and not self.progress.step:
                split, started = split_of_report(components.loaders), time.perf_counter()
                metrics = metrics_in_training(task, components.loaders[split].split, self.evaluate(split, 0))
                self.progress.start_metrics = {name: metrics[name] for name in task.log_metrics}
                first = 0, split, metrics, False, time.perf_counter() - started
                self.group.on_rank_0(lambda: self.log.evaluation(*first))
            self.log.speed.start()
            plan, after_step = components.plan, self.after_step
            train_steps(self.mode, loader, plan, task.loss, settings, self.progress, after_step, self.share)
            # What is still being written, and signals that come meanwhile, belong to the training.
            with self.failure_of_rank_0():
                self.saver.wait()
            self.share()
            late_signal = self.agree()
            if late_signal and not self.stopped_by:
                self.stopped_by = late_signal
                self.say_stopped("only the report is missing, and --resume auto writes it")

    def evaluate(self, name: str, step: int) -> np.ndarray:
        """Return what the task keeps of the rows of a split, (num_rows, any); every rank calls it. Raises
        TrainingError where results of the model of `step` are not finite."""
        loader = self.components.loaders[name]
        with self.log.bar.evaluation(name, len(loader)) as bar:
            results = evaluate(self.mode, loader, BATCH_ROWS, bar.update, self.components.task.row_results)
        check_finite(results, loader.split, step)
        return results

    def share(self) -> None:
        """Start to tell the other ranks of a signal or a failure; every rank calls it before each update."""
        with self.failure_of_rank_0():
            self.saver.check()
        self.signals.share(self.failure is not None)

    def after_step(self, progress: RunProgress, step: StepResult) -> None:
        """Log, agree on signals, evaluate on dev, save; every rank calls it after each step."""
        settings = self.config.train
        eval_every = settings.eval_every or self.components.plan.steps_per_epoch
        self.log_step(step)
        self.stopped_by = self.agree()
        self.check_trained()
        is_best = False
        if progress.step % eval_every == 0 or progress.step == self.total_steps:
            is_best = self.evaluate_dev()
        # Early stopping may have ended the training.
        self.check_trained()
        is_trained = progress.is_trained(self.total_steps)
        is_due = progress.step % (settings.save_every or eval_every) == 0
        with_state = is_due or is_trained or bool(self.stopped_by)
        if is_best or with_state:
            with self.log.speed.paused():
                self.collect_losses()
                with self.failure_of_rank_0():
                    self.saver.save(progress, is_best, with_state, is_trained)
        self.say_stopped("resume with --resume auto")
        progress.stop = progress.stopped_early or bool(self.stopped_by)

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
            place = f"{self.mode.device} after step {step.step}"
            self.log.bar.say(f"Peak memory of {place}: {peak / 2**20:,.0f} MiB.")

    def collect_losses(self) -> None:
        """Add up the last losses over all ranks; raise TrainingError where one is not finite."""
        steps, sums = self.losses.collect()
        self.progress.loss_sum += sum(sums)
        self.progress.loss_targets += sum(step.divisor for step in steps)
        self.finite(steps, sums)

    def agree(self) -> int:
        """Return the signal that any rank had at the last `share`, or 0; raise rank 0's failure on all."""
        stopped_by = self.signals.agreed()
        if self.signals.has_failed:
            self.group.on_rank_0(self.raise_failure)
        return stopped_by

    def raise_failure(self) -> None:
        """Raise the failure of rank 0."""
        if self.failure:
            raise self.failure

    @contextmanager
    def failure_of_rank_0(self) -> Iterator[None]:
        """Return a context in which the error of a file is not raised before all ranks know of it."""
        try:
            yield
        except (OSError, TrainingError) as error:
            if self.group.world_size == 1:
                raise
            self.failure = self.failure or error

    def check_trained(self) -> None:
        """Raise TrainingError where the training has ended without an update, after its warnings."""
        progress = self.progress
        if progress.is_trained(self.total_steps) and not progress.updates:
            self.collect_losses()
            raise TrainingError(
                f"all {progress.step} steps were skipped, because their losses or gradients were not finite: "
                f"nothing was trained, and there is no report; {REMEDY}"
            )

    def evaluate_dev(self) -> bool:
        """Evaluate on dev, stop early where that is due; return whether this is the best checkpoint so far.
        Without dev rows the last checkpoint is the best."""
        progress, task = self.progress, self.components.task
        if "dev" not in self.components.loaders:
            is_end = progress.step == self.total_steps
            progress.best_step = progress.step if is_end else progress.best_step
            return is_end
        with self.log.speed.paused():
            self.collect_losses()
            started = time.perf_counter()
            logits = self.evaluate("dev", progress.step)
            metrics = metrics_in_training(task, self.components.loaders["dev"].split, logits)
            value = metrics[task.best_metric]
            is_best = is_better(value, progress.best_value, task.best_metric)
            if is_best:
                progress.best_value, progress.best_step, self.dev_logits = value, progress.step, logits
            progress.evaluations_without_improvement = (
                0 if is_best else progress.evaluations_without_improvement + 1
            )
            train_loss = progress.loss_sum / max(1, progress.loss_targets)
            progress.loss_sum, progress.loss_targets = 0.0, 0
            if math.isfinite(train_loss):
                metrics["train_loss"] = train_loss
            with self.failure_of_rank_0():
                seconds = time.perf_counter() - started
                self.log.evaluation(progress.step, "dev", metrics, is_best, seconds)
        evaluations, patience = progress.evaluations_without_improvement, self.config.train.early_stopping
        if patience and evaluations >= patience:
            progress.stopped_early = True
            self.log.bar.say(
                f"Stopped early after step {progress.step}: {task.best_metric} has not been better than at "
                f"step {progress.best_step} in {evaluations} evaluations."
            )
        return is_best

    def say_stopped(self, remedy: str) -> None:
        """Say which signal has stopped the run, if one has, and what to do."""
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            self.log.bar.say(f"Stopped by {name} after step {self.progress.step}; {remedy}.")

    def report(self) -> None:
        """Evaluate the best checkpoint on test (without test on dev), and report; every rank calls it. Dev is
        evaluated too, unless its logits by this checkpoint are known; the run folder gets both."""
        best_step, split = self.progress.best_step, split_of_report(self.components.loaders)
        if best_step != self.progress.step:
            load_best(self.mode, self.folder)
        results = {split: self.evaluate(split, best_step)}
        if split != "dev" and "dev" in self.components.loaders:
            results["dev"] = self.evaluate("dev", best_step) if self.dev_logits is None else self.dev_logits
        # A report that is being written is finished first.
        with StopSignals(self.group) as signals:
            self.group.on_rank_0(partial(self.write_report, split, results))
            if self.ends_process:
                signals.ignore_later_ones()

    def write_report(self, split: str, results: dict[str, np.ndarray]) -> None:
        """Print and write the report, and remove what a finished run does not need; rank 0 calls it."""
        of_run = self.folder, self.config, self.components
        metrics = print_and_write(*of_run, split, self.progress, results, self.prints_report)
        self.log.track_report(split, metrics, self.progress.step)
        drop_states(self.folder, keep=1)
        command = self.components.task.next_command.format(folder=self.folder)
        logger.info("Saved in %s; %s", self.folder, command)
