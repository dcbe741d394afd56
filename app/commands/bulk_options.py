"""The options of `predict` for parts: many processes write into one folder."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from ..runtime.processes import launched_number
from .parser import at_least, number

# Parts are written in these formats of the output.
PART_FORMATS = ("csv", "jsonl", "parquet")


def add_bulk_options(add: Callable) -> None:
    """Add the options of parts."""
    processes = "processes to start on this machine, for parts in a folder: --output labels/ (default: 1)"
    add("--nprocs", type=number(int, at_least(1)), default=1, metavar="N", help=processes)
    merge = "write the parts in this folder, which predict has finished, to the file --output (default: none)"
    add("--merge", metavar="FOLDER", help=merge)


def check_bulk_options(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Set `args.is_bulk`, whether parts are written; raises InputError for options that do not go with it."""
    args.is_bulk = args.output is not None and (args.output.endswith(os.sep) or Path(args.output).is_dir())
    if args.merge is not None:
        if args.output is None or args.is_bulk or args.input is not None or args.texts:
            parser.error("--merge FOLDER needs --output FILE, a new file, and no --input")
        return
    _check_processes(args, parser)
    if args.is_bulk and (args.input in (None, "-") or args.report is not None):
        parser.error("parts are of files: --input FILE, a folder or a pattern, without --report")
    if args.is_bulk and args.output_format not in ("auto", *PART_FORMATS):
        parser.error(f"parts are {', '.join(PART_FORMATS)}, found --output_format {args.output_format}")


def _check_processes(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    launched = launched_number("WORLD_SIZE", 1, least=1) if "RANK" in os.environ else 1
    if launched > 1 and args.nprocs > 1:
        parser.error("--nprocs starts processes, and a launcher has started this one already; remove it")
    if max(launched, args.nprocs) > 1 and not args.is_bulk:
        found = f"{launched} (WORLD_SIZE)" if launched > 1 else f"--nprocs {args.nprocs}"
        parser.error(
            f"several processes write parts into a folder, found {found}; name one with --output labels/"
        )
