"""The threshold of a run for a wanted precision."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..evaluation.calibration import FITTED_ON
from ..evaluation.logits_file import LOGITS, read_logits
from ..evaluation.measures.selective import Threshold, choose_threshold
from .predictor import Predictor


def choose_run_threshold(folder: Path, predictor: Predictor, precision: float) -> Threshold:
    """Return the threshold for a precision, chosen on the dev rows of a run; raises InputError where there is
    none."""
    path = folder / LOGITS
    remedy = "set --threshold yourself"
    if not path.exists():
        raise InputError(
            f"--abstain needs the logits of a run, and there is no {path}; train again, or {remedy}"
        )
    splits = read_logits(path).splits
    if FITTED_ON not in splits:
        raise InputError(f"--abstain needs a run with dev rows, and {path} has none; {remedy}")
    dev = splits[FITTED_ON]
    return choose_threshold(predictor.decisions_on(dev), dev.hashes, precision)
