"""This project's `predict` with a folder as output: programs with the same folder share its parts, as the
processes of --nprocs do."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from app.commands.predict_bulk import BulkJob
from app.commands.predict_options import build_parser, parse
from app.prediction.open_model import ComputeOptions, open_model
from benchmarks.harness.meter import Meter, Sizes


@dataclass(frozen=True)
class PartsJob:
    """Classify the file `texts` of so many rows, with a model, into a new folder in `output` at each step."""

    checkpoint: str
    texts: str
    rows: int
    output: str
    device: str = "cpu"


def main(job: PartsJob, meter: Meter) -> None:
    """Write parts at each step until none is left, those of the other programs included."""
    # What is imported with the first model is not measured
    open_model(Path(job.checkpoint), ComputeOptions(job.device))
    meter.start(lambda steps: Sizes(job.rows * steps, 0, 0))
    for step in count():
        words = ["--checkpoint", job.checkpoint, "--device", job.device, "--input", job.texts]
        args = parse(build_parser("predict", ""), [*words, "--output", f"{job.output}/{step}/"])
        BulkJob(args).compute()
        meter.step_done()
