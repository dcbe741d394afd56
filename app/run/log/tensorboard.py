"""The curves of a run for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from app.errors import InputError


class TensorBoard:
    """Writes event files into a folder; what they have after `first_step`, from which the run resumes, is replaced."""

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        """Raises InputError where TensorBoard is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(
                "output.tensorboard needs a library: pip install tensorboard, or --output.tensorboard false"
            ) from error
        # TensorBoard reads the files in the order of their names, which begin with the time; the clock may have been set back.
        for number, path in enumerate(sorted(folder.glob("events.out.tfevents.*"))):
            path.rename(path.with_name(f"events.out.tfevents.{number:010d}.{path.name.split('.', 4)[4]}"))
        self.writer = SummaryWriter(str(folder), purge_step=first_step + 1)

    def add(self, group: str, values: dict[str, float], step: int) -> None:
        """Add a point at `step` to the curve `group/name` of each value."""
        for name, value in values.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

    def close(self) -> None:
        """Write what is left and close the file."""
        self.writer.close()
