"""Chinese text classifiers from Python: `load` a trained one, or train a `TextClassifier` as any estimator of
scikit-learn.

For a clone of the repository; an installed package has this name itself, and everything in app/ below it.
"""

from app.api import Model, TextClassifier, load

__all__ = ["Model", "TextClassifier", "load"]
