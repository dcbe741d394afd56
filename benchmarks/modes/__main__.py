"""Time the same job in every mode that this machine can run, each started by its own launcher.

python -m benchmarks.modes --rounds 3
python -m benchmarks.modes --config configs/weibo_emotion6.yaml --train.max_steps 40 --processes 2
python -m benchmarks.modes --modes single ddp horovod --output modes.json

Prints mode, processes, global batch, minutes of the whole command, rows per second while training, speed-up
over single, highest memory of a process, accuracy of the report. With --rounds the modes take turns, and the
table has medians, with the speed-up over single of the same round. Any setting of the trainer (--group.key)
may follow.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import yaml

from app.commands.exit_status import say
from app.commands.mode_options import plan_modes
from app.config.command_line import load_config
from app.runs.series import child_environment, last_error, mode_command
from benchmarks.harness.command import POSITIVE, command_parser, run_benchmark

SAMPLE_SECONDS = 0.2  # between two measurements of the processes' memory
TIMEOUT_SECONDS = 7200  # for one run
FIGURES = ["minutes", "rows_per_second", "memory_mib", "accuracy"]
FORMATS = {"minutes": "{:.2f}", "rows/s": "{:.1f}", "speed-up": "{:.2f}", "MiB a process": "{:.0f}"}
NAMES = {"rows_per_second": "rows/s", "speed_up": "speed-up", "memory_mib": "MiB a process"}


def main(argv: list[str] | None = None) -> int:
    """Time the modes that the command line asks for, and print the table; return the exit status."""
    add = (parser := command_parser("modes", __doc__)).add_argument
    add("--modes", nargs="+", metavar="MODE", help="modes to run (default: all)")
    add("--processes", type=int, help="processes of the parallel modes (default: accelerators, or 2)")
    rounds = "times that each mode runs, in turns (default: 1)"
    add("--rounds", type=POSITIVE, default=1, help=rounds)
    add("--config", metavar="FILE", help="the job (default: that of run_single.py)")
    return run_benchmark(parser, measure, argv)


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Time each mode in turns; return whether all that this machine can run have run."""
    settings = [*(["--config", options.config] if options.config else []), *options.settings]
    modes = plan_modes(options.modes, options.processes, load_config(settings).train.device)
    runs = []
    for turn in range(1, options.rounds + 1):
        for mode in modes:
            run = {"why": mode.unavailable}
            if not mode.unavailable:
                say(f"{turn}/{options.rounds}: {mode.name}, {mode.processes} process(es) ...")
                run = run_mode(mode.name, mode.processes, settings, folder / f"{mode.name}-{turn}")
            runs.append({"mode": mode.name, "processes": mode.processes, "round": turn} | run)
    table = over_rounds(runs)
    print(render(table))
    report |= {"modes": json.loads(table.to_json(orient="records")), "runs": runs}
    unavailable = [mode.name for mode in modes if mode.unavailable]
    return all("rows_per_second" in run for run in runs if run["mode"] not in unavailable)


def run_mode(mode: str, processes: int, settings: list[str], folder: Path) -> dict[str, Any]:
    """Run a job in a mode, as run_<mode>.py does; return `global_batch`, and `minutes` of the whole command,
    `rows_per_second` while training, `memory_mib`, the most of the largest process, and the `accuracy` of the
    report; or `why` it failed. At the timeout all its processes are killed."""
    command = mode_command(mode, processes, "app.run", mode, *settings, "--output.dir", str(folder))
    log, started, highest = folder.with_suffix(".log"), time.monotonic(), 0
    with log.open("w") as file:
        options = {"env": child_environment(), "stdout": file, "stderr": file, "start_new_session": True}
        run = subprocess.Popen(command, **options)
        while run.poll() is None:
            with suppress(psutil.Error):
                for process in [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)]:
                    with suppress(psutil.Error):
                        highest = max(highest, process.memory_info().rss)
            if time.monotonic() > started + TIMEOUT_SECONDS:
                os.killpg(run.pid, signal.SIGKILL)
            time.sleep(SAMPLE_SECONDS)
    minutes = (time.monotonic() - started) / 60
    if run.returncode:
        return {"why": last_error(log.read_text().splitlines()) or f"it ended with status {run.returncode}"}
    names = ("train.log", "config.yaml", "report.json")
    log_text, config, report = ((folder / name).read_text(encoding="utf-8") for name in names)
    return {
        "global_batch": yaml.safe_load(config)["train"]["batch_size"],
        "minutes": minutes,
        "rows_per_second": float(re.findall(r"step \d+/\d+ .* ([\d.]+) rows/s", log_text)[-1]),
        "memory_mib": highest / 2**20,
        "accuracy": json.loads(report).get("accuracy"),
    }


def over_rounds(runs: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for each mode of runs, which have `mode`, `processes` and `round`: medians over rounds,
    speed-ups over single within a round, and the highest memory. Of a mode that failed in a round, why."""
    columns = ["mode", "processes", "global_batch", "minutes", "rows_per_second", "speed_up"]
    table = pd.DataFrame(runs).reindex(columns=[*columns, "memory_mib", "accuracy", "why", "round"])
    single = table[table["mode"] == "single"].set_index("round")["rows_per_second"]
    table["speed_up"] = table["rows_per_second"] / table["round"].map(single)
    kept = dict.fromkeys(("processes", "global_batch", "accuracy"), "last")
    medians = dict.fromkeys(("minutes", "rows_per_second", "speed_up"), "median")
    modes = table.groupby("mode", sort=False).agg({**kept, **medians, "memory_mib": "max", "why": "last"})
    modes.loc[modes["why"].notna(), [*FIGURES, "speed_up"]] = float("nan")
    return modes.reset_index()[[*columns, "memory_mib", "accuracy", "why"]]


def render(table: pd.DataFrame) -> str:
    """Return the table as text."""
    shown = table.rename(columns=NAMES | {"global_batch": "global batch"})
    for name, style in (FORMATS | {"global batch": "{:.0f}", "accuracy": "{:.4f}"}).items():
        shown[name] = ["-" if pd.isna(value) else style.format(value) for value in shown[name]]
    shown["why"] = ["" if pd.isna(why) else why for why in shown["why"]]
    return shown.to_string(index=False)


if __name__ == "__main__":
    sys.exit(main())
