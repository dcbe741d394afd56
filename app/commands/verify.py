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
compared, with the control on the CPU. The result is in device_report.json (or --output), which has no texts
and can be sent. A run on a device that has never passed says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..config.shipped import PROGRAM
from ..errors import InputError
from .mode_options import PlannedMode, build_parser, plan_modes

if TYPE_CHECKING:
    from ..config.schema import Config

    # Imports torch, which --help does without
    from ..run.modes.comparison import Comparison

PRECISIONS = ("float64", "fp32", "bf16", "fp16")
TABLE_NOTE = """
Differences to one process in the same precision, relative (L2 norms). In float64 up to 1e-9 passes;
else up to 10 times the control: the difference of one process that adds the same rows up in another order
(at least 1e-6).
"""


def main(argv: list[str], program: str = f"{PROGRAM} verify") -> int:
    """Verify all modes, or, as a worker, run one of them; return the exit status."""
    options, settings = parse(argv, program)
    try:
        config = load_config(settings)
        if options.steps < 1:
            raise InputError(f"--steps must be at least 1, found {options.steps}")
        if options.worker:
            return work(config, options)
        if options.device:
            comparisons = [verify_device(config, options, settings)]
        else:
            comparisons = verify(config, options, settings)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(render(comparisons))
    if options.output and not options.device:
        table = json.dumps([asdict(comparison) for comparison in comparisons], indent=2)
        Path(options.output).write_text(f"{table}\n", encoding="utf-8")
    return 1 if any(comparison.verdict == "FAIL" for comparison in comparisons) else 0


def parse(argv: list[str], program: str) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this verb, and the trainer's settings."""
    parser = build_parser(program, __doc__.replace("python -m app verify", program), timeout=3600)
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps of each mode (default: 3)")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float64",
        help="precision of all modes (default: float64, and fp32 for modes that do not have it)",
    )
    parser.add_argument(
        "--device", help="compare this device with the CPU: cuda, npu, xpu, mps or cuda:1, ..."
    )
    # Of a worker: its mode, what it trains, and the folder for its results
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--trainings", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_known_args(argv)


def work(config: Config, options: argparse.Namespace) -> int:
    """Be one rank of a mode; return the exit status."""
    from ..run.modes.worker import run_trainings
    from ..strategies import load_strategy

    arguments = (config, options.worker, options.steps, options.trainings, options.folder)
    return load_strategy(options.worker).launcher.launch(run_trainings, arguments, config.train.nprocs)


def verify(config: Config, options: argparse.Namespace, settings: list[str]) -> list[Comparison]:
    """Run every mode and compare it with one process; raises InputError where the job does not run in one."""
    from ..run.modes.comparison import Comparison

    planned = plan_modes(options.modes and ["single", *options.modes], options.processes, config.train.device)
    precisions = {mode.name: mode_precision(mode.name, options.precision, config) for mode in planned}
    unavailable = {
        mode.name: mode.unavailable or refuses(mode.name, precisions[mode.name], config) for mode in planned
    }
    runnable = [mode for mode in planned if not unavailable[mode.name]]
    model = config.model.name or f"{config.model.architecture} with random weights"
    print(
        f"Verifying that {len(runnable)} modes train the same model: {options.steps} steps of {model} on "
        f"{config.data.train or 'the sample set'}, dropout off, in {options.precision}",
        flush=True,
    )
    comparisons = []
    with tempfile.TemporaryDirectory() as folder:
        for mode in planned:
            if reason := unavailable[mode.name]:
                row = Comparison(mode.name, mode.processes, verdict="not run", reason=reason)
            elif mode.name == "single":
                train_references(
                    mode, {precisions[other.name] for other in runnable}, folder, options, settings
                )
                row = Comparison(mode.name, mode.processes, verdict="reference")
            else:
                row = train_and_compare(mode, precisions[mode.name], folder, options, settings)
            comparisons.append(row)
    return comparisons


