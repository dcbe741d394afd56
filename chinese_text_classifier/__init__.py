"""Chinese text classifiers from Python: `load` a trained one, or train a `TextClassifier` as any estimator of scikit-learn."""

from chinese_text_classifier.classifier import TextClassifier
from chinese_text_classifier.model import Model, load

__all__ = ["Model", "TextClassifier", "load"]
