"""How good the classifiers are: accuracy and macro F1 of each system on each job, over several seeds, on the
same test rows.

python -m benchmarks.quality --jobs sample                                 all systems
python -m benchmarks.quality --jobs configs/waimai_10k.yaml reviews.csv --systems ngrams+svm e5-small-zh
python -m benchmarks.quality --jobs sample --systems masked:e5-small-zh    after pretraining on its texts

A job is `sample`, a YAML file of settings, of which only `data` is used, or a labelled file. A system is a
baseline, random-bert, or any value of --model.name. Settings of the baselines are chosen on dev rows, never
on test rows. Where a network and n-grams are measured, a second table has the differences on the same rows,
with paired bootstrap intervals. Each finished result is kept in --folder, so the same command continues where
it was interrupted; another version of the program measures again. Exit status: 0; 1 where a run failed; 2 for
bad input; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness.command import command_parser, run_benchmark, say
from benchmarks.harness.summary import render_table
from benchmarks.quality import baselines, networks
from benchmarks.quality.baselines import BASELINES
from benchmarks.quality.cells import cell_folder, differences, finished_or, scores, summarise
from benchmarks.quality.texts import open_job, rows_by_part

SYSTEMS = [*BASELINES, networks.RANDOM, "e5-small-zh"]
NGRAMS = ("ngrams+svm", "ngrams+logistic")
HEADER = ["job and system", "accuracy", "spread", "95 % interval", "macro F1", "spread", "minutes"]
DIFFERENCES = ["minus n-grams", "accuracy", "95 % interval", "of", "macro F1", "95 % interval", "of"]


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values."""
    parser = command_parser("quality", __doc__)
    add = parser.add_argument
    add(
        "--jobs",
        nargs="+",
        default=["sample"],
        metavar="JOB",
        help="sample, YAML files, labelled files (default: sample)",
    )
    add("--systems", nargs="+", default=SYSTEMS, metavar="SYSTEM", help=f"default: {' '.join(SYSTEMS)}")
    add("--seeds", type=int, default=3, help="number of seeds, from 1 on (default: 3)")
    add(
        "--folder", default=".cache/quality", help="where finished results are kept (default: .cache/quality)"
    )
    add(
        "--set",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="more settings of the fine-tuning, such as train.epochs=2; they belong to the result",
    )
    args = parser.parse_args(argv)
    if args.seeds < 1:
        parser.error("--seeds must be at least 1")
    return args


def measure(args: argparse.Namespace, made: Path, report: dict) -> bool:
    """Measure every system on every job, print a table after each job, and add all to the report."""
    report["results"] = {}
    # Before the first result, so that a mistake is not found hours later
    opened = [open_job(job) for job in args.jobs]
    for job, (settings, dataset) in zip(args.jobs, opened, strict=True):
        rows = rows_by_part(dataset)
        test = rows["test"]
        lines, measured = [], {}
        for system in args.systems:
            is_baseline = system in BASELINES
            program = baselines.program_version() if is_baseline else networks.program_version(system)
            key = f"{dataset.folder.name} {' '.join(args.set)} {program}"
            folder = cell_folder(Path(args.folder), job, system, key)
            cells = measured[system] = []
            for seed in range(1, args.seeds + 1):
                work = partial(
                    result, system, settings, dataset, rows, folder / f"seed-{seed}", seed, args.set
                )
                cells.append(finished_or(folder / f"seed-{seed}.json", work))
            summary = summarise(cells, test.labels)
            shown = {
                key: value
                for cell in cells[:1]
                for key, value in cell.items()
                if key in ("command", "strength")
            }
            report["results"].setdefault(job, {})[system] = summary | shown
            lines.append(line(system, summary))
        print(f"\n{render_table([f'{job}: {len(test.labels):,} test rows', *HEADER[1:]], lines)}", flush=True)
        ahead = against_ngrams(test.labels, measured, len(dataset.label_names))
        for system, found in ahead.items():
            report["results"][job][system]["against_ngrams"] = found
        if ahead:
            table = [difference_line(system, found) for system, found in ahead.items()]
            print(f"\n{render_table(DIFFERENCES, table)}", flush=True)
    return True


def against_ngrams(labels: np.ndarray, measured: dict[str, list[dict]], num_labels: int) -> dict[str, dict]:
    """Return, for each network, how much more accuracy and macro F1 it has than the n-grams with the most of
    it, and the intervals, see `differences`; nothing where no n-grams were measured."""
    ngrams = [name for name in NGRAMS if name in measured]
    found = {}
    for system in measured if ngrams else ():
        if system not in BASELINES:
            found[system] = {}
            for metric in ("accuracy", "macro_f1"):
                best = max(ngrams, key=lambda name: statistics.fmean(cell[metric] for cell in measured[name]))
                value, interval = differences(labels, measured[system], measured[best], num_labels)[metric]
                found[system][metric] = {"ngrams": best, "difference": value, "interval": list(interval)}
    return found


def difference_line(system: str, found: dict[str, dict]) -> list[str]:
    """Return a network's line of the table of differences."""
    words = [system]
    for of_metric in found.values():
        low, high = of_metric["interval"]
        words += [f"{of_metric['difference']:+.3f}", f"{low:+.3f} to {high:+.3f}", of_metric["ngrams"]]
    return words


def result(system, settings, dataset, rows, folder: Path, seed: int, extra: list[str]) -> dict:
    """Return the result of one system with one seed."""
    say(f"{folder.parent.name}, seed {seed} ...")
    started = time.perf_counter()
    if system in BASELINES:
        predicted, details = baselines.predict(system, rows, "dev" in dataset.splits, seed)
    else:
        arguments = [
            word for pair in extra for word in (f"--{pair.partition('=')[0]}", pair.partition("=")[2])
        ]
        predicted, details = networks.predict(system, settings, dataset, folder, seed, arguments)
    found = scores(rows["test"].labels, predicted, len(dataset.label_names))
    return found | details | {"minutes": (time.perf_counter() - started) / 60}


def line(system: str, summary: dict) -> list[str]:
    """Return a system's line of the table."""
    low, high = summary["interval"]
    figures = [f"{summary[name]:.3f}" for name in ("accuracy", "accuracy_spread")]
    figures += [f"{low:.3f} to {high:.3f}", f"{summary['macro_f1']:.3f}", f"{summary['macro_f1_spread']:.3f}"]
    return [system, *figures, f"{summary['minutes']:.1f}"]


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    args = parse(argv)
    return run_benchmark("quality", argv, partial(measure, args), args.output)


if __name__ == "__main__":
    sys.exit(main())
