"""Which run predictions are made with where none is named, and what is said of a model before it is used."""

import json
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ..checkpoints.run_folder import CHECKPOINTS, REPORT, finished_at
from ..errors import InputError
from ..report.metrics import BY_KEY, Metric
from ..tasks import TASKS, task_class
from ..words import _
from .exported_model import is_exported, read_record
from .recorded_settings import MODEL, all_settings

SAMPLE = "the sample set"


def choose_run(folder: Path = CHECKPOINTS) -> tuple[Path, list[str]]:
    """Return the classifier in `folder` that finished last, also if it is being trained for longer, and what
    a user should know about this choice.

    A trial is passed over where there is another run, see `_why_trial`; a run of masked language modelling is
    no classifier. Raises InputError where there is no run.
    """
    runs = {run: finished_at(run) for run in folder.glob("*") if os.path.isfile(run / MODEL)}
    finished = sorted((run for run in runs if runs[run] is not None), key=runs.get, reverse=True)
    trials: dict[Path, str] = {}
    for run in finished:
        settings = all_settings(run)
        task = settings["data"].get("task")
        if task in TASKS and not task_class(task).has_labels:
            # A pretraining
            continue
        why = _why_trial(settings, _report(run))
        if why is None:
            passed = [f"{trial} finished later, and is passed over: {trials[trial]}" for trial in trials]
            return run, [f"{note}; to use it, name it with --checkpoint" for note in passed]
        trials[run] = why
    if not trials:
        raise InputError(
            _(
                "there is no finished run in {folder}/; train one with python run_single.py, or name a "
                "folder with --checkpoint"
            ).format(folder=folder)
        )
    run, why = next(iter(trials.items()))
    return run, [f"warning: do not rely on this model: {why}"]


def _why_trial(settings: dict[str, dict], report: dict) -> str | None:
    """Return why a run was rather a trial than a training, or None: it did not see its training rows once, or
    it does not do better than a constant answer."""
    with suppress(KeyError, TypeError, ValueError):
        steps, rows = settings["train"]["max_steps"], report["data"]["train"]["rows"]
        seen = steps * settings["train"]["batch_size"]
        if seen < rows:
            return f"its training ended after {seen:,} of {rows:,} rows (--train.max_steps {steps})"
    with suppress(KeyError, TypeError, ValueError, StopIteration):
        metric = _shown_metric(settings)
        # The first baseline is a constant answer
        value, always = report[metric.key], next(iter(report["baselines"].values()))[metric.key]
        if not value > always:
            return f"its {metric.english} is {value:.4f}, and always the same answer has {always:.4f}"
    return None


def _shown_metric(settings: dict[str, dict]) -> Metric:
    """Return the metric by which a run is known; raises KeyError for one whose rows have no labels."""
    return BY_KEY[task_class(settings["data"]["task"]).beside_baselines[0]]


def _report(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        return report if isinstance(report, dict) else {}
    return {}


def describe_model(folder: Path) -> str | None:
    """Return what is known of a model: encoder, data, date, quality; None of another program's checkpoint."""
    if is_exported(folder):
        record = read_record(folder)
        made, at = record.made, str(record.made.get("at"))[:10]
        return f"{folder}: {record.precision} export of {made.get('from')}, {at}{_after(record.proof)}"
    settings = all_settings(folder)
    if not settings["model"]:
        return None
    name = settings["model"].get("name")
    encoder = f"from {name}" if name else "from random weights"
    train = settings["data"].get("train")
    said = f"{folder}: {encoder}, trained on {Path(str(train)).name if train else SAMPLE}"
    time = finished_at(folder)
    said += f", {datetime.fromtimestamp(time):%Y-%m-%d %H:%M}" if time else ", not finished"
    with suppress(KeyError, TypeError, ValueError):
        report, metric = _report(folder), _shown_metric(settings)
        rows = f"{report['rows']} rows of {report['split']}"
        said += f", {metric.english} {report[metric.key]:.4f} on {rows}"
    return said


def _after(proof: dict[str, Any]) -> str:
    metrics = [(key, value) for key, value in proof.items() if key.endswith("_after") and value is not None]
    if not metrics:
        return ""
    name = metrics[0][0].removesuffix("_after")
    shown = BY_KEY[name].english if name in BY_KEY else name
    return f", {shown} {metrics[0][1]:.4f} on {proof.get('rows')} rows"
