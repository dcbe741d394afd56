"""Verify that all modes train the same model, on your own configuration and data.

    python -m app verify --config configs/weibo_emotion6.yaml --steps 20
    python -m app verify --steps 10 --modes ddp fsdp --processes 3 --output verify.json

Each mode that this machine can run trains the same steps with dropout off in fp32, in real processes; losses, the last
gradients, weights and logits are compared with those of one process. Exit status 1 if any mode fails. Any setting of
the trainer (--group.key) may follow.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.mode_options import build_parser, plan_modes
from app.config.command_line import load_config
from app.errors import InputError

if TYPE_CHECKING:
    from app.config.schema import Config
    from app.run.modes.equivalence import Outcome  # imports torch, which --help does without


def main(argv: list[str], program: str = "python -m app verify") -> int:
    """Verify all modes, or, as a worker, run one of them; return the exit status."""
    options, settings = parse(argv, program)
    try:
        config = load_config(settings)
        from app.run.modes.equivalence import comparable, probe
        from app.strategies import load_strategy

        config = comparable(config, options.steps)
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
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps that each mode trains (default: 20)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # the mode whose process this is
    parser.add_argument("--result", help=argparse.SUPPRESS)  # the file that the worker writes
    return parser.parse_known_args(argv)


def verify(config: Config, options: argparse.Namespace, settings: list[str]) -> list[Outcome]:
    """Run every mode and compare it with single; raises InputError where the job does not run in one process."""
    from app.run.modes.equivalence import Outcome, compare, start

    wanted = options.modes and ["single", *options.modes]
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for mode in plan_modes(wanted, options.processes, config.train.device):
            if mode.unavailable:
                outcomes.append(Outcome(mode.name, mode.processes, verdict="not run", reason=mode.unavailable))
                continue
            print(f"{mode.name}, {mode.processes} process(es) ...", file=sys.stderr)
            single, result = (Path(folder) / f"{name}.safetensors" for name in ("single", mode.name))
            worker = ["--worker", mode.name, "--result", str(result), "--steps", str(options.steps)]
            failure = start(mode.name, mode.processes, [*worker, *settings], options.timeout)
            if failure is None:
                outcomes.append(compare(mode.name, single, result, config.train.optimizer))
            elif mode.name == "single":
                raise InputError(f"the job does not run in one process: {failure}")
            else:
                outcomes.append(Outcome(mode.name, mode.processes, reason=failure))
    return outcomes


def render(outcomes: list[Outcome]) -> str:
    """Return the table as text."""
    import pandas as pd

    rows = []
    for outcome in outcomes:
        differences = {f"diff {name}": getattr(outcome, name) for name in ("losses", "gradients", "weights", "logits")}
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
