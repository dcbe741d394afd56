"""One run of one rank, from the configuration to the report."""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from filelock import FileLock

from ..checkpoints.run_folder import cannot_write, check_run_folder, holds_run, open_run_folder
from ..checkpoints.run_history import describe_start, write_first_start
from ..checkpoints.training_state import TrainingState, drop_states
from ..data.report import render
from ..modes.mode import Mode
from ..report.logits_file import split_of_report
from ..report.metrics import metrics_in_training
from ..runtime.disk import is_full
from ..runtime.signals import StopAtOnce, Stopped, StopSignals
from ..training.loop import RunProgress, planned_steps, train
from .after_step import AfterStep
from .assembly import assemble, set_up
from .description import describe
from .evaluation import evaluate_split
from .final_report import print_and_write
from .job_signature import job_signature
from .log.run_log import RunLog
from .log.trackers import check_trackers
from .memory_errors import Remedy, memory_for
from .merging import merge_adapter
from .rank_agreement import check_ranks
from .resuming import check_not_done, find_state, load_best, load_state, writes_of_resumed_run
from .saving import Saver

logger = logging.getLogger(__name__)


class Job:
    """Prepare, resume, train, report. Every rank has one and calls the same; rank 0 has the run folder.

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
        self.on_rank_0 = mode.group.on_rank_0
        self.is_main = mode.group.rank == 0
        self.progress = RunProgress()
        # Of rank 0
        self.folder: Path | None = None
        self.lock: FileLock | None = None
        self.is_resumed = False
        self.saved: TrainingState | None = None
        self.log: RunLog | None = None
        self.saver: Saver | None = None
        # Of the best checkpoint, where this process has evaluated it
        self.dev_logits: np.ndarray | None = None

    def run(self) -> int:
        """Run to the end; returns the exit status: 0, or 128 + the signal that stopped it."""
        try:
            self.prepare()
            self.resume()
            with memory_for("the model was trained", Remedy.TRAINING):
                stopped_by = self.train()
            self.log.bar.close()
            if stopped_by:
                # The launcher ends all other ranks as soon as one has ended
                self.mode.group.broadcast(None)
                return 128 + stopped_by
            self.merge()
            self.report()
        except Stopped as stop:
            self.log.bar.say(f"Stopped by {stop} before the report was complete; --resume auto writes it.")
            raise
        except OSError as error:
            if self.folder is None or not (is_full(error) or not holds_run(self.folder)):
                raise
            raise cannot_write("a file of the run", error, self.folder) from error
        finally:
            if self.saver:
                self.saver.close()
            if self.log:
                self.log.close()
            if self.lock:
                self.lock.release()
        return 0

    def prepare(self) -> None:
        """Open the data, build the model and open the run folder."""
        # Before the long work, not after it
        self.on_rank_0(self.check_output)
        with memory_for("the data were opened and the model was built", Remedy.PREPARING):
            self.components = assemble(self.config, self.mode)
        self.config = self.components.config
        job = job_signature(self.config, self.components)
        check_ranks(self.mode.group, self.config, self.mode_name, self.components, job)
        self.total_steps = planned_steps(self.components.plan, self.config.train)
        self.job = job | {"steps": self.total_steps}
        self.on_rank_0(self.open_folder)
        with memory_for("the model was placed and its optimizer was built", Remedy.PREPARING):
            set_up(self.mode, self.components)

    def check_output(self) -> None:
        """Raise InputError where the run could not begin to write; rank 0 calls it."""
        check_run_folder(self.config.output)
        check_trackers(self.config.output)
        check_not_done(self.config)

    def open_folder(self) -> None:
        """Open the run folder, and say what will be trained; rank 0 calls it."""
        mode, components = self.mode, self.components
        logger.info(render(components.dataset, components.stores))
        self.folder, self.is_resumed, self.lock = open_run_folder(self.config.output)
        self.start = describe_start(self.mode_name, mode.group.world_size, str(mode.device))
        if not self.is_resumed:
            write_first_start(self.folder, self.config, self.start, components.dataset)
        logger.info(describe(components, mode, self.total_steps, self.folder))

    def resume(self) -> None:
        """Continue from the last training state, where there is one; then open log and saver."""
        with memory_for("the training state was loaded", Remedy.LOADING):
            if self.on_rank_0(self.find_state):
                self.progress = load_state(self.mode, self.saved, self.folder, self.job)
        first_writes: list[Callable[[], None]] = []
        self.on_rank_0(lambda: first_writes.extend(self.first_writes()))
        self.saver = Saver(self.mode, self.folder, self.components, self.job, first_writes)
        self.on_rank_0(self.open_log)
        if not self.is_main:
            self.open_log()

    def find_state(self) -> bool:
        """Return whether there is a training state to resume from, then in `saved`; rank 0 calls it."""
        self.saved = find_state(self.config, self.folder, self.job) if self.is_resumed else None
        return self.saved is not None

    def first_writes(self) -> list[Callable[[], None]]:
        """Return what has to be written before the first new file of a resumed run; rank 0 calls it."""
        if not self.is_resumed:
            return []
        start = self.folder, self.config, self.start
        if not self.saved:
            return [partial(write_first_start, *start, self.components.dataset)]
        return writes_of_resumed_run(*start, self.saved, self.progress, self.total_steps)

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

    def train(self) -> int:
        """Train to the last step, early stopping or a signal; return the signal, or 0."""
        mode, components, settings = self.mode, self.components, self.config.train
        if self.progress.is_trained(self.total_steps):
            return 0
        with StopSignals(mode.group) as signals:
            saving = self.total_steps, self.log, self.saver, signals
            after_step = AfterStep(mode, components, settings, self.progress, *saving)
            self.measure_start()
            self.log.speed.start()
            train(
                mode,
                components.loaders["train"],
                components.plan,
                components.task.loss,
                settings,
                self.progress,
                after_step,
                after_step.share,
            )
            after_step.after_last_step()
        self.dev_logits = after_step.best_dev_logits
        return after_step.stopped_by

    def measure_start(self) -> None:
        """Evaluate before the first step, where the task needs it; every rank calls it."""
        if not self.components.task.measures_start or self.progress.step:
            return
        split, started = split_of_report(self.components.loaders), time.perf_counter()
        results = self.evaluate(split, step=0)
        task = self.components.task
        metrics = metrics_in_training(task, self.components.loaders[split].split, results)
        self.progress.start_metrics = {name: metrics[name] for name in task.log_metrics}
        self.on_rank_0(partial(self.log.evaluation, 0, split, metrics, False, time.perf_counter() - started))

    def evaluate(self, split: str, step: int) -> np.ndarray:
        """Return the results of the rows of a split; every rank calls it."""
        with memory_for(f"{split} was evaluated", Remedy.EVALUATION):
            return evaluate_split(self.mode, self.components, split, self.log, step)

    def merge(self) -> None:
        """Make an ordinary checkpoint of what LoRA has trained, where it is on; every rank calls it."""
        if self.components.model.adapter:
            with StopAtOnce(), memory_for("the adapter was merged", Remedy.LOADING):
                self.on_rank_0(partial(merge_adapter, self.folder, self.components))

    def report(self) -> None:
        """Evaluate the best checkpoint on test (without test on dev), and report; every rank calls it. Dev is
        evaluated too, unless its logits by this checkpoint are known; the run folder gets both."""
        if not self.with_report:
            return
        with StopAtOnce():
            results = self.evaluate_best(split := split_of_report(self.components.loaders))
            # A report that is being written is finished first
            with StopSignals(self.mode.group) as signals:
                with memory_for("the report was written", Remedy.LOADING):
                    self.on_rank_0(partial(self.write_report, split, results))
                if self.ends_process:
                    signals.ignore_later_ones()

    def evaluate_best(self, split: str) -> dict[str, np.ndarray]:
        """Return the best model's results on a split and on dev; every rank calls it."""
        best_step = self.progress.best_step
        if best_step != self.progress.step:
            load_best(self.mode, self.folder)
        results = {split: self.evaluate(split, best_step)}
        if split != "dev" and "dev" in self.components.loaders:
            results["dev"] = self.evaluate("dev", best_step) if self.dev_logits is None else self.dev_logits
        return results

    def write_report(self, split: str, results: dict[str, np.ndarray]) -> None:
        """Print and write the report, and remove what a finished run does not need; rank 0 calls it."""
        of_run = self.folder, self.config, self.components
        metrics = print_and_write(*of_run, split, self.progress, results, self.prints_report)
        self.log.track_report(split, metrics, self.progress.step)
        drop_states(self.folder, keep=1, keep_damaged=0)
        logger.info("Saved in %s; %s", self.folder, self.components.task.next_command(self.folder))
