"""This project: python run_single.py --config configs/weibo_emotion6.yaml, with the settings that are fastest
here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from app.batching.plan import BatchPlan, micro_batches
from app.checkpoints.training_state import RunProgress
from app.config.command_line import load_config
from app.modes import open_mode
from app.training.log import start_logging
from app.training.step import StepResult, train
from app.training.train import Run
from benchmarks.harness.meter import Meter, Sizes
from benchmarks.reference_job.job import Job


def fastest_settings(bf16: bool) -> list[str]:
    """Return the command line that makes the job fastest, on a machine with or without bf16 arithmetic."""
    return ["--train.precision", "bf16" if bf16 else "fp32"]


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenRows(BatchPlan):
    """Global batches of the rows `positions`, (num_rows,), one after the other: those that all programs
    train."""

    positions: np.ndarray

    def batch(self, step: int) -> np.ndarray:
        return self.positions[step * self.batch_size : (step + 1) * self.batch_size]


def main(job: Job, meter: Meter) -> None:
    """Train, with the log, the TensorBoard events and the run folder of any run."""
    config = load_config(job.our_arguments, "run_single.py")
    start_logging(is_main=True)
    with open_mode("single", config) as mode:
        run = Run("single", mode)
        run.prepare()
        components, settings = run.components, mode.config.train
        positions = np.array(job.order())
        plan = GivenRows(len(positions), job.batch_size, job.seed, positions=positions)

        def after_step(state: RunProgress, step: StepResult) -> None:
            run.log_step(step)
            meter.step_done(lambda: step.loss_sum / step.divisor)

        loader = components.loaders["train"]
        try:
            meter.start(lambda steps: sizes_of(run, plan, steps), precision=settings.precision)
            run.log.speed.start()
            train(mode, loader, plan, components.task.loss, settings, run.progress, after_step)
        finally:
            run.closing.close()


def sizes_of(run: Run, plan: BatchPlan, steps: int) -> Sizes:
    """Return the sizes of the last `steps` global batches, made once more;
    the plan says which rows they had."""
    loader = run.components.loaders["train"]
    rows = real_tokens = tokens = 0
    for step in range(run.progress.step - steps, run.progress.step):
        batch = plan.batch(step)
        lengths = loader.lengths(batch)
        rows += len(batch)
        real_tokens += int(lengths.sum())
        [parts] = micro_batches(batch, lengths, 1, run.config.train.accumulation_steps)
        for positions in parts:
            tokens += loader.load(positions, torch.device("cpu")).inputs["input_ids"].numel()
    return Sizes(rows, real_tokens, tokens)