def verify_device(config: Config, options: argparse.Namespace, settings: list[str]) -> Comparison:
    """Train in one process on the CPU and on a device, compare both, and write the report; raises InputError
    where the device is not there, or the job does not run on the CPU."""
    from ..run.device_report import REPORT, write_report
    from ..run.modes.comparison import Comparison, compare
    from ..run.modes.worker import CONTROL, result_file
    from ..runtime.devices import choose_device

    device, single, precision = choose_device(options.device), PlannedMode("single", 1, None), "fp32"
    file = Path(options.output or REPORT)
    with tempfile.TemporaryDirectory() as name:
        folder, on_device = Path(name), Path(name, "device")
        on_device.mkdir()
        train_references(single, {precision}, name, options, [*settings, "--train.device", "cpu"])
        on = [*settings, "--train.device", str(device)]
        if failure := run(single, [precision], str(on_device), options, on):
            comparison = Comparison(str(device), 1, precision, reason=failure)
        else:
            reference, result, control = (
                result_file(place, "single", training)
                for place, training in (
                    (folder, precision),
                    (on_device, precision),
                    (folder, precision + CONTROL),
                )
            )
            comparison = compare(str(device), precision, reference, result, control)
    write_report(file, device, comparison, config, options.steps)
    print(f"The report is in {file}", flush=True)
    return comparison


def mode_precision(mode: str, wanted: str, config: Config) -> str:
    """Return the precision in which a mode is verified: float64 where mode and device have it."""
    from ..runtime.devices import choose_device, computes_float64
    from ..strategies import load_strategy

    has_float64 = load_strategy(mode).has_float64 and computes_float64(choose_device(config.train.device))
    return wanted if wanted != "float64" or has_float64 else "fp32"


def refuses(mode: str, precision: str, config: Config) -> str | None:
    """Return why a mode has no such precision on this machine, or None."""
    from ..runtime.devices import choose_device
    from ..strategies import load_strategy

    return load_strategy(mode).refuses(precision, choose_device(config.train.device))


def train_references(
    single: PlannedMode, precisions: set[str], folder: str, options: argparse.Namespace, settings: list[str]
) -> None:
    """Train in one process in each precision, below float64 with a control; raises InputError where it
    fails."""
    from ..run.modes.worker import CONTROL

    trainings = []
    for precision in sorted(precisions):
        trainings += [precision] if precision == "float64" else [precision, f"{precision}{CONTROL}"]
    if failure := run(single, trainings, folder, options, settings):
        raise InputError(f"the job does not run in one process: {failure}")


def train_and_compare(
    mode: PlannedMode, precision: str, folder: str, options: argparse.Namespace, settings: list[str]
) -> Comparison:
    """Train in the processes of a mode and compare the results with the references in `folder`."""
    from ..run.modes.comparison import Comparison, compare
    from ..run.modes.worker import CONTROL, result_file

    if failure := run(mode, [precision], folder, options, settings):
        return Comparison(mode.name, mode.processes, precision, reason=failure)
    reference, result = (result_file(Path(folder), name, precision) for name in ("single", mode.name))
    control = None
    if precision != "float64":
        control = result_file(Path(folder), "single", f"{precision}{CONTROL}")
    return compare(mode.name, precision, reference, result, control)


def run(
    mode: PlannedMode, trainings: list[str], folder: str, options: argparse.Namespace, settings: list[str]
) -> str | None:
    """Train in a mode's own processes, with a line of progress; return why that failed, or None."""
    from ..run.modes.launching import run_verb

    processes = "1 process" if mode.processes == 1 else f"{mode.processes} processes"
    print(f"{mode.name}, {processes}, {', '.join(trainings)} ...", end=" ", file=sys.stderr, flush=True)
    started = time.monotonic()
    worker = ["--worker", mode.name, "--steps", str(options.steps), "--folder", folder]
    arguments = [*worker, "--trainings", *trainings, *settings]
    failure = run_verb(mode.name, mode.processes, "verify", arguments, options.timeout)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return failure


def render(comparisons: list[Comparison]) -> str:
    """Return the table as text."""
    import pandas as pd

    from ..run.modes.comparison import KINDS

    def number(value: float | None, style: str) -> str:
        return "-" if value is None else format(value, style)

    rows = [
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
        for row in comparisons
    ]
    return TABLE_NOTE + "\n" + pd.DataFrame(rows).to_string(index=False)
