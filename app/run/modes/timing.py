"""The same job in every mode, each by its own launcher: time, rows per second while training, memory.
`run_mode` starts a run and watches its processes; `render` shows the timings."""

import json
import os
import re
import signal
import statistics
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
import yaml

from ...config.shipped import MODULE
from ...modes import load_mode
from .launching import child_environment, last_error

# Between two measurements of the processes' memory
SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Timing:
    """One row of the table: `minutes` of the whole command; `rows_per_second` while training, without
    evaluations; `memory_mib`, the most of the largest process; `accuracy` of the report, if any."""

    mode: str
    processes: int
    global_batch: int | None = None
    minutes: float | None = None
    rows_per_second: float | None = None
    speed_up: float | None = None
    memory_mib: float | None = None
    accuracy: float | None = None
    why: str = ""


def run_mode(mode: str, processes: int, settings: list[str], folder: Path, timeout: float) -> Timing:
    """Run a job in a mode, as run_<mode>.py does; return its row of the table, or why it failed."""
    arguments = [*settings, "--output.dir", str(folder)]
    command = load_mode(mode).launcher.command(["-m", f"{MODULE}.run", mode, *arguments], processes)
    log = folder.with_suffix(".log")
    started = time.monotonic()
    with log.open("w") as file:
        run = subprocess.Popen(
            command, env=child_environment(), stdout=file, stderr=file, start_new_session=True
        )
        memory = watch_memory(run, started + timeout)
    minutes = (time.monotonic() - started) / 60
    if run.returncode:
        why = last_error(log.read_text().splitlines())
        return Timing(mode, processes, why=why or f"it ended with status {run.returncode}")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    history = json.loads((folder / "run_history.json").read_text(encoding="utf-8"))
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    speeds = re.findall(
        r"step \d+/\d+ .* ([\d.]+) rows/s", (folder / "train.log").read_text(encoding="utf-8")
    )
    return Timing(
        mode,
        history["starts"][-1]["processes"],
        config["train"]["batch_size"],
        minutes,
        float(speeds[-1]),
        memory_mib=memory,
        accuracy=report.get("accuracy"),
    )


def watch_memory(run: subprocess.Popen, deadline: float) -> float:
    """Wait for a command to end; return the highest resident memory of any of its processes, in MiB. At the
    deadline all of them are killed, and the command's status says so."""
    highest = 0
    while run.poll() is None:
        with suppress(psutil.Error):
            for process in psutil.Process(run.pid).children(recursive=True) + [psutil.Process(run.pid)]:
                with suppress(psutil.Error):
                    highest = max(highest, process.memory_info().rss)
        if time.monotonic() > deadline:
            os.killpg(run.pid, signal.SIGKILL)
        time.sleep(SAMPLE_SECONDS)
    return highest / 2**20


def with_speed_up(timings: list[Timing]) -> list[Timing]:
    """Return the rows with their speed-up over single, by rows per second."""
    single = next((timing.rows_per_second for timing in timings if timing.mode == "single"), None)
    return [
        replace(timing, speed_up=timing.rows_per_second / single)
        if single and timing.rows_per_second
        else timing
        for timing in timings
    ]


def over_rounds(rounds: list[list[Timing]]) -> list[Timing]:
    """Return a row for each mode: medians over rounds, speed-ups within a round, and the highest memory. Of a
    mode that failed in a round, the failure."""
    rows = []
    for of_mode in zip(*map(with_speed_up, rounds), strict=True):
        failed = next((timing for timing in of_mode if timing.rows_per_second is None), None)
        if failed:
            rows.append(failed)
            continue
        columns = {
            key: [getattr(timing, key) for timing in of_mode]
            for key in ("minutes", "rows_per_second", "speed_up")
        }
        medians = {key: statistics.median(values) for key, values in columns.items() if None not in values}
        memory = max(timing.memory_mib for timing in of_mode)
        rows.append(replace(of_mode[-1], **medians, memory_mib=memory))
    return rows


def render(timings: list[Timing]) -> str:
    """Return the table as text."""
    import pandas as pd

    formats = {
        "minutes": ".2f",
        "rows_per_second": ".1f",
        "speed_up": ".2f",
        "memory_mib": ".0f",
        "accuracy": ".4f",
    }
    rows = []
    for timing in timings:
        values = asdict(timing)
        shown = {
            key: "-" if values[key] is None else format(values[key], style) for key, style in formats.items()
        }
        rows.append({**values, **shown, "global_batch": values["global_batch"] or "-"})
    names = {"global_batch": "global batch", "rows_per_second": "rows/s", "speed_up": "speed-up"}
    return pd.DataFrame(rows).rename(columns=names | {"memory_mib": "MiB a process"}).to_string(index=False)
