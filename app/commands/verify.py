"""Verify that all modes train the same model, on your own configuration and data.

    python -m app verify --config configs/weibo_emotion6.yaml --steps 20
    python -m app verify --steps 10 --modes ddp fsdp --processes 3 --output verify.json
    python -m app verify --steps 10 --precision bf16

Each mode that this machine can run trains the same steps with dropout off, in real processes; losses, the
last gradients, weights and logits are compared with those of one process. In bf16 and fp16 one process trains
in fp32 too: modes may differ three times as much as the low precision differs from fp32. Exit status 1 if any
mode fails. Any setting of the trainer (--group.key) may follow.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
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
    from ..run.modes.equivalence import Outcome


def main(argv: list[str], program: str = f"{PROGRAM} verify") -> int:
    """Verify all modes, or, as a worker, run one of them; return the exit status."""
    options, settings = parse(argv, program)
    try:
        config = load_config(settings)
        from ..run.modes.equivalence import comparable, probe
        from ..strategies import load_strategy

        config = comparable(config, options.steps, options.precision)
        if options.worker:
            arguments = (config, options.worker, options.result)
            return load_strategy(options.worker).launcher.launch(probe, arguments, config.train.nprocs)
        outcomes = verify(config, options, settings)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(render(outcomes))
    if options.output:
        table = json.dumps([asdict(outcome) for outcome in outcomes], indent=2)
        Path(options.output).write_text(f"{table}\n", encoding="utf-8")
    return 1 if any(outcome.verdict == "FAIL" for outcome in outcomes) else 0


def parse(argv: list[str], program: str) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this verb, and the trainer's settings."""
    parser = build_parser(program, __doc__.replace("python -m app verify", program), timeout=3600)
    parser.add_argument(
        "--steps", type=int, default=20, help="optimizer steps that each mode trains (default: 20)"
    )
    choices = ["fp32", "bf16", "fp16"]
    parser.add_argument(
        "--precision", choices=choices, default="fp32", help="precision of all modes (default: fp32)"
    )
    # The mode whose process this is
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    # The file that the worker writes
    parser.add_argument("--result", help=argparse.SUPPRESS)
    return parser.parse_known_args(argv)


def verify(config: Config, options: argparse.Namespace, settings: list[str]) -> list[Outcome]:
    """Run every mode and compare it with single; raises InputError where the job does not run in one process."""
    from ..run.modes.equivalence import Outcome, compare, tolerances

    wanted = options.modes and ["single", *options.modes]
    planned = plan_modes(wanted, options.processes, config.train.device)
    outcomes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        single, exact = folder / "single.safetensors", None
        if options.precision != "fp32":
            exact = folder / "exact.safetensors"
            run(planned[0], "fp32", exact, options, settings)
        for mode in planned:
            unavailable = mode.unavailable or refuses(mode.name, options.precision, config.train.device)
            if unavailable:
                outcomes.append(Outcome(mode.name, mode.processes, verdict="not run", reason=unavailable))
                continue
            result = folder / f"{mode.name}.safetensors"
            failure = run(mode, options.precision, result, options, settings)
            if failure is None:
                limits = tolerances(config.train.optimizer, single, exact)
                outcomes.append(compare(mode.name, single, result, limits, options.precision))
            else:
                outcomes.append(Outcome(mode.name, mode.processes, reason=failure))
    return outcomes


def run(
    mode: PlannedMode, precision: str, result: Path, options: argparse.Namespace, settings: list[str]
) -> str | None:
    """Train in a mode's own processes and write `result`; return why that failed, and raise InputError where
    it is single."""
    from ..run.modes.equivalence import start

    print(f"{mode.name}, {precision}, {mode.processes} process(es) ...", file=sys.stderr)
    worker = [
        "--worker",
        mode.name,
        "--result",
        str(result),
        "--steps",
        str(options.steps),
        "--precision",
        precision,
    ]
    failure = start(mode.name, mode.processes, [*worker, *settings], options.timeout)
    if failure and mode.name == "single":
        raise InputError(f"the job does not run in one process: {failure}")
    return failure


def refuses(mode: str, precision: str, device: str) -> str | None:
    """Return why a mode has no such precision on this machine, or None."""
    from ..runtime.devices import choose_device
    from ..strategies import load_strategy

    return load_strategy(mode).refuses(precision, choose_device(device))


def render(outcomes: list[Outcome]) -> str:
    """Return the table as text."""
    import pandas as pd

    rows = []
    for outcome in outcomes:
        differences = {
            f"diff {name}": getattr(outcome, name) for name in ("losses", "gradients", "weights", "logits")
        }
        counted = "-" if outcome.rows is None else f"{outcome.rows} of {outcome.expected_rows}"
        rows.append(
            {
                "mode": outcome.mode,
                "processes": outcome.processes,
                **{name: "-" if value is None else f"{value:.1e}" for name, value in differences.items()},
                "rows counted": counted,
                "": outcome.verdict,
                "why": outcome.reason,
            }
        )
    return pd.DataFrame(rows).to_string(index=False)
