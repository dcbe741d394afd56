"""One run of one rank, from the configuration to the report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ..checkpoints.environment import environment
from ..checkpoints.run_folder import check_run_folder, open_run_folder
from ..checkpoints.run_lock import RunLock
from ..checkpoints.starts import write_resumed, write_start
from ..checkpoints.training_state import drop_states
from ..checkpoints.write_errors import cannot_write
from ..data.report import render as render_data_report
from ..runtime.disk import is_full
from ..runtime.signals import StopAtOnce, Stopped, StopSignals
from ..strategies.strategy import Strategy
from ..training.loop import planned_steps, train
from ..training.progress import RunProgress
from .after_step import AfterStep
from .assembly import assemble, set_up
from .description import describe
from .evaluation import evaluate_split
from .final_report import print_and_write, report_split
from .job_signature import earlier_names, job_signature
from .log.run_log import RunLog
from .log.trackers import check_trackers
from .rank_agreement import check_ranks
from .resuming import Resumed, check_not_done, load_best, resume
from .saving import Saver, call_all

logger = logging.getLogger(__name__)


class Job:
    """Prepare, resume, train, report. Every rank has one and calls the same; rank 0 has the run folder.

    A caller that needs only the model may do without the report; the run then counts as not finished.
    """

    def __init__(self, mode: str, strategy: Strategy, with_report: bool = True) -> None:
        self.config = strategy.config
        self.mode = mode
        self.strategy = strategy
        self.with_report = with_report
        self.is_main = strategy.group.rank == 0
        self.state = RunProgress()
        self.folder: Path | None = None
        self.lock: RunLock | None = None
        self.log: RunLog | None = None
        self.saver: Saver | None = None
        # Of the best checkpoint, where this process has evaluated it
        self.dev_logits: np.ndarray | None = None

    def run(self) -> int:
        """Run to the end; returns the exit status: 0, or 128 + the signal that stopped it."""
        try:
            is_resumed = self.prepare()
            self.resume(is_resumed)
            stopped_by = self.train()
            self.log.close_bar()
            if stopped_by:
                self.log.outcome = "stopped"
                # The launcher ends all other ranks as soon as one has ended
                self.strategy.group.broadcast(None)
                return 128 + stopped_by
            self.report()
            self.log.outcome = "finished"
        except Stopped as stop:
            self.log.outcome = "stopped"
            self.log.say(f"Stopped by {stop} before the report was complete; --resume auto writes it.")
            raise
        except OSError as error:
            if not is_full(error) or self.folder is None:
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

    def prepare(self) -> bool:
        """Open the data, build the model and open the run folder; return, on rank 0, whether it holds a run
        to resume."""
        config, strategy = self.config, self.strategy
        # Before the long work, not after it
        if self.is_main:
            check_run_folder(config.output)
            check_trackers(config.output)
            check_not_done(config)
        self.components = components = assemble(config, strategy)
        self.config = config = components.config
        check_ranks(strategy.group, config, self.mode, components)
        self.total_steps = planned_steps(components.plan, config.train)
        is_resumed = False
        if self.is_main:
            logger.info(render_data_report(components.dataset, components.stores))
            self.folder, is_resumed, self.lock = open_run_folder(config.output)
            self.details = environment(self.mode, strategy.group.world_size, str(strategy.device))
            if not is_resumed:
                write_start(self.folder, config, self.details, components.dataset)
            logger.info(describe(components, strategy, config.train, self.total_steps, self.folder))
        set_up(strategy, components)
        return is_resumed

    def resume(self, is_resumed: bool) -> None:
        """Continue from the last training state of the run folder, where there is one; then open log and
        saver."""
        config, components = self.config, self.components
        job = job_signature(config, components, self.total_steps)
        resumed = resume(
            self.strategy, config, self.folder if is_resumed else None, job, earlier_names(components)
        )
        self.state = resumed.state
        before_first_write = self.first_writes(resumed) if self.folder and is_resumed else None
        self.saver = Saver(self.strategy, self.folder, components, config.output, job, before_first_write)
        self.log = RunLog(
            self.folder,
            config.output,
            components.outcome.log_metrics,
            self.total_steps,
            config.train.log_every,
            self.state.step,
            config.to_dict(),
        )

    def first_writes(self, resumed: Resumed) -> Callable[[], None] | None:
        """Return what rank 0 writes first into the folder of a resumed run: from then on its settings are
        those of this start.

        A run that only lacks its report writes that now.
        """
        if not resumed.has_state:
            return partial(write_start, self.folder, self.config, self.details, self.components.dataset)
        record = partial(write_resumed, self.folder, self.config, self.details, self.state.step)
        if self.state.is_trained(self.total_steps):
            record()
            return None
        return partial(call_all, [resumed.start_longer, record] if resumed.start_longer else [record])

    def train(self) -> int:
        """Train to the last step, early stopping or a signal; return the signal, or 0."""
        strategy, components, settings, state = self.strategy, self.components, self.config.train, self.state
        if state.is_trained(self.total_steps):
            return 0
        with StopSignals(strategy.group) as signals:
            after_step = AfterStep(
                strategy, components, settings, state, self.total_steps, self.log, self.saver, signals
            )
            self.measure_start()
            self.log.speed.start()
            train(
                strategy,
                components.loaders["train"],
                components.plan,
                components.outcome.loss,
                settings,
                state,
                after_step,
                signals.share,
            )
            self.saver.wait()
            after_step.after_last_step()
        self.dev_logits = after_step.best_dev_logits
        return after_step.stopped_by

    def measure_start(self) -> None:
        """Evaluate the rows of the report before the first step, where the task compares with that; every
        rank calls it."""
        if not self.components.outcome.measures_start or self.state.step:
            return
        split, started = report_split(self.components), time.perf_counter()
        batch_size = self.config.train.eval_batch_size
        metrics, _ = evaluate_split(self.strategy, self.components, split, batch_size, self.log, step=0)
        self.state.start_metrics = {name: metrics[name] for name in self.components.outcome.log_metrics}
        self.log.evaluation(0, split, metrics, False, time.perf_counter() - started)

    def report(self) -> None:
        """Evaluate the best checkpoint on test (on dev where there is no test), and report; every rank calls
        it.

        Dev is evaluated too, unless its logits by this checkpoint are known; the run folder gets those of
        both.
        """
        if not self.with_report:
            return
        split = report_split(self.components)
        with StopAtOnce():
            metrics, results = self.evaluate_best(split)
        if self.is_main:
            # A report that is being written is finished first
            with StopSignals(self.strategy.group):
                print_and_write(
                    self.folder, self.config, self.components, split, self.state, metrics, results
                )
                self.log.track_report(split, metrics, self.state.step)
                drop_states(self.folder, keep=int(self.config.output.keep_final_state), keep_damaged=0)
            logger.info("Saved in %s; %s", self.folder, self.components.outcome.next_command(self.folder))

    def evaluate_best(self, split: str) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the metrics of the best checkpoint on a split, and its results on that split and dev; every
        rank calls it."""
        if self.state.best_step != self.state.step:
            load_best(self.strategy, self.folder)

        def evaluate(name: str) -> tuple[dict, np.ndarray]:
            batch_size, step = self.config.train.eval_batch_size, self.state.best_step
            return evaluate_split(self.strategy, self.components, name, batch_size, self.log, step)

        metrics, report_results = evaluate(split)
        results = {split: report_results}
        if split != "dev" and "dev" in self.components.loaders:
            results["dev"] = evaluate("dev")[1] if self.dev_logits is None else self.dev_logits
        return metrics, results
