"""Trains BERT-family classifiers on Chinese text; `docs/architecture.md` shows the way of the data.

In a clone this package is called `app`. Where it is installed it is called `chinese_text_classifier`, so that
it does not collide with the `app/` of another project; that is why all imports in here are relative.
"""

import importlib
import logging
import os
from typing import Any

__all__ = ["Model", "TextClassifier", "TextRegressor", "load", "predict_files"]

# Where DeepSpeed is installed, transformers imports it, and it writes its warnings to standard output, among
# reports and predictions. Its errors are raised as exceptions all the same.
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)

# ONNX Runtime (see its Privacy.md) and MLflow report their use to their makers: not from here, unless the
# user's environment says so. https://mlflow.org/docs/latest/community/usage-tracking
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def __getattr__(name: str) -> Any:
    """Import the Python API with its first use; the command line does without it."""
    if name in __all__:
        return getattr(importlib.import_module(".api", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
