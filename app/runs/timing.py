"""The same job in every mode, each by its own launcher: time, rows per second while training, memory."""

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

from ..config.shipped import MODULE
from .series import child_environment, last_error, mode_command

SAMPLE_SECONDS = 0.2  # between two measurements of the processes' memory
FORMATS = {"minutes": ".2f", "rows_per_second": ".1f", "speed_up": ".2f"}
FORMATS |= {"memory_mib": ".0f", "accuracy": ".4f"}
NAMES = {"rows_per_second": "rows/s", "speed_up": "speed-up", "memory_mib": "MiB a process"}


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
    """Run a job in a mode, as run_<mode>.py does; return its row of the table, or why it failed. At the
    `timeout` in seconds all its processes are killed."""
    command = mode_command(mode, processes, f"{MODULE}.run", mode, *settings, "--output.dir", str(folder))
    log, started, highest = folder.with_suffix(".log"), time.monotonic(), 0
    with log.open("w") as file:
        options = {"env": child_environment(), "stdout": file, "stderr": file, "start_new_session": True}
        run = subprocess.Popen(command, **options)
        while run.poll() is None:
            with suppress(psutil.Error):
                for process in psutil.Process(run.pid).children(recursive=True) + [psutil.Process(run.pid)]:
                    with suppress(psutil.Error):
                        highest = max(highest, process.memory_info().rss)
            if time.monotonic() > started + timeout:
                os.killpg(run.pid, signal.SIGKILL)
            time.sleep(SAMPLE_SECONDS)
    minutes = (time.monotonic() - started) / 60
    if run.returncode:
        why = last_error(log.read_text().splitlines())
        return Timing(mode, processes, why=why or f"it ended with status {run.returncode}")
    names = ("train.log", "run_history.json", "config.yaml", "report.json")
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    speeds = re.findall(r"step \d+/\d+ .* ([\d.]+) rows/s", texts["train.log"])
    return Timing(
        mode,
        json.loads(texts["run_history.json"])["starts"][-1]["processes"],
        yaml.safe_load(texts["config.yaml"])["train"]["batch_size"],
        minutes,
        float(speeds[-1]),
        memory_mib=highest / 2**20,
        accuracy=json.loads(texts["report.json"]).get("accuracy"),
    )


def over_rounds(rounds: list[list[Timing]]) -> list[Timing]:
    """Return a row for each mode: medians over rounds, speed-ups over single within a round, and the highest
    memory. Of a mode that failed in a round, the failure."""
    rows = []
    singles = [
        next((one.rows_per_second for one in of_round if one.mode == "single"), None) for of_round in rounds
    ]
    for of_mode in zip(*rounds, strict=True):
        row = next((one for one in of_mode if one.rows_per_second is None), None)
        if row is None:
            ratios = [
                one.rows_per_second / single
                for one, single in zip(of_mode, singles, strict=True)
                if single is not None
            ]
            row = replace(
                of_mode[-1],
                minutes=statistics.median(one.minutes for one in of_mode),
                rows_per_second=statistics.median(one.rows_per_second for one in of_mode),
                speed_up=statistics.median(ratios) if len(ratios) == len(rounds) else None,
                memory_mib=max(one.memory_mib for one in of_mode),
            )
        rows.append(row)
    return rows


def render(timings: list[Timing]) -> str:
    """Return the table as text."""
    import pandas as pd

    rows = [asdict(timing) for timing in timings]
    for row in rows:
        shown = {name: format(row[name], style) for name, style in FORMATS.items() if row[name] is not None}
        row |= dict.fromkeys(FORMATS, "-") | shown | {"global_batch": row["global_batch"] or "-"}
    return pd.DataFrame(rows).rename(columns=NAMES | {"global_batch": "global batch"}).to_string(index=False)
