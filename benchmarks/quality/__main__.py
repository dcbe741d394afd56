"""How good the classifiers are: accuracy and macro F1 of each system on each job, over several seeds, on the
same test rows.

python -m benchmarks.quality --jobs sample                                 all systems
python -m benchmarks.quality --jobs configs/waimai_10k.yaml reviews.csv --systems ngrams+svm e5-small-zh

A job is `sample`, a YAML file of settings, of which only `data` is used, or a labelled file. A system is a
baseline, random-bert, or any value of --model.name. Settings of the baselines are chosen on dev rows, never
on test rows. Where a network and n-grams are measured, a second table has the differences on the same rows,
with paired bootstrap intervals. Each finished result is kept in .cache/quality, so the same command continues
where it was interrupted; another version of the program measures again. Exit status: 0; 1 where a run failed;
2 for bad input; 130 when interrupted.
"""

import argparse
import re
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score

from app.commands.parser import Parser
from app.config.schema import DataConfig
from app.data.cache import content_key
from app.data.dataset import Dataset
from app.errors import say
from app.report.bootstrap import (
    Interval,
    interval_of,
    resampled_means,
    resampled_metrics,
)
from app.report.metrics import compared_metrics
from app.runtime.disk import read_json, write_json
from app.tasks import open_task
from app.tasks.scores import Scores
from app.text_table import text_table
from benchmarks.harness.command import POSITIVE, command_parser, run_benchmark
from benchmarks.quality import baselines, networks
from benchmarks.quality.baselines import BASELINES
from benchmarks.quality.texts import open_job, rows_by_part

FOLDER = Path(".cache/quality")  # where finished results are kept
SYSTEMS = [*BASELINES, networks.RANDOM, "e5-small-zh"]
NGRAMS = ("ngrams+svm", "ngrams+logistic")
METRICS = ("accuracy", "macro_f1")
HEADER = ["accuracy", "spread", "95 % interval", "macro F1", "spread", "minutes"]
DIFFERENCES = ["minus n-grams", "accuracy", "95 % interval", "of", "macro F1", "95 % interval", "of"]


def build_parser() -> Parser:
    """Return the parser of the command line."""
    parser = command_parser("quality", __doc__)
    add = parser.add_argument
    jobs = "sample, YAML files, labelled files (default: sample)"
    add("--jobs", nargs="+", default=["sample"], metavar="JOB", help=jobs)
    add("--systems", nargs="+", default=SYSTEMS, metavar="SYSTEM", help=f"default: {' '.join(SYSTEMS)}")
    add("--seeds", type=POSITIVE, default=3, help="number of seeds, from 1 on (default: 3)")
    settings = "more settings of the fine-tuning, such as train.epochs=2; they belong to the result"
    add("--set", nargs="*", default=[], metavar="KEY=VALUE", help=settings)
    return parser


def measure(options: argparse.Namespace, made: Path, report: dict) -> bool:
    """Measure every system on every job, print tables after each job, and add all to the report."""
    # Before the first result, so that a mistake is not found hours later
    opened = [open_job(job) for job in options.jobs]
    report["results"] = {}
    for job, (settings, dataset) in zip(options.jobs, opened, strict=True):
        report["results"][job] = measure_job(options, job, settings, dataset)
    return True


