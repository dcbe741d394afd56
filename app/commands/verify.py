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
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..config.schema import Config
from ..errors import InputError
from ..prediction.output import check_output
from .mode_options import PlannedMode, modes_parser, plan_modes
from .parser import at_least, number

if TYPE_CHECKING:
    # Imports torch, which --help does without
    from ..run.modes.mode_comparison import Comparison

PRECISIONS = ("float64", "fp32", "bf16", "fp16")
TABLE_NOTE = """
Differences to one process in the same precision, relative (L2 norms). In float64 up to 1e-9 passes;
else up to 10 times the control: the difference of one process that adds the same rows up in another order
(at least 1e-6).
"""


def run(argv: list[str], program: str) -> int:
    """Verify all modes or a device, or as a worker train in one of them; return the exit status."""
    options, settings = parse(argv, program)
    config = load_config(settings)
    if options.worker:
        return work(config, options)
    if options.output:
        check_output(options.output, None)
    comparisons = verify_device(options, settings) if options.device else verify(config, options, settings)
    print(render(comparisons))
    if options.output:
        table = json.dumps([asdict(comparison) for comparison in comparisons], indent=2)
        Path(options.output).write_text(f"{table}\n", encoding="utf-8")
    return 1 if any(comparison.verdict == "FAIL" for comparison in comparisons) else 0


def parse(argv: list[str], program: str) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this verb, and the trainer's settings."""
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
    return parser.parse_known_args(argv)


def work(config: Config, options: argparse.Namespace) -> int:
    """Be one rank of a mode; return the exit status."""
    from ..modes import load_mode
    from ..run.modes.worker import run_trainings

    arguments = (config, options.worker, options.steps, options.trainings, options.folder)
    return load_mode(options.worker).launcher.launch(run_trainings, arguments, options.nprocs)


def verify(config: Config, options: argparse.Namespace, settings: list[str]) -> list[Comparison]:
    """Run every mode and compare it with one process; raises InputError where the job does not run in one."""
    from ..modes import load_mode
    from ..run.modes.mode_comparison import Comparison
    from ..runtime.devices import choose_device, computes_float64

    planned = plan_modes(options.modes and ["single", *options.modes], options.processes, config.train.device)
    device, precisions, unavailable = choose_device(config.train.device), {}, {}
    for mode in planned:
        kind = load_mode(mode.name)
        is_float64 = options.precision == "float64"
        is_refused = is_float64 and not (kind.has_float64 and computes_float64(device))
        precisions[mode.name] = precision = "fp32" if is_refused else options.precision
        unavailable[mode.name] = mode.unavailable or kind.refuses(precision, device)
    runnable = {name for name, reason in unavailable.items() if not reason}
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
                train_references(mode, {precisions[name] for name in runnable}, folder, options, settings)
                row = Comparison(mode.name, mode.processes, verdict="reference")
            else:
                row = train_and_compare(mode, precisions[mode.name], folder, folder, options, settings)
            comparisons.append(row)
    return comparisons


def verify_device(options: argparse.Namespace, settings: list[str]) -> list[Comparison]:
    """Train in one process on the CPU and on a device, and compare both; raises InputError where the device
    is not there, or the job does not run on the CPU."""
    from ..runtime.devices import choose_device

    device, single, precision = choose_device(options.device), PlannedMode("single", 1, None), "fp32"
    with tempfile.TemporaryDirectory() as on_cpu, tempfile.TemporaryDirectory() as on_device:
        train_references(single, {precision}, on_cpu, options, [*settings, "--train.device", "cpu"])
        settings = [*settings, "--train.device", str(device)]
        comparison = train_and_compare(single, precision, on_cpu, on_device, options, settings)
    return [replace(comparison, mode=str(device))]


def train_references(
    single: PlannedMode, precisions: set[str], folder: str, options: argparse.Namespace, settings: list[str]
) -> None:
    """Train in one process in each precision, below float64 with a control; raises InputError if it fails."""
    from ..run.modes.worker import CONTROL

    trainings = []
    for precision in sorted(precisions):
        trainings += [precision] if precision == "float64" else [precision, f"{precision}{CONTROL}"]
    if failure := train_apart(single, trainings, folder, options, settings):
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
    from ..run.modes.mode_comparison import Comparison, compare
    from ..run.modes.worker import CONTROL, result_file

    if failure := train_apart(mode, [precision], folder, options, settings):
        return Comparison(mode.name, mode.processes, precision, reason=failure)
    reference, result = result_file(Path(references), "single", precision), Path(folder)
    control = None
    if precision != "float64":
        control = result_file(Path(references), "single", f"{precision}{CONTROL}")
    return compare(mode.name, precision, reference, result_file(result, mode.name, precision), control)


def train_apart(
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

    from ..run.modes.mode_comparison import KINDS

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
