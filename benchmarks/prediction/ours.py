"""This project: from texts to labels, by torch and by ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path

from app.prediction.open_model import ComputeOptions, open_model
from app.prediction.predictor import Predictor
from app.prediction.sources import text_rows
from app.prediction.torch_runtime import load_predictor
from benchmarks.harness.meter import Meter
from benchmarks.prediction.job import PredictionJob


def predict(job: PredictionJob, meter: Meter) -> None:
    """Classify all texts at each step, in the precision that is faster here."""
    predictors = {
        name: load_predictor(Path(job.checkpoint), job.max_length, device=job.device, precision=name)
        for name in job.precisions
    }
    precision = job.fastest(predictors, lambda name, texts: classify(predictors[name], texts))
    serve(job, meter, predictors[precision], precision)


def onnx(job: PredictionJob, meter: Meter) -> None:
    """Classify all texts at each step; `job.checkpoint` is an exported folder."""
    predictor = open_model(Path(job.checkpoint), ComputeOptions()).predictor
    serve(job, meter, predictor, predictor.runtime.description["precision"])


def classify(predictor: Predictor, texts: Sequence[str]) -> list[list]:
    """Return the label and the probability of each text."""
    predictions = predictor.predict(text_rows(list(texts)))
    return [[prediction.answer, float(prediction.probabilities.max())] for prediction in predictions]


def serve(job: PredictionJob, meter: Meter, predictor: Predictor, precision: str) -> None:
    """Classify all texts at each step."""
    meter.start(job.sizes, precision=precision, settings="its defaults")
    while True:
        meter.step_done(classify(predictor, job.texts))
