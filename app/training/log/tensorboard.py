"""The curves of a run for TensorBoard."""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoints.run_folder import check_is_there
from ...errors import InputError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

logger = logging.getLogger(__name__)
TENSORBOARD = "tensorboard"  # in output.trackers, and the folder in the run folder
NOT_INSTALLED = "output.trackers tensorboard needs a library: pip install tensorboard, or leave it out"


def say_once(failed: threading.ExceptHookArgs) -> None:
    """Print what has ended a thread, but not an OSError of TensorBoard's, which `add` raises again."""
    of_tensorboard = type(failed.thread).__module__.startswith("tensorboard.")
    if not (of_tensorboard and isinstance(failed.exc_value, OSError)):
        threading.__excepthook__(failed)


class TensorBoard:
    """Writes event files into a folder; what they have after `first_step`, of a resumed run, is replaced."""

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        """Raises InputError where TensorBoard, or a library that it needs, is not installed. Imports it here,
        before the training: that takes about a second, which would count as time of a step."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(f"{NOT_INSTALLED} ({error})") from error
        self.writer_class = SummaryWriter
        self.folder = folder
        self.first_step = first_step

    @cached_property
    def writer(self) -> SummaryWriter:
        """The writer, opened with the first point: a run without any has no file."""
        # TensorBoard reads the files in the order of their names, which begin with the time; the clock may
        # have been set back.
        for number, path in enumerate(sorted(self.folder.glob("events.out.tfevents.*"))):
            path.rename(path.with_name(f"events.out.tfevents.{number:010d}.{path.name.split('.', 4)[4]}"))
        threading.excepthook = say_once
        return self.writer_class(str(self.folder), purge_step=self.first_step + 1)

    def add(self, group: str, values: dict[str, float], step: int) -> None:
        """Add a point to the curve `group/name` of each value; raises OSError without a run folder."""
        # TensorBoard would fail in its own thread
        check_is_there(self.folder.parent)
        for name, value in values.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

    def close(self) -> None:
        """Write what is left and close the file."""
        if "writer" in vars(self):
            try:
                check_is_there(self.folder.parent)
                self.writer.close()
            except OSError as error:
                logger.warning("TensorBoard's last points are lost: %s", error)
