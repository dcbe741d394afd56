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
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..config.schema import Config
from ..prediction.output import check_output
from .mode_options import plan_modes
from .parser import Parser, at_least, number

if TYPE_CHECKING:
    # It imports torch, which --help does without
    from ..runs.verify import Comparison

TABLE_NOTE = """
Differences to one process in the same precision, relative (L2 norms). In float64 up to 1e-9 passes;
else up to 10 times the control: the difference of one process that adds the same rows up in another order
(at least 1e-6).
"""


def run(argv: list[str], program: str) -> int:
    """Verify all modes or a device, or as a worker train in one of them; return the exit status."""
    add = (parser := Parser(program, __doc__)).add_argument
    add("--modes", nargs="+", metavar="MODE", help="modes to run (default: all)")
    processes = "processes of the parallel modes (default: accelerators, or 2)"
    add("--processes", type=number(int, at_least(1)), help=processes)
    add("--output", metavar="FILE", help="also write the table as JSON to this file")
    steps = "optimizer steps of each mode (default: 3)"
    add("--steps", type=number(int, at_least(1)), default=3, help=steps)
    precision = "precision of all modes (default: float64, and fp32 for modes that do not have it)"
    add("--precision", choices=["float64", "fp32", "bf16", "fp16"], default="float64", help=precision)
    add("--device", help="compare this device with the CPU: cuda, npu, xpu, mps or cuda:1, ...")
    # These are for a worker: its mode, the folder for its results and what it trains; its number of processes
    add("--worker", nargs="+", help=argparse.SUPPRESS)
    add("--nprocs", type=int, help=argparse.SUPPRESS)
    options, settings = parser.parse_known_args(argv)
    config = load_config(settings)
    from ..modes import load_mode
    from ..runs.verify import Comparison, compare_apart, run_trainings
    from ..runtime.devices import choose_device
    from ..runtime.disk import write_json

    if options.worker:
        mode, folder, *trainings = options.worker
        arguments = (config, mode, options.steps, folder, trainings)
        return load_mode(mode).launcher.launch(run_trainings, arguments, options.nprocs)
    if options.output:
        check_output(options.output)
    one_process = settings
    if options.device:
        device = str(choose_device(options.device))
        planned = [Comparison(device, 1, "fp32")]
        one_process = [*settings, "--train.device", "cpu"]
        settings = [*settings, "--train.device", device]
    else:
        planned = planned_rows(options, config)
    with tempfile.TemporaryDirectory() as folder:
        rows = compare_apart(planned, Path(folder), options.steps, one_process, settings)
    print(render(rows))
    if options.output:
        write_json(Path(options.output), [asdict(row) for row in rows])
    return 1 if any(row.verdict == "FAIL" for row in rows) else 0


def planned_rows(options: argparse.Namespace, config: Config) -> list[Comparison]:
    """Return a row for each mode to verify, with the reason where it cannot run; print what is trained."""
    from ..modes import load_mode
    from ..runs.verify import Comparison
    from ..runtime.devices import choose_device, computes_float64

    wanted = options.modes and ["single", *options.modes]
    device, rows = choose_device(config.train.device), []
    for one in plan_modes(wanted, options.processes, config.train.device):
        mode, precision = load_mode(one.name), options.precision
        if precision == "float64" and not (mode.has_float64 and computes_float64(device)):
            precision = "fp32"
        reason = one.unavailable or ""
        rows.append(Comparison(one.name, one.processes, precision, reason=reason))
    model = config.model.name or f"{config.model.architecture} with random weights"
    print(
        f"Verifying that {sum(not row.reason for row in rows)} modes train the same model: {options.steps} "
        f"steps of {model} on {config.data.train or 'the sample set'}, dropout off, in {options.precision}",
        flush=True,
    )
    return rows


def render(rows: list[Comparison]) -> str:
    """Return the table as text."""
    import pandas as pd

    from ..runs.verify import KINDS

    table = pd.DataFrame([asdict(row) for row in rows]).rename(columns={"verdict": "", "reason": "why"})
    for kind in KINDS:
        table[kind] = [f"{row.differences[kind]:.1e}" if row.differences else "-" for row in rows]
    table["/ control"] = ["-" if row.control_ratio is None else f"{row.control_ratio:.1f}" for row in rows]
    table["rows"] = ["-" if row.rows is None else f"{row.rows} of {row.expected_rows}" for row in rows]
    table["precision"] = [row.precision or "-" for row in rows]
    shown = ["mode", "processes", "precision", *KINDS, "/ control", "rows", "", "why"]
    return TABLE_NOTE + "\n" + table[shown].to_string(index=False)
