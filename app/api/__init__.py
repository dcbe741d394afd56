"""Chinese text classifiers from Python: `load` a trained one, or train a `TextClassifier` as in sklearn."""

from .estimator import TextClassifier
from .model import Model, load

__all__ = ["Model", "TextClassifier", "load"]
