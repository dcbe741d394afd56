"""Verify that all modes train the same model, or that a device computes what the CPU computes.

    python -m app verify
    python -m app verify --config configs/weibo_emotion6.yaml --steps 20
    python -m app verify --modes ddp fsdp --processes 3 --output verify.json
    python -m app verify --precision bf16
    python -m app verify --device npu

Each mode that this machine can run trains the same steps with dropout off, in real processes; losses, the
last gradients, weights and logits are compared with those of one process. All is computed in float64, where
rounding is near 1e-15 and a relative difference of up to 1e-9 passes. In other precisions, and for DeepSpeed,
which has no float64, one process also trains with the rows added up in another order; a mode may differ 10
times as much as this control. Exit status 1 if any mode fails. Any setting of the trainer (--group.key) may
follow.

With --device one process trains the steps on the device and on the CPU, in fp32, and the same numbers are
compared, with the control on the CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..config.schema import Config
from ..config.shipped import MODULE
from ..errors import InputError
from ..prediction.output import check_output
from .mode_options import PlannedMode, modes_parser, plan_modes
from .parser import at_least, number

if TYPE_CHECKING:
    # Imports torch, which --help does without
    from ..runs.verify import Comparison

PRECISIONS = ("float64", "fp32", "bf16", "fp16")
TABLE_NOTE = """
Differences to one process in the same precision, relative (L2 norms). In float64 up to 1e-9 passes;
else up to 10 times the control: the difference of one process that adds the same rows up in another order
(at least 1e-6).
"""


def run(argv: list[str], program: str) -> int:
    """Verify all modes or a device, or as a worker train in one of them; return the exit status."""
    parser = modes_parser(program, __doc__, timeout=3600)
    add, steps = parser.add_argument, "optimizer steps of each mode (default: 3)"
    add("--steps", type=number(int, at_least(1)), default=3, help=steps)
    precision = "precision of all modes (default: float64, and fp32 for modes that do not have it)"
    add("--precision", choices=PRECISIONS, default="float64", help=precision)
    add("--device", help="compare this device with the CPU: cuda, npu, xpu, mps or cuda:1, ...")
    # A worker has these: its mode, its processes, what it trains, and the folder for its results.
    add("--worker", help=argparse.SUPPRESS)
    add("--nprocs", type=int, help=argparse.SUPPRESS)
    add("--trainings", nargs="+", help=argparse.SUPPRESS)
    add("--folder", help=argparse.SUPPRESS)
    options, settings = parser.parse_known_args(argv)
    config = load_config(settings)
    if options.worker:
        from ..modes import load_mode
        from ..runs.verify import run_trainings

        arguments = (config, options.worker, options.steps, options.trainings, options.folder)
        return load_mode(options.worker).launcher.launch(run_trainings, arguments, options.nprocs)
    if options.output:
        check_output(options.output, None)
    rows = verify_device(options, settings) if options.device else verify_modes(config, options, settings)
    print(render(rows))
    if options.output:
        table = json.dumps([asdict(row) for row in rows], indent=2)
        Path(options.output).write_text(f"{table}\n", encoding="utf-8")
    return 1 if any(row.verdict == "FAIL" for row in rows) else 0


def verify_modes(config: Config, options: argparse.Namespace, settings: list[str]) -> list[Comparison]:
    """Run every mode and compare it with one process; raises InputError where the job does not run in one."""
    from ..modes import load_mode
    from ..runs.verify import Comparison
    from ..runtime.devices import choose_device, computes_float64

    planned = plan_modes(options.modes and ["single", *options.modes], options.processes, config.train.device)
    device, precisions, unavailable = choose_device(config.train.device), {}, {}
    for one in planned:
        mode, precision = load_mode(one.name), options.precision
        if precision == "float64" and not (mode.has_float64 and computes_float64(device)):
            precision = "fp32"
        precisions[one.name] = precision
        unavailable[one.name] = one.unavailable or mode.refuses(precision, device)
    runnable = {name for name, reason in unavailable.items() if not reason}
    model = config.model.name or f"{config.model.architecture} with random weights"
    print(
        f"Verifying that {len(runnable)} modes train the same model: {options.steps} steps of {model} on "
        f"{config.data.train or 'the sample set'}, dropout off, in {options.precision}",
        flush=True,
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for one in planned:
            precision = precisions[one.name]
            if reason := unavailable[one.name]:
                row = Comparison(one.name, one.processes, verdict="not run", reason=reason)
            elif one.name == "single":
                train_references({precisions[name] for name in runnable}, folder, options, settings)
                row = Comparison(one.name, one.processes, verdict="reference")
            else:
                row = train_and_compare(one, precision, folder, folder, options, settings)
            rows.append(row)
    return rows


def verify_device(options: argparse.Namespace, settings: list[str]) -> list[Comparison]:
    """Train in one process on the CPU and on a device, and compare both; raises InputError where the device
    is not there, or the job does not run on the CPU."""
    from ..runtime.devices import choose_device

    device = str(choose_device(options.device))
    with tempfile.TemporaryDirectory() as on_cpu, tempfile.TemporaryDirectory() as on_device:
        train_references({"fp32"}, on_cpu, options, [*settings, "--train.device", "cpu"])
        settings = [*settings, "--train.device", device]
        row = train_and_compare(PlannedMode("single", 1, None), "fp32", on_cpu, on_device, options, settings)
    return [replace(row, mode=device)]


def train_references(
    precisions: set[str], folder: str, options: argparse.Namespace, settings: list[str]
) -> None:
    """Train in one process in each precision, below float64 with a control; raises InputError if it fails."""
    from ..runs.verify import CONTROL

    controls = [f"{precision}{CONTROL}" for precision in precisions if precision != "float64"]
    trainings = sorted([*precisions, *controls])
    if failure := train_apart(PlannedMode("single", 1, None), trainings, folder, options, settings):
        raise InputError(f"the job does not run in one process: {failure}")


def train_and_compare(
    mode: PlannedMode,
    precision: str,
    references: str,
    folder: str,
    options: argparse.Namespace,
    settings: list[str],
) -> Comparison:
    """Train in the processes of a mode, into `folder`, and compare the results with the references."""
    from ..runs.verify import CONTROL, Comparison, compare, result_file

    if failure := train_apart(mode, [precision], folder, options, settings):
        return Comparison(mode.name, mode.processes, precision, reason=failure)
    reference = result_file(Path(references), "single", precision)
    control = result_file(Path(references), "single", f"{precision}{CONTROL}")
    result = result_file(Path(folder), mode.name, precision)
    return compare(mode.name, precision, reference, result, control if control.exists() else None)


def train_apart(
    mode: PlannedMode, trainings: list[str], folder: str, options: argparse.Namespace, settings: list[str]
) -> str | None:
    """Train in a mode's own processes, with a line of progress; return why that failed, or None."""
    from ..runs.series import child_environment, last_error, mode_command

    processes = "1 process" if mode.processes == 1 else f"{mode.processes} processes"
    print(f"{mode.name}, {processes}, {', '.join(trainings)} ...", end=" ", file=sys.stderr, flush=True)
    worker = ["--worker", mode.name, "--steps", str(options.steps), "--folder", folder]
    words = ["verify", *worker, "--trainings", *trainings, *settings]
    command, started = mode_command(mode.name, mode.processes, MODULE, *words), time.monotonic()
    run_options = {"capture_output": True, "text": True, "timeout": options.timeout, "check": False}
    try:
        done = subprocess.run(command, env=child_environment(), **run_options)
    except subprocess.TimeoutExpired:
        return f"it did not end within {options.timeout:.0f} seconds"
    finally:
        print(f"{time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if not done.returncode:
        return None
    error = last_error(done.stderr.splitlines())
    return error or f"it ended with status {done.returncode}: {done.stderr[-300:]}"


def render(rows: list[Comparison]) -> str:
    """Return the table as text."""
    import pandas as pd

    from ..runs.verify import KINDS

    def number(value: float | None, style: str) -> str:
        return "-" if value is None else format(value, style)

    table = [
        {
            "mode": row.mode,
            "processes": row.processes,
            "precision": row.precision or "-",
            **{kind: number((row.differences or {}).get(kind), ".1e") for kind in KINDS},
            "/ control": number(row.control_ratio, ".1f"),
            "rows": "-" if row.rows is None else f"{row.rows} of {row.expected_rows}",
            "": row.verdict,
            "why": row.reason,
        }
        for row in rows
    ]
    return TABLE_NOTE + "\n" + pd.DataFrame(table).to_string(index=False)
