"""Chinese text classifiers from Python: `load` a trained one, classify many files with it by `predict_files`,
or train a `TextClassifier` or a `TextRegressor` as any estimator of scikit-learn.

For a clone of the repository; an installed package has this name itself, and everything in app/ below it.
"""

from app.api import Model, TextClassifier, TextRegressor, load, predict_files

__all__ = ["Model", "TextClassifier", "TextRegressor", "load", "predict_files"]
