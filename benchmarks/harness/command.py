"""What the benchmarks' command lines have in common: the folder for their files, the JSON beside the table,
the exit status."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from app.errors import InputError
from benchmarks.harness.machine import describe_machine, headline
from benchmarks.harness.rounds import ROOT, ProgramFailed

CONFIG = ROOT / "configs" / "weibo_emotion6.yaml"


def command_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks.<name>`, with the option that all of them have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--output", metavar="FILE", help="write the results as JSON")
    return parser


def add_job_options(parser: argparse.ArgumentParser, auto: str) -> None:
    """Add the options of a job of run_single.py: its model, its precision (`auto` says what that means) and
    its file."""
    add = parser.add_argument
    add(
        "--model",
        choices=["base", "small", "ernie", "modernbert", "qwen3"],
        default="base",
        help="base: as configured; small: 2 layers, 128 wide; others: their base shapes, with fewer layers",
    )
    add("--precision", choices=["auto", "bf16", "fp32"], default="auto", help=auto)
    add(
        "--config", default=str(CONFIG), metavar="FILE", help="the job (default: configs/weibo_emotion6.yaml)"
    )


def run_benchmark(
    name: str,
    argv: list[str] | None,
    work: Callable[[Path, dict], bool],
    output: str | None,
    folder: str | None = None,
) -> int:
    """Call `work(temporary folder, report)` and return the exit status: 0 where it returns True, 1 where it
    does not or a program failed, 2 for bad input, 130 when interrupted.

    `report` has the machine and the command line `argv`; with what `work` adds it is written to `output` as
    JSON, however `work` ends. The temporary folder is made in `folder` (none: the system's) and is removed.
    """
    # Otherwise the folder, with a model in it, would stay
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine = describe_machine()
    print(headline(machine), flush=True)
    report = {"machine": machine, "command": sys.argv[1:] if argv is None else argv}
    try:
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder) as made:
            return 0 if work(Path(made), report) else 1
    except (InputError, ProgramFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if output:
            Path(output).write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def say(message: str) -> None:
    """Print progress on standard error."""
    print(message, file=sys.stderr, flush=True)
