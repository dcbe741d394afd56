"""This project's evaluation during training: `app.training.step.evaluate` over rows that are tokenised
already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.batching.loader import Loader
from app.config.command_line import load_config
from app.modes import load_mode
from app.runtime.machine import set_up_machine
from app.tasks.task import softmax as probabilities
from app.training.build import build, set_up
from app.training.evaluate import BATCH_ROWS, evaluate
from benchmarks.harness.meter import Meter, Sizes
from benchmarks.prediction.job import PredictionJob, fastest


def main(job: PredictionJob, meter: Meter) -> None:
    """Evaluate all rows at each step."""
    configs = {name: load_config([*job.our_arguments, "--train.precision", name]) for name in job.precisions}
    modes = {name: load_mode("single")(config) for name, config in configs.items()}
    for name, mode in modes.items():
        with mode:
            set_up_machine(configs[name].train, mode.device, 1)
            parts = build(configs[name], mode)
            set_up(mode, parts)
    loader = parts.loaders["train"]
    positions = np.array(job.positions)

    def classify(precision: str, some: Sequence[str]) -> np.ndarray:
        wanted = positions[: len(some)]
        split = replace(loader.split, rows=loader.split.rows[wanted], labels=loader.split.labels[wanted])
        return evaluate(modes[precision], Loader(split, loader.store, loader.layout), BATCH_ROWS)

    texts = job.texts
    precision = fastest(modes, classify, texts[: job.probe_rows])
    names = parts.dataset.label_names
    settings = f"batch {BATCH_ROWS}"
    meter.start(lambda steps: Sizes(len(texts) * steps, 0, 0), precision=precision, settings=settings)
    while True:
        predicted = probabilities(classify(precision, texts))
        meter.step_done([[names[int(row.argmax())], float(row.max())] for row in predicted])
