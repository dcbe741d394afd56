"""transformers' `pipeline("text-classification")`, batched, at its best: the fastest precision, batch size,
and order of the texts, sorted by length or not."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import pipeline

from benchmarks.harness.meter import Meter
from benchmarks.prediction.job import PredictionJob

BATCH_SIZES = {"cpu": (32, 8, 16, 64, 128), "cuda": (32, 128, 512, 1024)}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Settings(NamedTuple):
    """How the pipeline is called."""

    precision: str
    batch_size: int
    is_sorted: bool


def main(job: PredictionJob, meter: Meter) -> None:
    """Classify all texts at each step."""
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

    def classify(settings: Settings, texts: Sequence[str]) -> list[dict]:
        order = list(range(len(texts)))
        if settings.is_sorted:
            order.sort(key=lambda i: -len(texts[i]))
        classified = pipelines[settings.precision](
            [texts[i] for i in order],
            batch_size=settings.batch_size,
            truncation=True,
            max_length=job.max_length,
        )
        return [answer for _, answer in sorted(zip(order, classified, strict=True), key=lambda pair: pair[0])]

    best = job.fastest([Settings(precision, 32, True) for precision in job.precisions], classify)
    best = job.fastest([best._replace(batch_size=size) for size in BATCH_SIZES[job.device]], classify)
    best = job.fastest([best, best._replace(is_sorted=False)], classify)
    settings = f"batch {best.batch_size}, {'sorted by length' if best.is_sorted else 'in their order'}"
    meter.start(job.sizes, precision=best.precision, settings=settings)
    while True:
        meter.step_done([[answer["label"], answer["score"]] for answer in classify(best, job.texts)])