def measure_job(options: argparse.Namespace, job: str, settings: DataConfig, dataset: Dataset) -> dict:
    """Return the results of every system on a job, after printing them."""
    rows, results, cells = rows_by_part(dataset), {}, {}
    labels, num_labels = rows["test"].label.to_numpy(), len(dataset.label_names)

    def result(system: str, folder: Path, seed: int) -> dict:
        say(f"{folder.parent.name}, seed {seed} ...")
        started = time.perf_counter()
        if system in BASELINES:
            predicted, details = baselines.predict(system, rows, "dev" in dataset.splits, seed)
        else:
            more = [f"--{setting}" for setting in options.set]
            predicted, details = networks.predict(system, settings, dataset, folder, seed, more)
        minutes = (time.perf_counter() - started) / 60
        return scores(labels, predicted, num_labels) | details | {"minutes": minutes}

    lines = []
    for system in options.systems:
        is_baseline = system in BASELINES
        version = baselines.program_version() if is_baseline else networks.program_version(system)
        # Other data, other settings or another version of the program have another folder
        key = content_key(job, system, f"{dataset.folder.name} {' '.join(options.set)} {version}")[:8]
        readable = re.sub(r"[^\w.-]+", "-", f"{Path(job).stem}-{system}").strip("-")[-80:]
        cells[system] = []
        for seed in range(1, options.seeds + 1):
            folder = FOLDER / f"{readable}-{key}" / f"seed-{seed}"
            kept = folder.with_suffix(".json")
            if not kept.is_file():
                kept.parent.mkdir(parents=True, exist_ok=True)
                write_json(kept, result(system, folder, seed))
            cells[system].append(read_json(kept))
        first = {key: cells[system][0].get(key) for key in ("command", "strength")}
        results[system] = found = summarise(cells[system], labels) | first
        shown = "{accuracy:.3f}|{accuracy_spread:.3f}|{interval[0]:.3f} to {interval[1]:.3f}|{macro_f1:.3f}|"
        shown += "{macro_f1_spread:.3f}|{minutes:.1f}"
        lines.append([system, *shown.format(**found).split("|")])
    print(f"\n{text_table([f'{job}: {len(labels):,} test rows', *HEADER], lines)}", flush=True)
    lines = []
    ngrams = [name for name in NGRAMS if name in cells]
    for system in cells if ngrams else ():
        if system not in BASELINES:
            results[system]["against_ngrams"], words = {}, [system]
            for metric in METRICS:
                best = max(ngrams, key=lambda name: results[name][metric])
                value, interval = differences(labels, cells[system], cells[best], num_labels)[metric]
                found = {"ngrams": best, "difference": value, "interval": list(interval)}
                results[system]["against_ngrams"][metric] = found
                words += [f"{value:+.3f}", "{:+.3f} to {:+.3f}".format(*interval), best]
            lines.append(words)
    if lines:
        print(f"\n{text_table(DIFFERENCES, lines)}", flush=True)
    return results


def scores(labels: np.ndarray, predicted: np.ndarray, num_labels: int) -> dict:
    """Return accuracy, macro F1 and, for the interval over seeds, the predictions themselves."""
    macro_f1 = f1_score(labels, predicted, labels=np.arange(num_labels), average="macro", zero_division=0)
    accuracy = float((labels == predicted).mean())
    return {"accuracy": accuracy, "macro_f1": float(macro_f1), "predicted": predicted.tolist()}


def summarise(cells: list[dict], labels: np.ndarray) -> dict:
    """Return mean and standard deviation over seeds, the mean minutes, and the 95 % interval of the mean
    accuracy over test rows: how far the mean of these seeds would move with other rows."""
    right = np.mean([np.asarray(cell["predicted"]) == labels for cell in cells], axis=0)
    summary = {"interval": list(interval_of(resampled_means(right, np.random.default_rng(0))))}
    for name in (*METRICS, "minutes"):
        values = [cell[name] for cell in cells]
        summary[name] = statistics.fmean(values)
        summary[f"{name}_spread"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return summary


def differences(
    labels: np.ndarray, cells: list[dict], others: list[dict], num_labels: int
) -> dict[str, tuple[float, Interval]]:
    """Return how much more accuracy and macro F1 `cells` have than `others`, both the mean over their seeds,
    with the 95 % paired bootstrap interval over the test rows.

    `labels` (num_rows,) are the class ids of the test rows. A resample has the same rows for all.
    """
    task = open_task("single_label", [str(label) for label in range(num_labels)])
    predicted = [np.asarray(cell["predicted"]) for cell in (*cells, *others)]
    no_loss = np.zeros(len(labels))
    answers = [Scores(labels, of, of == labels, no_loss) for of in predicted]
    weights = np.repeat([1 / len(cells), -1 / len(others)], [len(cells), len(others)])
    metrics = [metric for metric in compared_metrics(task) if metric.key in METRICS]
    gains = {}
    for result in resampled_metrics(task, answers, weights, metrics):
        gains[result.metric.key] = (float(weights @ result.values), interval_of(result.draws))
    return gains


if __name__ == "__main__":
    sys.exit(run_benchmark(build_parser(), measure))
