"""Prepare ten million rows and make batches of them, without a model; what must stay flat is the cost of a
row.

python -m benchmarks.data_path --rows 10000000                     with 100,000 and 1,000,000 rows beside it
python -m benchmarks.data_path --rows 100000 --folder /mnt/disk    where the files are made; 2 GB for ten million rows

Exit status: 0; 1 where a stage failed; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.data_path.rows import write_rows
from benchmarks.harness.command import command_parser, run_benchmark, say
from benchmarks.harness.rounds import ROOT, ProgramFailed
from benchmarks.harness.summary import render_table

SMALLEST = 100_000


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values."""
    parser = command_parser("data_path", __doc__)
    add = parser.add_argument
    add("--rows", type=int, default=10_000_000, help="rows of the largest file (default: 10000000)")
    add("--processes", type=int, default=2, help="processes that read at the same time (default: 2)")
    add(
        "--batches", type=int, default=3000, help="batches of 32 rows that each of them makes (default: 3000)"
    )
    add(
        "--vocab-file",
        metavar="FILE",
        help="WordPiece vocabulary; none: made of the rows, as in a run without one",
    )
    add(
        "--folder",
        metavar="FOLDER",
        help="where files are made and removed again (default: the system's temporary folder)",
    )
    args = parser.parse_args(argv)
    for name in ("rows", "processes", "batches"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, found {getattr(args, name)}")
    if args.vocab_file and not Path(args.vocab_file).is_file():
        parser.error(f"--vocab-file must name a file; there is no {args.vocab_file}")
    return args


def sizes(rows: int) -> list[int]:
    """Return the row counts to measure: `rows`, and its tenth, hundredth and so on, down to 100,000."""
    counts = [rows]
    while counts[-1] // 10 >= SMALLEST:
        counts.append(counts[-1] // 10)
    return counts[::-1]


def measure(num_rows: int, args: argparse.Namespace, folder: Path) -> dict:
    """Return the measurements of a file of `num_rows` rows; `folder` is made for it, and removed."""
    folder.mkdir()
    started = time.perf_counter()
    write_rows(folder / "rows.tsv", num_rows)
    measured = {"rows": num_rows, "make_seconds": time.perf_counter() - started}
    measured["file_bytes"] = (folder / "rows.tsv").stat().st_size
    options = {"folder": str(folder), "vocab_file": args.vocab_file}
    for name in ("first_start", "second_start"):
        started = time.perf_counter()
        (measured[name],) = run_stages("start", [options])
        measured[name]["process_seconds"] = time.perf_counter() - started
    measured["cache_bytes"] = sum(
        path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file()
    )
    reading = options | {"num_shards": args.processes, "batches": args.batches}
    measured["readers"] = run_stages("read", [reading | {"shard": shard} for shard in range(args.processes)])
    shutil.rmtree(folder)
    return measured


def run_stages(stage: str, options: list[dict]) -> list[dict]:
    """Run a stage in a process for each of `options`, at the same time; return their measurements."""
    command = [sys.executable, "-m", "benchmarks.data_path.stages", stage]
    processes = [
        subprocess.Popen(
            [*command, json.dumps(one)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for one in options
    ]
    try:
        outputs = [process.communicate() for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            said = errors.strip().splitlines()
            raise ProgramFailed(
                f"{stage} ended with status {process.returncode}: {said[-1] if said else '(it said nothing)'}"
            )
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


def render(sizes: list[dict], vocabulary_given: bool) -> str:
    """Return the table: a line for each measurement, a column for each size of file."""

    def line(title: str, form: str, value) -> list[str]:
        return [title, *(format(value(size), form) for size in sizes)]

    def rate(stage: str):
        return lambda size: size["rows"] / size["first_start"][stage]["seconds"]

    def slowest(size: dict) -> float:
        return min(reader["batches_per_second"] for reader in size["readers"])

    def most(name: str):
        return lambda size: max(reader[name] for reader in size["readers"]) / 1e6

    def tokenising_cores(size: dict) -> float:
        stage = size["first_start"]["tokenise"]
        return stage["cpu_seconds"] / stage["seconds"]

    return render_table(
        ["rows", *(f"{size['rows']:,}" for size in sizes)],
        [
            line("file, MB", ",.0f", lambda size: size["file_bytes"] / 1e6),
            line("tokens a row", ".1f", lambda size: size["first_start"]["tokens"] / size["rows"]),
            line("read, check and split, rows/s", ",.0f", rate("read")),
            *([] if vocabulary_given else [line("vocabulary, rows/s", ",.0f", rate("vocabulary"))]),
            line("tokenise, rows/s", ",.0f", rate("tokenise")),
            line("tokenise, cores busy", ".1f", tokenising_cores),
            line("first start, s", ",.1f", lambda size: _opening(size["first_start"])),
            line("second start, s", ",.2f", lambda size: _opening(size["second_start"])),
            line(
                "second start, imports included, s",
                ",.2f",
                lambda size: size["second_start"]["process_seconds"],
            ),
            line(
                "preparation, highest memory, MB",
                ",.0f",
                lambda size: size["first_start"]["preparation_memory"] / 1e6,
            ),
            line("cache on disk, MB", ",.0f", lambda size: size["cache_bytes"] / 1e6),
            line("batches/s of each process, no model", ",.0f", slowest),
            line("memory of each process, MB", ",.0f", most("memory")),
            line("of it for the data, not mapped, MB", ",.0f", most("own_memory")),
            line("highest memory of each process, MB", ",.0f", most("peak_memory")),
        ],
    )


def _opening(start: dict) -> float:
    return sum(start[stage]["seconds"] for stage in ("read", "vocabulary", "tokenise"))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parse(argv)

    def work(folder: Path, report: dict) -> bool:
        report |= {"processes": args.processes, "sizes": []}
        for num_rows in sizes(args.rows):
            say(f"{num_rows:,} rows ...")
            report["sizes"].append(measure(num_rows, args, folder / str(num_rows)))
        print("\n" + render(report["sizes"], args.vocab_file is not None))
        return True

    return run_benchmark("data-path", argv, work, args.output, args.folder)


if __name__ == "__main__":
    sys.exit(main())
