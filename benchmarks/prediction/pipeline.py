"""transformers' `pipeline("text-classification")`, batched, at its best.

Precision, batch size and whether the texts are sorted by length first are tried out, and the fastest of each
is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import pipeline

from benchmarks.harness.meter import Meter, Sizes
from benchmarks.prediction.job import PredictionJob, fastest

BATCH_SIZES = {"cpu": (8, 16, 32, 64, 128), "cuda": (32, 128, 512, 1024)}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Settings(NamedTuple):
    """How the pipeline is called."""

    precision: str
    batch_size: int
    is_sorted: bool


def main(job: PredictionJob, meter: Meter) -> None:
    """Classify all texts at each step."""
    texts = job.texts
    pipelines = {
        precision: pipeline(
            "text-classification",
            model=job.checkpoint,
            tokenizer=job.checkpoint,
            device=job.device,
            dtype=DTYPES[precision],
        )
        for precision in job.precisions
    }

    def classify(settings: Settings, some: Sequence[str]) -> list[dict]:
        order = (
            sorted(range(len(some)), key=lambda i: -len(some[i])) if settings.is_sorted else range(len(some))
        )
        classified = pipelines[settings.precision](
            [some[i] for i in order],
            batch_size=settings.batch_size,
            truncation=True,
            max_length=job.max_length,
        )
        answers: list[dict] = [{}] * len(some)
        for place, answer in zip(order, classified, strict=True):
            answers[place] = answer
        return answers

    best = search(job, lambda choices: fastest(choices, classify, texts[: job.probe_rows]))
    settings = f"batch {best.batch_size}, {'sorted by length' if best.is_sorted else 'in their order'}"
    meter.start(lambda steps: Sizes(len(texts) * steps, 0, 0), precision=best.precision, settings=settings)
    while True:
        meter.step_done([[answer["label"], answer["score"]] for answer in classify(best, texts)])


def search(job: PredictionJob, fastest_of) -> Settings:
    """Return the fastest settings, choosing one after the other; `fastest_of` measures a list of them."""
    start = Settings("fp32", 32, True)
    if job.fixed:
        return start
    best = fastest_of([start._replace(precision=precision) for precision in job.precisions])
    best = fastest_of([best._replace(batch_size=size) for size in BATCH_SIZES[job.device]])
    return fastest_of([best, best._replace(is_sorted=False)])
