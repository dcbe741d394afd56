"""Prove that all modes do the same job, on your own configuration and data.

    python verify_modes.py --config configs/weibo_emotion6.yaml --steps 20
    python verify_modes.py --steps 10 --modes ddp fsdp --processes 3 --output verify.json

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

from app.config.command_line import load_config
from app.errors import InputError


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this script, and the trainer's settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps that each mode trains (default: 20)")
    parser.add_argument("--processes", type=int, help="processes of the parallel modes (default: CUDA devices, or 2)")
    parser.add_argument("--modes", nargs="+", help="modes to verify (default: all)")
    parser.add_argument("--output", help="also write the table as JSON to this file")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that one mode may take (default: 3600)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    return parser.parse_known_args(argv)


def main(argv: list[str]) -> int:
    """Verify all modes, or, as a worker, run one of them; return the exit status."""
    options, settings = parse(argv)
    try:
        config = load_config(settings, "verify_modes.py")
        from app.run.equivalence import comparable, probe
        from app.strategies import load_strategy

        config = comparable(config, options.steps)
        if options.worker:
            return load_strategy(options.worker).launch(
                probe, (config, options.worker, options.result), config.train.nprocs
            )
        return verify(config, options, settings)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def verify(config, options: argparse.Namespace, settings: list[str]) -> int:
    """Run every mode, print the table, and return 1 if any failed."""
    import torch

    from app.run.equivalence import Outcome, compare, start
    from app.strategies import load_strategy, strategy_names

    devices = torch.cuda.device_count() if config.train.device in ("auto", "cuda") else 0
    processes = options.processes or devices or 2
    wanted = options.modes or strategy_names()
    unknown = set(wanted) - set(strategy_names())
    if unknown:
        raise InputError(
            f"--modes: there is no mode {', '.join(sorted(unknown))} (known: {', '.join(strategy_names())})"
        )
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        results = {mode: Path(folder) / f"{mode}.safetensors" for mode in ["single", *wanted]}
        for mode, result in results.items():
            strategy = load_strategy(mode)
            count = 1 if strategy.one_process else processes
            if lacks := strategy.missing() or _too_few_devices(devices, count):
                outcomes.append(Outcome(mode, count, verdict="not run", reason=lacks))
                continue
            print(f"{mode}, {count} process(es) ...", file=sys.stderr)
            shared = ["--worker", mode, "--result", str(result), "--steps", str(options.steps)]
            failure = start(mode, count, [*shared, *settings], options.timeout)
            if failure is None:
                outcomes.append(compare(mode, results["single"], result, config.train.optimizer))
            else:
                outcomes.append(Outcome(mode, count, reason=failure))
            if mode == "single" and failure:
                raise InputError(f"the job does not run in one process: {failure}")
    print(render(outcomes))
    if options.output:
        Path(options.output).write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n", encoding="utf-8"
        )
    return 1 if any(outcome.verdict == "FAIL" for outcome in outcomes) else 0


def _too_few_devices(devices: int, processes: int) -> str | None:
    return (
        f"{processes} processes need as many CUDA devices, this machine has {devices}"
        if 0 < devices < processes
        else None
    )


def render(outcomes: list) -> str:
    """Return the table as text."""
    import pandas as pd

    rows = []
    for outcome in outcomes:
        figures = {kind: getattr(outcome, kind) for kind in ("losses", "gradients", "weights", "logits")}
        shown = {f"diff {kind}": "-" if value is None else f"{value:.1e}" for kind, value in figures.items()}
        counted = "-" if outcome.rows is None else f"{outcome.rows} of {outcome.expected_rows}"
        rows.append(
            {
                "mode": outcome.mode,
                "processes": outcome.processes,
                **shown,
                "rows counted": counted,
                "": outcome.verdict,
                "why": outcome.reason,
            }
        )
    return pd.DataFrame(rows).to_string(index=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
