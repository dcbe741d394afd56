"""A series of runs in one folder, each in separate processes; finished runs stay, others resume."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from ..checkpoints.job import FILES, FREE_TO_RESUME, LENGTH, changes, flat_settings, listed_changes
from ..checkpoints.run_folder import LOCK, is_finished
from ..checkpoints.training_state import drop_states
from ..config.schema import Config
from ..config.shipped import MODULE
from ..data.cache import content_key, file_digest
from ..data.dataset import with_sample
from ..errors import InputError, TrainingError
from ..modes import load_mode
from ..report.text import page_environment
from ..runtime.disk import write_json, write_text
from ..runtime.signals import StopAtOnce, Stopped
from ..text_table import text_table

JOB = "job.json"
POLL_SECONDS = 0.5
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

    def open(self, searched: dict[str, str] | None = None) -> None:
        """Make the folder; raises InputError unless it is empty, or holds runs of this very job: the same
        settings, and data files of the same content. `searched` has the ranges of settings that differ
        between the runs."""
        folder, record = self.folder, self.folder / JOB
        job, data = {"kind": self.kind} | flat_settings(self.config), with_sample(self.config.data)
        for name in (*FILES, "relabel"):
            path = getattr(data, name)
            content = path and content_key(file_digest(Path(path)))
            job[f"data.{name}"] = path and {"path": str(path), "content": content}
        job |= searched or {}
        if record.is_file():
            if changed := changes(json.loads(record.read_text(encoding="utf-8")), job, FREE):
                raise InputError(
                    f"{folder} holds these runs with other settings or data: {listed_changes(changed)}; "
                    "change them back, or choose another output.dir"
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"{folder} is not an empty folder, and holds no series of runs; choose another output.dir"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(record, job)
        except OSError as error:
            raise InputError(f"output.dir: {folder} cannot be written: {error.strerror}") from error

    def run(self, name: str, words: list[str], is_hopeless: Callable[[], bool] = lambda: False) -> None:
        """Train a run with `words` added to the settings until it is finished, or until `is_hopeless()`,
        which is called twice a second. A finished run is not trained again. What the run prints goes to
        `<name>.log`. Raises TrainingError where it fails, and Stopped after SIGTERM or SIGINT, once the run
        has saved its state."""
        folder, log = self.folder / name, self.folder / f"{name}.log"
        if (folder / LOCK).exists() and not is_finished(folder):
            say(f"{name}: waiting for its processes, where they were not killed with their series")
            with FileLock(folder / LOCK):
                pass
        if is_finished(folder):
            say(f"{name}: finished before")
            return
        say(f"{name}: training, its messages are in {log}")
        words = [*self.settings, *words, "--output.dir", str(folder), "--output.resume", "auto"]
        with log.open("ab") as file:
            command = mode_command(self.mode, self.processes, f"{MODULE}.run", self.mode, *words)
            status = run_to_end(command, file, is_hopeless)
        if is_finished(folder):
            # Nobody trains a run of a series for longer
            drop_states(folder, keep=0)
        elif not is_hopeless():
            with log.open(encoding="utf-8", errors="replace") as lines:
                error = last_error(lines) or "it printed no error"
            raise TrainingError(
                f"{name} failed with status {status}: {error}; the whole output is in {log}. The same "
                "command continues where it stopped"
            )

    def write(self, name: str, figures: dict, text: str) -> None:
        """Write name.txt and name.json."""
        write_text(self.folder / f"{name}.txt", text + "\n")
        write_json(self.folder / f"{name}.json", figures)


def mode_command(mode: str, processes: int, module: str, *words: str) -> list[str]:
    """Return the command that starts `python -m MODULE WORDS` in a mode, by its own launcher."""
    return load_mode(mode).launcher.command(["-m", module, *words], processes)


def child_environment() -> dict[str, str]:
    """Return the environment of this process, changed so that `python -m app` runs this package in any
    folder. PYTHONSAFEPATH keeps the working folder off the module path: a folder `app` in it would be run
    instead."""
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def last_error(lines: Iterable[str]) -> str | None:
    """Return the last line that names an error, shortened; None where there is none."""
    errors = [line.strip() for line in lines if "rror" in line]
    return errors[-1][:500] if errors else None


def run_to_end(command: list[str], output: IO, is_hopeless: Callable[[], bool] = lambda: False) -> int:
    """Run a command to its end and return its status; once `is_hopeless()`, the command gets SIGTERM. A
    SIGTERM or SIGINT of this process is passed on to it, and raised as Stopped after the command has
    ended."""
    # In a session of its own, Ctrl-C reaches it only once, through us; a second one would end it at once
    options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "start_new_session": True}
    process = subprocess.Popen(command, env=child_environment(), **options)
    try:
        is_terminated = False
        with StopAtOnce():
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                if not is_terminated and is_hopeless():
                    process.terminate()
                    is_terminated = True
    except Stopped as stop:
        process.send_signal(stop.number)
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.terminate()
    return process.returncode


def rendered(template: str, **values: Any) -> str:
    """Return the text of one of this room's templates."""
    environment = page_environment(Path(__file__).parent, autoescape=False)
    return environment.get_template(f"{template}.txt.jinja").render(**values).strip()


def table(heading: list[str], rows: dict[str, list]) -> str:
    """Return numbers and texts, a row for each name, as a table."""
    kinds = {float: "{:.4f}".format, int: "{:,}".format, str: str}
    cells = [[name, *(kinds[type(one)](one) for one in values)] for name, values in rows.items()]
    return text_table(["", *heading], cells)


def say(text: str) -> None:
    """Print a line for people on standard error."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201
