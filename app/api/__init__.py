"""Chinese text classifiers from Python: `load` a trained one, classify many files with it by `predict_files`,
or train a `TextClassifier` as in sklearn."""

from ..prediction.many_files import predict_files
from .model import Model, load
from .text_classifier import TextClassifier

__all__ = ["Model", "TextClassifier", "load", "predict_files"]
