"""A series of runs in one folder, each in separate processes; finished runs stay, others resume."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ..checkpoints.job import FILES, FREE_TO_RESUME, LENGTH, changes, flat_settings, listed_changes
from ..checkpoints.run_folder import CHECKPOINTS, LOCK, is_finished
from ..checkpoints.training_state import drop_states
from ..config.schema import Config
from ..config.shipped import MODULE
from ..data.cache import content_key, file_digest
from ..data.dataset import with_sample
from ..errors import InputError, TrainingError
from ..modes import load_mode
from ..runtime.disk import write_json, write_text

JOB = "job.json"
POLL_SECONDS = 0.5
# A series starts over for another length, and compares the vocabulary by its path
FREE = FREE_TO_RESUME - {*LENGTH, "model.vocab_file"}


@dataclass(frozen=True)
class Series:
    """Runs of one job in `folder`; `kind` is what they are (5 folds), `settings` the command line's words."""

    folder: Path
    kind: str
    mode: str
    processes: int
    settings: list[str]

    def path(self, name: str) -> Path:
        """Return the run folder of one run."""
        return self.folder / name

    def run(self, name: str, words: list[str], is_hopeless: Callable[[], bool] | None = None) -> bool:
        """Train a run with `words` added to the settings, unless it is finished; raises TrainingError.

        Return whether it has finished; False where `is_hopeless`, asked about twice a second, has stopped it.
        What it prints goes to `<name>.log`. SIGTERM and SIGINT are passed on; the run then saves its state
        and ends, and so does this process, with Stopped.
        """
        folder = self.path(name)
        wait_for_orphan(folder)
        if is_finished(folder):
            say(f"{name}: finished before")
            return True
        log = folder.with_name(f"{name}.log")
        say(f"{name}: training, its messages are in {log}")
        ends = ["--output.dir", str(folder), "--output.resume", "auto"]
        command = mode_command(
            self.mode, self.processes, f"{MODULE}.run", self.mode, *self.settings, *words, *ends
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            status, is_stopped = run_to_end(command, file, is_hopeless)
        if is_finished(folder):
            # Nobody trains a run of a series for longer
            drop_states(folder, keep=0)
            return True
        if is_stopped:
            return False
        with log.open(encoding="utf-8", errors="replace") as lines:
            error = last_error(lines) or "it printed no error"
        raise TrainingError(
            f"{name} failed with status {status}: {error}; the whole output is in {log}. The same command "
            "continues where it stopped"
        )


def mode_command(mode: str, processes: int, module: str, *words: str) -> list[str]:
    """Return the command that starts `python -m MODULE WORDS` in a mode, by its own launcher."""
    return load_mode(mode).launcher.command(["-m", module, *words], processes)


def child_environment() -> dict[str, str]:
    """Return the environment of this process, so changed that `python -m app` is this package in any folder.
    PYTHONSAFEPATH keeps the working folder off the module path: a folder `app` in it would be run instead."""
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def last_error(lines: Iterable[str]) -> str | None:
    """Return the last line that names an error, shortened; None where there is none."""
    errors = [line.strip() for line in lines if "rror" in line]
    return errors[-1][:500] if errors else None


def wait_for_orphan(folder: Path) -> None:
    """Wait until a run has ended whose series was killed: it still trains in its folder."""
    if not (folder / LOCK).exists():
        return
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"{folder.name}: waiting for its processes, which were not killed with their series")
        lock.acquire()
    lock.release()


def run_to_end(command: list[str], output, is_hopeless: Callable[[], bool] | None = None) -> tuple[int, bool]:
    """Run a command to its end; return its status, and whether `is_hopeless` has stopped it. Raises Stopped
    once it has ended after SIGTERM or SIGINT to this process."""
    from ..runtime.signals import SIGNALS, Stopped

    received: list[int] = []
    process: subprocess.Popen | None = None
    is_stopped = False

    def pass_on(number: int, frame: object = None) -> None:
        received.append(number)
        if process is not None:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        # Its own session: Ctrl-C in a terminal reaches it once, by us, and not a second time, which would end
        # it at once.
        options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output, "start_new_session": True}
        process = subprocess.Popen(command, env=child_environment(), **options)
        if received:
            process.send_signal(received[0])
        while is_hopeless and not received and not is_stopped and process.poll() is None:
            time.sleep(POLL_SECONDS)
            if is_hopeless():
                process.terminate()
                is_stopped = True
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process is not None and process.poll() is None:
            process.terminate()
    if received:
        raise Stopped(received[0])
    return status, is_stopped


def say(text: str) -> None:
    """Print a line for people on standard error."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def write_figures(folder: Path, name: str, figures: dict, text: str) -> None:
    """Write name.txt and name.json."""
    write_text(folder / f"{name}.txt", text + "\n")
    write_json(folder / f"{name}.json", figures)


def default_folder(config: Config, kind: str) -> Path:
    """Return output.dir, or the folder in which the same command finds what it did before."""
    if config.output.dir:
        return Path(config.output.dir)
    return CHECKPOINTS / f"{config.output.name}-{kind.replace(' ', '-')}"


def open_series(series: Series, config: Config, searched: dict[str, str] | None = None) -> None:
    """Make the folder of a series; raises InputError unless it is empty, or holds runs of this very job: the
    same settings, and data files of the same content. `searched` has settings that differ between the runs,
    each with the range of its values."""
    settings, data = flat_settings(config), with_sample(config.data)
    for name in (*FILES, "relabel"):
        path = getattr(data, name)
        content = path and content_key(file_digest(Path(path)))
        settings[f"data.{name}"] = path and {"path": str(path), "content": content}
    job = {"kind": series.kind, "settings": settings | (searched or {})}
    folder, record = series.folder, series.folder / JOB
    if record.is_file():
        saved = json.loads(record.read_text(encoding="utf-8"))
        changed = changes(saved["settings"], job["settings"], FREE)
        if saved["kind"] != series.kind:
            changed = [f"it was {saved['kind']} and is {series.kind}"]
        if changed:
            raise InputError(
                f"{folder} holds these runs with other settings or data: {listed_changes(changed)}; change "
                "them back, or choose another output.dir"
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
