"""One process with one thread against two of them, which share the parts of a file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from unittest.mock import patch

from app.prediction.predictor import CHUNK_ROWS
from benchmarks.harness.command import say
from benchmarks.harness.rounds import Program
from benchmarks.harness.summary import ratios, render_table, spread
from benchmarks.prediction.job import PredictionJob
from benchmarks.prediction.parts import PartsJob
from benchmarks.prediction.runtimes import exported

PROCESSES = 2


def measure_processes(job: PredictionJob, rounds: int, folder: Path, report: dict) -> None:
    """Time both, in turns, with torch in fp32 and ONNX Runtime in int8; put the results into `report`.

    The texts are repeated until each of the processes has the same number of whole parts.
    """
    texts, whole = job.texts, PROCESSES * CHUNK_ROWS
    rows = -(-len(texts) // whole) * whole
    file = folder / "texts.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([["text"], *([text] for text in islice(cycle(texts), rows))])
    models = {"torch-fp32": job.checkpoint, "onnx-int8": str(exported(job, folder, "int8"))}
    report["processes"] = {}
    for name, model in models.items():
        jobs = [PartsJob(model, str(file), rows, str(folder / f"{name}-{count}")) for count in (1, PROCESSES)]
        answers = [*zip(*_rounds(name, jobs, rounds, folder), strict=True)]
        rates = [rows * rounds / sum(one["seconds"] for one in of_count) for of_count in answers]
        report["processes"][name] = {
            "rows": rows,
            "rows_per_second": dict(zip((1, PROCESSES), rates, strict=True)),
            "ratio": ratios(answers[1], answers[0]),
        }


def _rounds(name: str, jobs: list[PartsJob], rounds: int, folder: Path) -> Iterator[tuple[dict, dict]]:
    """Yield the answers of one process and of all of them; what takes longest ends a step."""
    with ExitStack() as stack, patch.dict(os.environ, {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}):
        programs = [
            stack.enter_context(Program(f"{name}-{number}", "benchmarks.prediction.parts", one, folder))
            for number, one in enumerate([jobs[0], *[jobs[1]] * PROCESSES])
        ]
        pool = stack.enter_context(ThreadPoolExecutor(PROCESSES))
        for number in range(1, rounds + 1):
            alone = programs[0].run(1)
            together = max(pool.map(lambda one: one.run(1), programs[1:]), key=lambda one: one["seconds"])
            say(f"round {number}, {name}: {alone['seconds']:.2f} s, {together['seconds']:.2f} s")
            yield alone, together


def render_processes(report: dict) -> str:
    """Return the table of the results."""
    rows = [
        [
            name,
            f"{one['rows']:,}",
            *(f"{rate:.1f}" for rate in one["rows_per_second"].values()),
            spread(one["ratio"]),
        ]
        for name, one in report["processes"].items()
    ]
    return render_table(["", "rows", "one, rows/s", "two, rows/s", "two / one"], rows)
