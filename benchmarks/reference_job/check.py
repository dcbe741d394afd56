"""Verifies that the programs do the same work: the same fixed batches must give the same losses, step by step.

fp32, dropout off, the same checkpoint to start from. The second loss and those after it also depend on the optimizer, its
settings and the gradients. A program that draws other rows, pads wrongly or steps otherwise is caught.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.rounds import Program
from benchmarks.reference_job import OURS
from benchmarks.reference_job.job import Job


def check_losses(
    names: list[str], job: Job, steps: int, folder: Path, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return the losses of `steps` steps of each program, one process after the other."""
    losses = {}
    for name in names:
        with Program(name, f"benchmarks.reference_job.{name}", job, folder) as program:
            losses[name] = program.run(steps, outcomes=True)["outcomes"]
        say(f"check, {name}: losses " + " ".join(f"{loss:.5f}" for loss in losses[name]))
    return losses


def compare_losses(losses: dict[str, list[float]], tolerance: float) -> dict:
    """Return each peer's largest difference to ours, and whether all are within `tolerance`."""
    ours = losses[OURS]
    differences = {
        name: max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
        for name, theirs in losses.items()
        if name != OURS
    }
    same = all(difference <= tolerance for difference in differences.values())  # False for not-a-number
    return {"losses": losses, "differences": differences, "tolerance": tolerance, "same_work": same}
