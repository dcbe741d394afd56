"""This project: python run_single.py --config configs/weibo_emotion6.yaml, with the settings that are fastest
here."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from app.batching.plan import BatchPlan, micro_batches
from app.checkpoints.progress import RunProgress
from app.config.command_line import load_config
from app.modes.mode import Single
from app.training.log import start_logging
from app.training.open_run import open_run
from app.training.step import train_steps
from app.training.step_results import StepResult
from benchmarks.harness.meter import Meter, Sizes
from benchmarks.reference_job.job import Job


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
    with Single(config) as mode, open_run("single", mode) as run:
        components, settings = run.components, run.config.train
        loader, positions = components.loaders["train"], np.array(job.order())
        plan = GivenRows(len(positions), job.batch_size, job.seed, positions=positions)

        def after_step(state: RunProgress, step: StepResult) -> None:
            run.log_step(step)
            meter.step_done(lambda: step.passes.loss_sum / step.passes.divisor)

        def take_sizes(steps: int) -> Sizes:
            """Make the last global batches once more; the plan says which rows they had."""
            rows = real_tokens = tokens = 0
            for step in range(run.progress.step - steps, run.progress.step):
                batch = plan.batch(step)
                lengths = loader.lengths(batch)
                rows, real_tokens = rows + len(batch), real_tokens + int(lengths.sum())
                [parts] = micro_batches(batch, lengths, 1, settings.accumulation_steps)
                inputs = [loader.load(part, torch.device("cpu")).inputs["input_ids"] for part in parts]
                tokens += sum(part.numel() for part in inputs)
            return Sizes(rows, real_tokens, tokens)

        meter.start(take_sizes, precision=settings.precision)
        run.log.started = time.perf_counter()
        train_steps(mode, loader, plan, components.task.loss, run.progress, after_step)
