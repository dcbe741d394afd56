"""Which run predictions are made with where none is named, what is said of a model before it is used, and
texts to try it with."""

import csv
import json
import os
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from ..checkpoints.run_folder import CHECKPOINTS, PREDICTIONS, REPORT, finished_at
from ..errors import InputError
from ..report.metrics import BY_KEY
from ..tasks import TASK_CLASSES, task_class
from ..words import _
from .recorded_settings import MODEL, all_settings, is_exported, read_record

MAX_CHARACTERS, MAX_ROWS = 120, 500  # of an example, and rows that are looked at for examples


def choose_run(folder: Path = CHECKPOINTS) -> tuple[Path, list[str]]:
    """Return the classifier in `folder` that finished last, also if it is being trained for longer, and what
    a user should know about this choice.

    A run that did not see its training rows once was a trial, and is passed over where there is another run;
    a run of masked language modelling is no classifier. Raises InputError where there is no run.
    """
    runs = {run: finished_at(run) for run in folder.glob("*") if os.path.isfile(run / MODEL)}
    finished = sorted((run for run in runs if runs[run] is not None), key=runs.get, reverse=True)
    trials: dict[Path, str] = {}
    for run in finished:
        settings = all_settings(run)
        task = settings["data"].get("task")
        if task in TASK_CLASSES and not task_class(task).has_labels:
            continue
        with suppress(KeyError, TypeError, ValueError):
            steps, rows = settings["train"]["max_steps"], _report(run)["data"]["train"]["rows"]
            seen = steps * settings["train"]["batch_size"]
            if seen < rows:
                trials[run] = (
                    f"its training ended after {seen:,} of {rows:,} rows (--train.max_steps {steps})"
                )
                continue
        return run, [
            f"{trial} finished later, and is passed over: {why}; to use it, name it with --checkpoint"
            for trial, why in trials.items()
        ]
    if not trials:
        raise InputError(
            _(
                "there is no finished run in {folder}/; train one with python run_single.py, or name a "
                "folder with --checkpoint"
            ).format(folder=folder)
        )
    run, why = next(iter(trials.items()))
    return run, [f"warning: do not rely on this model: {why}"]


def _report(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        return report if isinstance(report, dict) else {}
    return {}


def describe_model(folder: Path) -> str | None:
    """Return what is known of a model: encoder, data, date, quality; None of another program's checkpoint."""
    if is_exported(folder):
        record = read_record(folder)
        made, proof = record.made, record.proof
        said = f"{folder}: {record.precision} export of {made.get('from')}, {str(made.get('at'))[:10]}"
        names = [key for key in proof if key.endswith("_after") and proof[key] is not None]
        for name in names[:1]:
            key = name.removesuffix("_after")
            shown = BY_KEY[key].english if key in BY_KEY else key
            said += f", {shown} {proof[name]:.4f} on {proof.get('rows')} rows"
        return said
    settings = all_settings(folder)
    if not settings["model"]:
        return None
    name, train, time = settings["model"].get("name"), settings["data"].get("train"), finished_at(folder)
    said = f"{folder}: {f'from {name}' if name else 'from random weights'}, trained on "
    said += Path(str(train)).name if train else "the sample set"
    said += f", {datetime.fromtimestamp(time):%Y-%m-%d %H:%M}" if time else ", not finished"
    with suppress(KeyError, TypeError, ValueError):
        report, metric = _report(folder), BY_KEY[task_class(settings["data"]["task"]).beside_baselines[0]]
        said += f", {metric.english} {report[metric.key]:.4f} on {report['rows']} rows of {report['split']}"
    return said


def example_inputs(folder: Path, count: int) -> list[str | list[str]]:
    """Return up to `count` texts, or pairs, of a run's test rows, as requests have them: the first row of
    each label, right or wrong, then others; none without the file of a run."""
    if not count:
        return []
    try:
        with (folder / PREDICTIONS).open(encoding="utf-8", newline="") as file:
            header, *rows = islice(csv.reader(file), MAX_ROWS + 1)
            first, last = header.index("text"), header.index("predicted") - 1
    # No such file, an empty one, or one of another program
    except (OSError, ValueError, csv.Error):
        return []
    short = [
        row for row in rows if len(row) == len(header) and sum(map(len, row[first:last])) <= MAX_CHARACTERS
    ]
    of_label = {row[last]: row for row in reversed(short)}
    chosen = [row for row in short if row is of_label[row[last]]]
    chosen += [row for row in short if row not in chosen]
    return [row[first] if last - first == 1 else row[first:last] for row in chosen[:count]]
