"""A series of runs in one folder, each in separate processes; finished runs stay, others resume."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from ..checkpoints.job import FREE_TO_RESUME, LENGTH, data_files, describe_changes, join_changes
from ..checkpoints.run_files import CHECKPOINTS, LOCK, REPORT, is_finished
from ..checkpoints.run_history import flat_settings
from ..checkpoints.training_state import drop_states
from ..config.command_line import load_config
from ..config.earlier_values import with_present_names
from ..config.schema import Config
from ..data.dataset import Dataset
from ..errors import InputError, TrainingError, say, show
from ..modes import load_mode
from ..modes.launch import launch_command
from ..modes.signals import Stopped
from ..program import MODULE
from ..runtime.disk import read_json, write_json, write_text
from ..tasks import TASK_CLASSES
from ..words import _, use_language
from .child_process import last_error, run_to_end

JOB = "job.json"
# These settings may change when a series continues. Unlike a run, a series cannot train for longer, and its
# vocabulary must have the same path.
FREE_TO_CONTINUE = FREE_TO_RESUME - {*LENGTH, "model.vocab_file"}


@dataclass(frozen=True)
class Series:
    """Runs of one job in `folder`. `description` says what they are (5 folds); `settings` are the command
    line's words that `config` was made of. With `overwrite`, a list of label issues that is there is written
    again, and runs of another job are moved to another folder."""

    folder: Path
    description: str
    mode: str
    processes: int
    settings: list[str]
    config: Config
    overwrite: bool = False

    def open(self, dataset: Dataset, **searched: str) -> None:
        """Make the folder; raises InputError unless it is empty, or holds runs of this very job: the same
        settings, and data files of the same content as those of the dataset. `searched` has the ranges of
        settings that differ between the runs."""
        job_file = self.folder / JOB
        job = {"kind": self.description}
        job |= flat_settings(self.config.to_dict())
        job |= data_files(dataset)
        job |= searched
        if job_file.is_file():
            recorded_job = read_json(job_file, dict, "copy the file back, or choose another output.dir")
            changes = describe_changes(with_present_names(recorded_job), job, FREE_TO_CONTINUE)
            if changes and not self.overwrite:
                raise InputError(
                    f"{self.folder} holds these runs with other settings or data: {join_changes(changes)}; "
                    "change them back, or choose another output.dir, or start again with --overwrite, which "
                    "moves these runs to another folder"
                )
            if changes:
                self._move_away()
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InputError(
                f"{self.folder} is not an empty folder, and holds no series of runs; choose another "
                "output.dir"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(job_file, job)

    def _move_away(self) -> None:
        """Give the folder of another job a new name, so that this one can have its name; nothing is deleted.
        Raises InputError where one of its runs is being trained."""
        for lock in self.folder.glob(f"*/{LOCK}"):
            try:
                with FileLock(lock, timeout=0):
                    pass
            except Timeout:
                raise InputError(
                    f"{lock.parent} is being trained, so its folder is not moved; wait for its end"
                ) from None
        number = 1
        while (old := self.folder.with_name(f"{self.folder.name}.old-{number}")).exists():
            number += 1
        self.folder.rename(old)
        say(f"the runs that were in {self.folder} are in {old} now")

    def run(self, name: str, settings: dict[str, Any]) -> Path:
        """Train a run with more `settings`, by their names, unless it is finished; return its folder. What
        the run prints goes to `<name>.log`. Raises TrainingError where it fails, and Stopped after SIGTERM
        or SIGINT, once the run has saved its state."""
        folder = self.folder / name
        log = self.folder / f"{name}.log"
        if (folder / LOCK).exists() and not is_finished(folder):
            say(f"{name}: waiting for its processes, where they were not killed with their series")
            with FileLock(folder / LOCK):
                pass
        if is_finished(folder):
            say(f"{name}: finished before")
            return folder
        say(f"{name}: training, its messages are in {log}")
        settings = settings | {"output.dir": str(folder), "output.resume": "auto"}
        program = ["-m", f"{MODULE}.run", self.mode, *self.settings, *as_arguments(settings)]
        command = launch_command(load_mode(self.mode).launcher, program, self.processes)
        with log.open("ab") as file:
            status = run_to_end(command, file)
        if not is_finished(folder):
            with log.open(encoding="utf-8", errors="replace") as lines:
                error = last_error(lines) or "it printed no error"
            raise TrainingError(
                f"{name} failed with status {status}: {error}; the whole output is in {log}. The same "
                "command continues where it stopped"
            )
        # A run of a series is never trained for longer, so its states are not needed any more
        drop_states(folder, keep=0)
        return folder

    def write(self, name: str, figures: dict, text: str) -> str:
        """Write name.txt and name.json; return the text, and where it is."""
        write_text(self.folder / f"{name}.txt", text + "\n")
        write_json(self.folder / f"{name}.json", figures)
        return "\n\n".join([text, _("Written into {folder}").format(folder=self.folder)])


def read_report(run: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a finished run of a series, which must have what is `wanted`, see `parse_json`."""
    remedy = f"move the folder {run} away, and the same command trains this run again"
    return read_json(run / REPORT, wanted, remedy)


def as_arguments(settings: dict[str, Any]) -> list[str]:
    """Return settings as arguments of the command line."""
    arguments = []
    for name, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value)
        arguments.append(f"--{name}={text}")
    return arguments


def run_series(
    description: str,
    mode: str,
    processes: int | None,
    settings: list[str],
    train: Callable[[Series], str],
    overwrite: bool = False,
) -> int:
    """Print what `train` returns of the series of a verb. `description` says what the runs are (5 folds);
    each trains in a mode with so many processes, see `plan_mode`. The folder is output.dir, else
    checkpoints/NAME-DESCRIPTION, where the same command finds what it did before. Return the exit status:
    that of `show`, or 128 + the signal that stopped it. Raises InputError for a task without labels, and for
    a mode that cannot run here."""
    config = load_config(settings)
    use_language(config.output.language)
    for note in config.notes:
        say(note)
    task = config.data.task
    if not TASK_CLASSES[task].has_labels:
        raise InputError(f"{description}: labels are needed, found data.task {task}; choose another one")
    num_processes, unavailable = plan_mode(mode, processes, config.train.device)
    if unavailable:
        raise InputError(f"--mode {mode}: {unavailable}")
    usual_folder = CHECKPOINTS / f"{config.output.name}-{description.replace(' ', '-')}"
    folder = Path(config.output.dir or usual_folder)
    series = Series(
        folder=folder,
        description=description,
        mode=mode,
        processes=num_processes,
        settings=settings,
        config=config,
        overwrite=overwrite,
    )
    try:
        text = train(series)
    except Stopped as stop:
        say(f"Stopped by {stop}; the same command continues.")
        return 128 + stop.number
    return show(f"{text}\n")


def plan_mode(name: str, processes: int | None, device: str) -> tuple[int, str]:
    """Return the number of processes of a mode, and why it cannot run here (empty where it can). A parallel
    mode has `processes`, else one for each accelerator of `device`, else 2. Raises InputError for an unknown
    mode."""
    mode = load_mode(name)
    num_devices = 0
    if device != "cpu" and ":" not in device:
        num_devices = torch.accelerator.device_count()
    if mode.launcher == "one":
        num_processes = 1
    else:
        num_processes = processes or num_devices or 2
    unavailable = mode.unavailable_reason() or ""
    if not unavailable and 0 < num_devices < num_processes:
        unavailable = f"{num_processes} processes need as many accelerators, this machine has {num_devices}"
    return num_processes, unavailable
