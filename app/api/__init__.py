"""Chinese text classifiers from Python: `load` a trained one, classify many files with it by `predict_files`,
or train a `TextClassifier` or a `TextRegressor` as in sklearn."""

from ..prediction.many_files import predict_files
from .model import Model, load
from .text_classifier import TextClassifier
from .text_regressor import TextRegressor

__all__ = ["Model", "TextClassifier", "TextRegressor", "load", "predict_files"]
