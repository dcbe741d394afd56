"""One run of one rank, from the configuration to the report."""

from __future__ import annotations

import logging
from pathlib import Path

from app.checkpoints.run_folder import check_run_folder, open_run_folder, write_start
from app.checkpoints.run_lock import RunLock
from app.checkpoints.training_state import drop_states
from app.checkpoints.write_errors import cannot_write
from app.config.schema import Config
from app.data.report import render as render_data_report
from app.run.after_step import AfterStep
from app.run.assembly import assemble, set_up
from app.run.description import describe
from app.run.evaluation import evaluate_split
from app.run.final_report import print_and_write, report_split
from app.run.log.run_log import RunLog
from app.run.resuming import check_not_done, job_signature, load_best, resume
from app.run.saving import Saver
from app.runtime.disk import is_full
from app.runtime.signals import StopSignals
from app.strategies.strategy import Strategy
from app.training.loop import planned_steps, train
from app.training.state import RunState

logger = logging.getLogger(__name__)


class Job:
    """Prepare, resume, train, report. Every rank has one and calls the same; rank 0 has the run folder."""

    def __init__(self, config: Config, mode: str, strategy: Strategy) -> None:
        self.config = config
        self.mode = mode
        self.strategy = strategy
        self.is_main = strategy.group.rank == 0
        self.state = RunState()
        self.folder: Path | None = None
        self.lock: RunLock | None = None
        self.log: RunLog | None = None
        self.saver: Saver | None = None

    def run(self) -> int:
        """Run to the end; returns the exit status: 0, or 128 + the signal that stopped it."""
        try:
            is_resumed = self.prepare()
            self.resume(is_resumed)
            stopped_by = self.train()
            self.log.close_bar()
            if stopped_by:
                self.strategy.group.broadcast(None)  # the launcher ends all other ranks as soon as one has ended
                return 128 + stopped_by
            self.report()
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
        """Open the data, build the model and open the run folder; return, on rank 0, whether it holds a run to resume."""
        config, strategy = self.config, self.strategy
        if self.is_main:  # before the long work, not after it
            check_run_folder(config.output)
            check_not_done(config)
        self.components = components = assemble(config, strategy)
        self.total_steps = planned_steps(components.plan, config.train)
        is_resumed = False
        if self.is_main:
            logger.info(render_data_report(components.dataset, components.stores))
            self.folder, is_resumed, self.lock = open_run_folder(config.output)
            if not is_resumed:
                device = str(strategy.device)
                write_start(self.folder, config, self.mode, strategy.group.world_size, device, components.dataset)
            logger.info(describe(components, strategy, config.train, self.total_steps, self.folder))
        set_up(strategy, components, config.train)
        return is_resumed

    def resume(self, is_resumed: bool) -> None:
        """Continue from the last training state of the run folder, where there is one; then open log and saver."""
        config, components = self.config, self.components
        job = job_signature(config, components, self.total_steps)
        resumed = resume(self.strategy, config, self.folder if is_resumed else None, job)
        self.state = resumed.state
        self.saver = Saver(
            self.strategy, self.folder, components, config.output, job, before_first_write=resumed.before_first_write
        )
        self.log = RunLog(self.folder, config.output, self.total_steps, config.train.log_every, self.state.step)

    def train(self) -> int:
        """Train to the last step, early stopping or a signal; return the signal, or 0."""
        strategy, components, settings, state = self.strategy, self.components, self.config.train, self.state
        if state.is_trained(self.total_steps):
            return 0
        with StopSignals(strategy.group) as signals:
            after_step = AfterStep(
                strategy, components, settings, state, self.total_steps, self.log, self.saver, signals
            )
            self.log.speed.start()
            train(
                strategy,
                components.loaders["train"],
                components.plan,
                components.row_loss,
                settings,
                state,
                after_step,
                signals.share,
            )
            self.saver.wait()
        return after_step.stopped_by

    def report(self) -> None:
        """Evaluate the best checkpoint on test (on dev where there is no test), and report; every rank calls it."""
        if self.state.best_step != self.state.step:
            load_best(self.strategy, self.folder)
        split = report_split(self.components)
        settings = self.config.train
        metrics, logits = evaluate_split(
            self.strategy, self.components, split, settings.eval_batch_size, self.log, self.state.best_step
        )
        if self.is_main:
            print_and_write(self.folder, self.components, split, self.state, settings.best_metric, metrics, logits)
            drop_states(self.folder, keep=int(self.config.output.keep_final_state))
            logger.info(
                "Saved in %s; classify text with: python predict.py --checkpoint %s 今天真开心",
                self.folder,
                self.folder,
            )
