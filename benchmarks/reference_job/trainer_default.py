"""transformers' Trainer with its defaults: fp32, `DataCollatorWithPadding`, batches drawn at random."""

from benchmarks.harness.meter import Meter
from benchmarks.reference_job.job import Job
from benchmarks.reference_job.metered_trainer import train


def main(job: Job, meter: Meter) -> None:
    """Train until the meter has seen enough."""
    train(job, meter)
