"""This project's `predict`: `Predictor.predict` over rows, in the precision that is faster here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.data.read import ReadOptions
from app.data.rows import text_rows
from app.prediction.predictor import Prediction
from app.prediction.torch_runtime import load_predictor
from benchmarks.harness.meter import Meter, Sizes
from benchmarks.prediction.job import PredictionJob, fastest


def main(job: PredictionJob, meter: Meter) -> None:
    """Classify all texts at each step."""
    texts = job.texts
    predictors = {
        precision: load_predictor(
            Path(job.checkpoint), job.max_length, device=job.device, precision=precision
        )
        for precision in job.precisions
    }

    def classify(precision: str, some: Sequence[str]) -> list[Prediction]:
        return list(predictors[precision].predict(text_rows(list(some), ReadOptions())))

    precision = fastest(predictors, classify, texts[: job.probe_rows])
    meter.start(lambda steps: Sizes(len(texts) * steps, 0, 0), precision=precision, settings="its defaults")
    while True:
        predictions = classify(precision, texts)
        meter.step_done(
            [[prediction.answer, float(prediction.probabilities.max())] for prediction in predictions]
        )
