"""Errors of files that cannot be written: what is kept, and what to do."""

from __future__ import annotations

from pathlib import Path

from ..errors import TrainingError
from ..runtime.disk import is_full
from .run_folder import saved_states


def cannot_write(what: str, error: Exception, folder: Path) -> TrainingError:
    """Return the error of a file that could not be written, with the state to resume from and the remedy."""
    states = saved_states(folder)
    kept = (
        f"the training state of step {int(states[0].name[5:])} is kept"
        if states
        else "there is no training state yet"
    )
    remedy = "free space on the disk" if is_full(error) else "make the folder writable"
    return TrainingError(
        f"{what} cannot be written into {folder}: {error}; {kept}; {remedy} and resume with --resume auto"
    )
