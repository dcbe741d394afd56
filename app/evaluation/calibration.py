"""calibration.json of a run: the temperature that was fitted on dev, and what it does to the rows of the
report."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from ..errors import InputError
from .logits_file import SplitLogits
from .measures.calibration_error import confidence_bins
from .measures.row_scores import RowScores, score_rows
from .measures.temperature import fit_temperature

CALIBRATION = "calibration.json"
# Never on test, which is there to measure
FITTED_ON = "dev"


def calibrate(dev: SplitLogits, report: SplitLogits, split: str) -> dict:
    """Return the temperature fitted on dev, and `loss` and `ece` of the rows of the report, on `split`,
    before and after."""
    fitted = {
        "temperature": fit_temperature(dev.labels, dev.logits),
        "fitted_on": FITTED_ON,
        "rows": len(dev),
    }
    return fitted | effect(fitted["temperature"], report.labels, report.logits, split)


def effect(temperature: float, labels: np.ndarray, logits: np.ndarray, split: str) -> dict:
    """Return what a temperature does to the rows of `labels`, (num_rows,), and `logits`, (num_rows,
    num_labels)."""
    before, after = (_figures(score_rows(labels, logits, value)) for value in (1.0, temperature))
    return {"measured_on": split, "before": before, "after": after}


def _figures(scores: RowScores) -> dict:
    bins = confidence_bins(scores.confidence, scores.correct)
    return {"loss": float(scores.loss.mean()), "ece": bins.error}


def render_calibration(calibration: dict) -> str:
    """Return a line for people; `calibration` of `calibrate`."""
    before, after = calibration["before"], calibration["after"]
    same = ", the rows it was fitted on" if calibration["measured_on"] == calibration["fitted_on"] else ""
    return (
        f"Calibration: temperature {calibration['temperature']:.3f}, fitted on {calibration['rows']:,} rows "
        "of "
        f"{calibration['fitted_on']}; on {calibration['measured_on']}{same}: loss {before['loss']:.4f} to "
        f"{after['loss']:.4f}, "
        f"calibration error {before['ece']:.4f} to {after['ece']:.4f}"
    )


def run_temperature(folder: Path) -> float:
    """Return the temperature of a run, 1 for a folder without calibration.json; raises InputError for a
    damaged one."""
    return float(run_calibration(folder).get("temperature", 1.0))


def run_calibration(folder: Path) -> dict:
    """Return `temperature`, `fitted_on` and `rows` of a run, nothing for a folder without calibration.json.

    Raises InputError for a damaged one.
    """
    path = folder / CALIBRATION
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        temperature = found["temperature"]
        if not (type(temperature) in (int, float) and math.isfinite(temperature) and temperature > 0):
            raise ValueError(f"temperature {temperature!r}")
        return {"temperature": temperature, "fitted_on": FITTED_ON, "rows": int(found.get("rows", 0))}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path}: a temperature above 0 is needed, and this file cannot be read: {error!r}; restore it, "
            "or classify "
            "without it: --calibrate none"
        ) from error
