"""Verify that all modes train the same model, or that a device computes what the CPU computes.

    python -m app verify
    python -m app verify --modes ddp fsdp --processes 3 --config configs/weibo_emotion6.yaml --steps 20
    python -m app verify --device npu

Each mode that this machine can run trains the same steps with dropout off, in real processes; losses, the
last gradients, weights and logits are compared with those of one process: the L2 norm of the difference,
divided by that of the values. All is computed in float64, where rounding is near 1e-15 and a difference of up
to 1e-9 passes. In other precisions, and for DeepSpeed, which has no float64, one process also trains with the
rows added up in another order; a mode may differ 10 times as much as this control. --device compares a
device with the CPU in the same way, in fp32 and one process. Exit status 1 if any mode fails. Any setting of
the trainer (--group.key) may follow.
"""

import argparse

from ..config.command_line import load_config
from .parser import Parser, number


def run(argv: list[str], program: str) -> int:
    """Verify all modes or a device, or as a worker train in one of them; return the exit status."""
    add = (parser := Parser(program, __doc__)).add_argument
    add("--modes", nargs="+", metavar="MODE", help="modes to run (default: all)")
    processes = "processes of the parallel modes (default: accelerators, or 2)"
    add("--processes", type=number(int, 1), help=processes)
    add("--steps", type=number(int, 1), default=3, help="optimizer steps of each mode (default: 3)")
    precision = "precision of all modes (default: float64, and fp32 for modes that do not have it)"
    add("--precision", choices=["float64", "fp32", "bf16", "fp16"], default="float64", help=precision)
    add("--device", help="compare this device with the CPU: cuda, npu, xpu, mps or cuda:1, ...")
    # These are for a worker: its mode, the folder for its results and what it trains; its number of processes
    add("--worker", nargs="+", help=argparse.SUPPRESS)
    add("--nprocs", type=int, help=argparse.SUPPRESS)
    options, settings = parser.parse_known_args(argv)
    config, one_process = load_config(settings), settings
    import pandas as pd

    from ..modes import MODES, load_mode
    from ..modes.group import launch
    from ..runs.series import plan_mode
    from ..runs.verify import KINDS, Comparison, compare_apart, run_trainings
    from ..runtime.devices import choose_device, has_memory, is_cuda

    if options.worker:
        arguments = (config, options.steps, *options.worker)
        return launch(load_mode(options.worker[0]).launcher, run_trainings, arguments, options.nprocs)
    planned, device = [], choose_device(options.device or config.train.device)
    # MPS and Ascend have none
    has_float64 = is_cuda(device) or not has_memory(device)
    if options.device:
        planned.append(Comparison(str(device), 1, "fp32"))
        one_process, settings = ([*settings, "--train.device", name] for name in ("cpu", str(device)))
    else:
        # Single is first, because the others are compared with it
        for name in dict.fromkeys(["single", *sorted(options.modes or MODES)]):
            processes, unavailable = plan_mode(name, options.processes, config.train.device)
            is_exact = options.precision == "float64" and has_float64 and load_mode(name).has_float64
            precision = "fp32" if options.precision == "float64" and not is_exact else options.precision
            planned.append(Comparison(name, processes, precision, unavailable))
    rows = []
    for one in compare_apart(planned, options.steps, one_process, settings):
        row = {"mode": one.mode, "processes": one.processes, "precision": one.precision}
        row |= {kind: f"{one.differences[kind]:.1e}" if one.differences else "-" for kind in KINDS}
        row["/ control"] = "-" if one.control_ratio is None else f"{one.control_ratio:.1f}"
        rows.append(row | {"rows": one.rows, "": one.verdict, "why": one.reason})
    print(pd.DataFrame(rows).to_string(index=False))
    return int(any(row[""] == "FAIL" for row in rows))
