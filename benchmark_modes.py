"""Time the same job in every mode that this machine can run, each started as its own users start it.

    python benchmark_modes.py
    python benchmark_modes.py --config configs/weibo_emotion6.yaml --train.max_steps 40 --processes 2
    python benchmark_modes.py --modes single ddp horovod --output modes.json --chart modes.png

Prints mode, processes, global batch, minutes of the whole command, rows per second while training, speed-up over single,
highest memory of a process, accuracy of the report. With --rounds the modes take turns, and the table has medians, with the
speed-up over single of the same round. Any setting of the trainer (--group.key) may follow.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from app.config.command_line import load_config
from app.errors import InputError


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this script, and the trainer's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, help="processes of the parallel modes (default: CUDA devices, or 2)")
    parser.add_argument("--modes", nargs="+", help="modes to time (default: all)")
    parser.add_argument("--rounds", type=int, default=1, help="times that each mode runs, in turns (default: 1)")
    parser.add_argument("--output", help="also write the table as JSON to this file")
    parser.add_argument("--chart", help="also draw a bar chart into this file (.png, .svg); needs matplotlib")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds that one mode may take (default: 7200)")
    return parser.parse_known_args(argv)


def main(argv: list[str]) -> int:
    """Time all modes; return the exit status: 1 if one failed."""
    options, settings = parse(argv)
    try:
        config = load_config(settings, "benchmark_modes.py")
        modes = choose_modes(options.modes)
        if options.rounds < 1:
            raise InputError(f"--rounds must be at least 1, found {options.rounds}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    import torch

    from app.strategies import load_strategy
    from benchmarks.modes import Timing, draw, over_rounds, render, run_mode

    devices = torch.cuda.device_count() if config.train.device in ("auto", "cuda") else 0

    def time_mode(mode: str, number: int, folder: str) -> Timing:
        strategy = load_strategy(mode)
        processes = 1 if strategy.one_process else options.processes or devices or 2
        if lacks := strategy.missing():
            return Timing(mode, processes, why=lacks)
        print(f"{number}/{options.rounds}: {mode}, {processes} process(es) ...", file=sys.stderr)
        return run_mode(mode, processes, settings, Path(folder) / mode, options.timeout)

    with tempfile.TemporaryDirectory() as folder:
        rounds = [[time_mode(mode, number, folder) for mode in modes] for number in range(1, options.rounds + 1)]
    timings = over_rounds(rounds)
    print(render(timings))
    machine = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "devices": devices,
    }
    if options.output:
        found = {"machine": machine, "command": argv, "modes": [asdict(timing) for timing in timings]}
        found["rounds"] = [[asdict(timing) for timing in timings] for timings in rounds]
        Path(options.output).write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if options.chart:
        draw(timings, options.chart, f"{config.output.name}, global batch {config.train.batch_size}")
    return (
        1
        if any(timing.rows_per_second is None and not load_strategy(timing.mode).missing() for timing in timings)
        else 0
    )


def choose_modes(wanted: list[str] | None) -> list[str]:
    """Return the modes to time, single first, because the others are compared with it."""
    from app.strategies import strategy_names

    unknown = set(wanted or ()) - set(strategy_names())
    if unknown:
        known = ", ".join(strategy_names())
        raise InputError(f"--modes: there is no mode {', '.join(sorted(unknown))} (known: {known})")
    return sorted(wanted or strategy_names(), key=lambda mode: (mode != "single", mode))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
