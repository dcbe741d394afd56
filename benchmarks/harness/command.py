"""What the command lines of the benchmarks have in common: options, the JSON beside the table, the exit
status."""

import argparse
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import joblib
import psutil

from app.commands.parser import Parser, number
from app.config.shipped import ROOT
from app.errors import say
from app.runtime.disk import write_json
from app.runtime.processes import exit_status

POSITIVE = number(int, 1)
CONFIG = ROOT / "configs" / "weibo_emotion6.yaml"
PACKAGES = ("torch", "transformers", "accelerate", "lightning-fabric", "tokenizers", "numpy")


def command_parser(name: str, doc: str) -> Parser:
    """Return the parser of `python -m benchmarks.<name>`, with the option that all of them have."""
    parser = Parser(f"python -m benchmarks.{name}", doc)
    parser.add_argument("--output", metavar="FILE", help="write the results as JSON")
    return parser


def add_job_options(parser: Parser, precision: str) -> None:
    """Add the options of a job of run_single.py: its model, its precision, its file; its settings may
    follow."""
    models = ["base", "small", "ernie", "modernbert", "qwen3"]
    shapes = "base: as configured; small: 2 layers, 128 wide; others: their base shapes, with fewer layers"
    parser.add_argument("--model", choices=models, default="base", help=shapes)
    parser.add_argument("--precision", choices=["auto", "bf16", "fp32"], default="auto", help=precision)
    job = "the job (default: configs/weibo_emotion6.yaml)"
    parser.add_argument("--config", default=str(CONFIG), metavar="FILE", help=job)


def run_benchmark(
    parser: Parser,
    measure: Callable[[argparse.Namespace, Path, dict], bool],
    argv: list[str] | None = None,
) -> int:
    """Call `measure(options, temporary folder, report)` and return the exit status: 0 where it returns True,
    1 where it does not or a program failed, 2 for bad input, 130 when interrupted.

    `options.settings` are the words for run_single.py. `report` is written to --output as JSON, with the
    machine and the options, however `measure` ends.
    """
    # Otherwise the folder, with a model in it, would stay
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def work() -> int:
        options, options.settings = parser.parse_known_args(argv)
        if options.settings and "config" not in options:
            parser.error(f"unknown arguments: {' '.join(options.settings)}")
        report = {"machine": describe_machine(), "options": vars(options)}
        print(*(f"{name} {value};" for name, value in report["machine"].items()), flush=True)
        if report["machine"]["load_before"] > 0.5:
            say("this machine is busy with something else, so figures will be lower")
        try:
            with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
                return 0 if measure(options, Path(folder), report) else 1
        finally:
            if options.output:
                write_json(Path(options.output), report)

    return exit_status(work)


def describe_machine() -> dict:
    """Return processor, cores, memory, versions and commit, and how busy the machine was before."""
    info = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*:\s*(.*)", info.read_text(), re.MULTILINE) if info.exists() else None
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "time": time.strftime("%F %T"),
        "processor": name[1] if name else platform.processor() or platform.machine(),
        "cores": joblib.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **versions,
        "commit": git.stdout.strip(),
    }
