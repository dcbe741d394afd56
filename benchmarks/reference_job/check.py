"""Verifies that the programs do the same work: the same rows in each round, and the same losses on the same
batches.

Losses are compared step by step: fp32, dropout off, the same checkpoint to start from. The second loss and
those after it also depend on the optimizer, its settings and the gradients. A program that draws other rows,
pads wrongly or steps otherwise is caught.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness.rounds import Program, ProgramFailed
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
    # False for not-a-number
    same = all(difference <= tolerance for difference in differences.values())
    return {"losses": losses, "differences": differences, "tolerance": tolerance, "same_work": same}


def check_rows(answers: dict[str, dict], rows: dict[str, list[int]], lengths: np.ndarray) -> None:
    """Raise ProgramFailed unless each program has trained its `rows`, by their number and their tokens
    without padding.

    `answers` are those of one round by the name of the program, `lengths` (num_rows,) the tokens of each row.
    """
    for name, answer in answers.items():
        given = len(rows[name]), int(lengths[rows[name]].sum())
        trained = answer["rows"], answer["real_tokens"]
        if trained != given:
            raise ProgramFailed(
                f"all programs must train the same rows; {name} was given {given[0]:,} rows of {given[1]:,} "
                f"tokens, and trained {trained[0]:,} rows of {trained[1]:,} tokens; its time cannot be "
                "compared"
            )
