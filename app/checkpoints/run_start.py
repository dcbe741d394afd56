"""The start of a run in its folder: a new run, or one that resumes."""

from pathlib import Path
from typing import Any

from filelock import FileLock

from ..config.schema import Config
from ..data.dataset import Dataset
from .resume import state_to_resume
from .run_files import put_reports_aside
from .run_folder import open_run_folder
from .run_history import write_start
from .training_state import TrainingState


class RunStart:
    """Opens the folder of a run, finds the state from which it resumes, and writes that the run starts.

    Each rank has one, but only rank 0 opens its own: the others have no `folder` and no `state`.
    """

    def __init__(self, config: Config, dataset: Dataset, job: dict, description: dict[str, Any]) -> None:
        """`job` is what the run trains on, with its number of steps; `description` is that of
        `describe_start`."""
        self.config = config
        self.dataset = dataset
        self.job = job
        self.description = description
        self.folder: Path | None = None
        self.state: TrainingState | None = None  # from which the run resumes
        self.lock: FileLock | None = None
        self.is_recorded = False

    def open(self) -> None:
        """Open and lock the run folder. A new run is recorded at once; one that resumes loads its state, and
        is recorded before its first write. Raises InputError where the folder or its run is of no use."""
        opened = open_run_folder(self.config.output)
        self.lock = opened.lock
        self.folder = opened.path
        if opened.is_resumed:
            self.state = state_to_resume(self.folder, self.job)
        else:
            self.record()

    def record(self) -> None:
        """Write that the run starts or resumes; after the first call nothing is left to do."""
        if self.is_recorded:
            return
        self.is_recorded = True
        if self.state is None:
            write_start(self.folder, self.config, self.description, self.dataset)
            return
        step = self.state.progress.step
        if self.state.job["steps"] != self.job["steps"]:
            # It trains for longer: from here on it is not finished
            put_reports_aside(self.folder, step)
        write_start(self.folder, self.config, self.description, self.dataset, step)

    def close(self) -> None:
        """Let other runs have the folder."""
        if self.lock is not None:
            self.lock.release()
