"""This project's `predict` with an exported folder: `Predictor.predict` over rows, by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

from app.data.read import ReadOptions
from app.data.rows import text_rows
from app.prediction.onnx_runtime import load_exported
from benchmarks.harness.meter import Meter, Sizes
from benchmarks.prediction.job import PredictionJob


def main(job: PredictionJob, meter: Meter) -> None:
    """Classify all texts at each step; `job.checkpoint` is an exported folder."""
    texts = job.texts
    predictor, record = load_exported(Path(job.checkpoint))
    meter.start(
        lambda steps: Sizes(len(texts) * steps, 0, 0), precision=record.precision, settings="its defaults"
    )
    while True:
        predictions = list(predictor.predict(text_rows(texts, ReadOptions())))
        meter.step_done(
            [[prediction.answer, float(prediction.probabilities.max())] for prediction in predictions]
        )
