"""`predict` with a folder as output: the processes of a launcher, or of --nprocs, compute its parts."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from ..data.read import ReadOptions
from ..errors import InputError, listed
from ..prediction.bulk_input import described_files, input_files, make_plan, renew_plan
from ..prediction.exported_model import is_exported
from ..prediction.merged_parts import merge_parts
from ..prediction.open_model import OpenedModel
from ..prediction.parts import Part, PartsFolder
from ..prediction.recorded_settings import check_pairs, model_files, recorded_settings
from ..prediction.sources import file_options, open_file
from ..runtime.cores import num_cores
from ..runtime.processes import end_with_launcher, launched_number, launched_rank
from .exit_status import exit_status, say
from .predict_steps import (
    PAIRS_REMEDY,
    asked_settings,
    choose_threshold,
    chosen_folder,
    keeps_columns,
    open_chosen,
    write_rows,
)

# Options that change no prediction beyond rounding: another machine may continue a folder
FREE = {"input", "output", "output_format", "checkpoint", "nprocs", "merge", "is_bulk", "texts", "report"}
FREE |= {"language", "device", "batch_tokens"}
# Seconds between lines that say how far all processes are
TELL = 30.0


def predict_in_parts(args: argparse.Namespace) -> int | None:
    """Do what the command line asks for with parts; return the exit status, None for 0."""
    if args.merge is not None:
        say(f"{args.output}: {merge_parts(Path(args.merge), Path(args.output)):,} rows")
        return None
    job = BulkJob(args)
    if args.nprocs > 1:
        return _start_processes(job)
    job.compute()
    # The other processes of a launcher say nothing
    return job.say_result() if launched_rank() == 0 else None if job.is_finished else 2


def _start_processes(job: BulkJob) -> int | None:
    """Start processes on this machine, wait for them, and check the parts."""
    context = multiprocessing.get_context("spawn")
    count = job.args.nprocs if job.parts.left() else 0
    processes = [context.Process(target=_process, args=(job.args, rank)) for rank in range(count)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    finally:
        # After Ctrl-C
        for process in processes:
            process.terminate()
    for rank, process in enumerate(processes):
        if process.exitcode < 0:
            say(f"warning: process {rank} was ended by signal {-process.exitcode}")
    # It has said why
    is_failed = any(process.exitcode == 1 for process in processes) and not job.is_finished
    return 1 if is_failed else job.say_result()


def _process(args: argparse.Namespace, rank: int) -> None:
    size = str(args.nprocs)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": size, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": size}
    sys.exit(exit_status(lambda: BulkJob(args).compute()))


@dataclass
class BulkJob:
    """What one process does: it opens the folder with its plan, and computes parts. `args` get the resolved
    model and format of the output."""

    args: argparse.Namespace
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        end_with_launcher("the same command continues")
        _share_cores()
        args, output = self.args, Path(self.args.output)
        self.folder = chosen_folder(args, say if launched_rank() == 0 else lambda note: None)
        args.checkpoint = str(self.folder)
        self.recorded = recorded_settings(self.folder)
        self.files = input_files(args.input, output)
        inner = sorted(path.name for path in Path(args.input).glob("[!._]*/"))
        if inner and launched_rank() == 0:
            say(f"note: files in folders of {args.input} are left out ({listed(inner, 3)}); name a pattern")
        options = [self._options(file) for file in self.files]
        args.output_format = part_format(args, options)
        self.parts = PartsFolder(output)
        self.parts.lay_plan(lambda: make_plan(self.files, options, self._depends({})))
        now = self._depends(self.parts.plan)
        again = renew_plan(self.parts, self.files, options, now)
        if again:
            names = listed(dict.fromkeys(self.files[part.file].name for part in again), 5)
            say(
                f"note: {names} changed since the last run; {len(again)} parts are computed again, and "
                "what was finished of them is kept as _replaced-*"
            )
        self.rows_before = self._rows_finished()
        self.told = self.started

    def _options(self, file: Path) -> ReadOptions:
        options = file_options(file, self.recorded, asked_settings(self.args))
        check_pairs(self.folder, self.recorded, options.text_pair_column is not None, PAIRS_REMEDY)
        return options

    def _depends(self, known: dict[str, Any]) -> dict[str, Any]:
        """Return what the parts depend on; `known` is that of an earlier look."""
        return {
            "format": self.args.output_format,
            "settings": {name: value for name, value in vars(self.args).items() if name not in FREE},
            "model": described_files(model_files(self.folder), known.get("model", [])),
            "input": described_files(self.files, known.get("input", [])),
        }

    def compute(self) -> None:
        """Compute parts until none is left."""
        if not self.parts.left():
            return
        self.args.device = own_device(self.args.device, self.folder)
        opened = open_chosen(self.args, self.folder)
        threshold = choose_threshold(self.args, opened)
        self.parts.compute(lambda part, file: self._write(part, file, opened, threshold), say)

    def _write(
        self, part: Part, file: TextIO, opened: OpenedModel, threshold: float | None
    ) -> tuple[int, int]:
        """Write the rows of a part; return how many, and how many invalid ones were left out."""
        args, known = self.args, self.parts.plan["columns"][part.file]
        of_file = str(self.files[part.file]), self.recorded, asked_settings(args)
        source = open_file(*of_file, keeps_columns=keeps_columns(args), span=part.span)
        # All parts have the same columns, whatever their rows are
        source.is_stream, source.is_table = True, known["is_table"] and keeps_columns(args)
        source.keys.update(dict.fromkeys(known["keys"]))
        if len(self.files) > 1:
            source.of_set = self.parts.plan["input"][part.file]["name"]
        rows = source.started(args.on_bad_row)
        written = write_rows(args, source, rows, opened, threshold, file, span=part.span)
        self._tell()
        return written, source.num_bad if args.on_bad_row == "skip" else 0

    def _rows_finished(self) -> int:
        return sum(part.rows for part in self.parts.parts if self.parts.is_finished(part))

    def _tell(self) -> None:
        now = time.monotonic()
        if launched_rank() != 0 or now < self.told + TELL:
            return
        self.told, done = now, self._rows_finished()
        total = sum(part.rows for part in self.parts.parts)
        rate = (done - self.rows_before) / (now - self.started)
        left = f", {(total - done) / rate / 60:,.0f} minutes left" if rate else ""
        say(f"{self.parts.folder}: {done:,} of {total:,} rows, {rate:,.0f} a second{left}")

    @property
    def is_finished(self) -> bool:
        """Whether all parts are there."""
        return all(map(self.parts.is_finished, self.parts.parts))

    def say_result(self) -> None:
        """Check that all rows are there, and say it; raises as `PartsFolder.manifests` does."""
        manifests = self.parts.manifests()
        rows, skipped = (sum(manifest[name] for manifest in manifests) for name in ("rows", "skipped"))
        left_out = f", {skipped:,} invalid rows left out" if skipped else ""
        say(
            f"{self.parts.folder}: {rows:,} rows in {len(manifests)} parts{left_out}; every row is there once"
        )


def part_format(args: argparse.Namespace, options: list[ReadOptions]) -> str:
    """Return the format of the parts, as asked for or like that of the files; raises InputError for one that
    the files do not have."""
    found = {one.format for one in options}
    is_parquet = found == {"parquet"} and not args.only_labels
    format = args.output_format
    if format == "auto":
        format = "parquet" if is_parquet else "jsonl" if found <= {"json", "jsonl"} else "csv"
    if format == "parquet" and not is_parquet:
        raise InputError("--output_format parquet is for all columns of Parquet files; choose csv or jsonl")
    if args.bom and format != "csv":
        raise InputError(f"--bom is for CSV, and the parts are {format}; remove it")
    return format


def own_device(device: str, folder: Path) -> str:
    """Return the device of this process: of several accelerators of its machine its own."""
    if is_exported(folder):
        return device
    from ..runtime.devices import count_devices

    count = count_devices(device)
    local_rank = launched_number("LOCAL_RANK", launched_number("SLURM_LOCALID", 0))
    return f"{device}:{local_rank % count}" if count else device


def _share_cores() -> None:
    """Let this process compute on its part of the cores; torchrun would give it one thread only."""
    count = launched_number("LOCAL_WORLD_SIZE", 1, least=1)
    if count > 1 and ("TORCHELASTIC_RUN_ID" in os.environ or "OMP_NUM_THREADS" not in os.environ):
        threads = str(max(1, num_cores() // count))
        os.environ |= {"OMP_NUM_THREADS": threads, "RAYON_NUM_THREADS": threads}
