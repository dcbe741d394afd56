"""A series of runs in one folder, each in separate processes; finished runs stay, others resume."""

import argparse
import json
import os
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from filelock import FileLock

from ..checkpoints.run_folder import CHECKPOINTS, LOCK, flat_settings, is_finished
from ..checkpoints.training_state import FREE_TO_RESUME, LENGTH, changes, data_of, drop_states, listed_changes
from ..config.command_line import load_config
from ..config.schema import Config
from ..config.shipped import MODULE
from ..data.dataset import Dataset
from ..errors import InputError, TrainingError, say
from ..modes import MODES, load_mode
from ..modes.group import Stopped, launch_command, stop_at_once
from ..report.shown import page_environment
from ..runtime.disk import read_json, write_json, write_text
from ..tasks import TASK_CLASSES
from ..words import _, use_language

JOB = "job.json"
# These settings may change when a series goes on. It cannot train for longer, as a run can, and its
# vocabulary must have the same path
FREE = FREE_TO_RESUME - {*LENGTH, "model.vocab_file"}


@dataclass(frozen=True)
class Series:
    """Runs of one job in `folder`. `kind` says what they are (5 folds); `settings` are the command line's
    words that `config` was made of."""

    folder: Path
    kind: str
    mode: str
    processes: int
    settings: list[str]
    config: Config

    def open(self, dataset: Dataset, **searched: str) -> None:
        """Make the folder; raises InputError unless it is empty, or holds runs of this very job: the same
        settings, and data files of the same content as those of the dataset. `searched` has the ranges of
        settings that differ between the runs."""
        folder, record = self.folder, self.folder / JOB
        job = {"kind": self.kind} | flat_settings(self.config.to_dict()) | data_of(dataset) | searched
        if record.is_file():
            if changed := changes(read_json(record), job, FREE):
                raise InputError(
                    f"{folder} holds these runs with other settings or data: {listed_changes(changed)}; "
                    "change them back, or choose another output.dir"
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"{folder} is not an empty folder, and holds no series of runs; choose another output.dir"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(record, job)

    def run(self, name: str, more: dict[str, Any]) -> Path:
        """Train a run with `more` settings, by their names, unless it is finished; return its folder. What
        the run prints goes to `<name>.log`. Raises TrainingError where it fails, and Stopped after SIGTERM or
        SIGINT, once the run has saved its state."""
        folder, log = self.folder / name, self.folder / f"{name}.log"
        if (folder / LOCK).exists() and not is_finished(folder):
            say(f"{name}: waiting for its processes, where they were not killed with their series")
            with FileLock(folder / LOCK):
                pass
        if is_finished(folder):
            say(f"{name}: finished before")
            return folder
        say(f"{name}: training, its messages are in {log}")
        more = more | {"output.dir": str(folder), "output.resume": "auto"}
        program = ["-m", f"{MODULE}.run", self.mode, *self.settings, *as_words(more)]
        with log.open("ab") as file:
            command = launch_command(load_mode(self.mode).launcher, program, self.processes)
            status = run_to_end(command, file)
        if not is_finished(folder):
            with log.open(encoding="utf-8", errors="replace") as lines:
                error = last_error(lines) or "it printed no error"
            raise TrainingError(
                f"{name} failed with status {status}: {error}; the whole output is in {log}. The same "
                "command continues where it stopped"
            )
        # Nobody trains a run of a series for longer
        drop_states(folder, keep=0)
        return folder

    def write(self, name: str, figures: dict, text: str) -> str:
        """Write name.txt and name.json; return the text, and where it is."""
        write_text(self.folder / f"{name}.txt", text + "\n")
        write_json(self.folder / f"{name}.json", figures)
        return "\n\n".join([text, _("Written into {folder}").format(folder=self.folder)])


def as_words(settings: dict[str, Any]) -> list[str]:
    """Return settings as the command line has them."""
    return [f"--{name}={one if isinstance(one, str) else json.dumps(one)}" for name, one in settings.items()]


def run_series(
    kind: str, options: argparse.Namespace, settings: list[str], train: Callable[[Series], str]
) -> int:
    """Print what `train` returns of the series of a verb; return the exit status, 0, or 128 + the signal that
    stopped it. `kind` says what the runs are (5 folds), `options` has mode and processes. The folder is
    output.dir, else checkpoints/NAME-KIND, where the same command finds what it did before. Raises InputError
    for a task without labels, and for a mode that cannot run here."""
    config = load_config(settings)
    use_language(config.output.language)
    for note in config.notes:
        say(note)
    if not TASK_CLASSES[config.data.task].has_labels:
        raise InputError(f"{kind}: labels are needed, found data.task {config.data.task}; choose another one")
    processes, unavailable = plan_mode(options.mode, options.processes, config.train.device)
    if unavailable:
        raise InputError(f"--mode {options.mode}: {unavailable}")
    folder = Path(config.output.dir or CHECKPOINTS / f"{config.output.name}-{kind.replace(' ', '-')}")
    try:
        print(train(Series(folder, kind, options.mode, processes, settings, config)))  # noqa: T201
    except Stopped as stop:
        say(f"Stopped by {stop}; the same command continues.")
        return 128 + stop.number
    return 0


def plan_mode(name: str, processes: int | None, device: str) -> tuple[int, str]:
    """Return the processes of a mode (of a parallel one `processes`, else accelerators of `device`, or 2),
    and why it cannot run here, or nothing. Raises InputError for an unknown mode."""
    if name not in MODES:
        raise InputError(f"there is no mode {name} (known: {', '.join(sorted(MODES))})")
    mode = load_mode(name)
    devices = 0 if device == "cpu" or ":" in device else torch.accelerator.device_count()
    count = 1 if mode.launcher == "one" else processes or devices or 2
    too_few = f"{count} processes need as many accelerators, this machine has {devices}"
    return count, mode.unavailable_reason() or (too_few if 0 < devices < count else "")


def child_environment() -> dict[str, str]:
    """Return the environment of this process, changed so that `python -m app` runs this package in any
    folder. PYTHONSAFEPATH keeps the working folder, which may have an `app`, off the module path."""
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def last_error(lines: Iterable[str]) -> str | None:
    """Return the last line that names an error, shortened; None where there is none."""
    errors = [line.strip() for line in lines if "rror" in line]
    return errors[-1][:500] if errors else None


def run_to_end(command: list[str], output: IO) -> int:
    """Run a command to its end and return its status. A SIGTERM or SIGINT of this process is passed on to it,
    and raised as Stopped after the command has ended."""
    # In a session of its own, Ctrl-C reaches it only once, through us; a second one would end it at once
    options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "start_new_session": True}
    process = subprocess.Popen(command, env=child_environment(), **options)
    try:
        with stop_at_once():
            return process.wait()
    except Stopped as stop:
        process.send_signal(stop.number)
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.terminate()


def rendered(template: str, **values: Any) -> str:
    """Return the text of one of this room's templates."""
    environment = page_environment(Path(__file__).parent, autoescape=False)
    return environment.get_template(f"{template}.txt.jinja").render(**values).strip()
