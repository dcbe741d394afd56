"""Which run predictions are made with where none is named, what is said of a model before it is used, and
texts to try it with."""

import csv
import json
import os
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

from ..checkpoints.run_folder import CHECKPOINTS, PREDICTIONS, REPORT, finished_at
from ..errors import InputError
from ..report.metrics import BY_KEY
from ..tasks import TASK_CLASSES, task_class
from ..words import _
from .recorded_settings import MODEL, is_exported, read_record, run_settings

MAX_CHARACTERS, MAX_ROWS = 120, 500  # of an example, and rows that are looked at for examples


def choose_run(folder: Path = CHECKPOINTS) -> Path:
    """Return the classifier in `folder` that finished last, also if it is being trained for longer; a run of
    masked language modelling is none. Raises InputError where there is no run."""
    runs = {run: finished_at(run) for run in folder.glob("*") if os.path.isfile(run / MODEL)}
    finished = sorted((run for run in runs if runs[run] is not None), key=runs.get, reverse=True)
    for run in finished:
        task = run_settings(run).get("task")
        if task not in TASK_CLASSES or task_class(task).has_labels:
            return run
    raise InputError(
        _(
            "there is no finished run in {folder}/; train one with python run_single.py, or name a folder "
            "with --checkpoint"
        ).format(folder=folder)
    )


def describe_model(folder: Path) -> str | None:
    """Return what is known of a model: encoder, data, date, quality; None of another program's checkpoint."""
    if is_exported(folder):
        record = read_record(folder)
        return f"{folder}: {record.precision} export of {record.made.get('from')}, {record.made.get('at')}"
    model, data, time = run_settings(folder, "model"), run_settings(folder), finished_at(folder)
    if not model:
        return None
    name, train = model.get("name"), data.get("train")
    said = f"{folder}: {f'from {name}' if name else 'from random weights'}, trained on "
    said += Path(str(train)).name if train else "the sample set"
    said += f", {datetime.fromtimestamp(time):%Y-%m-%d %H:%M}" if time else ", not finished"
    # A report may be missing, damaged, or of an earlier version
    with suppress(OSError, KeyError, TypeError, ValueError, RecursionError):
        report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        metric = BY_KEY[task_class(data["task"]).beside_baselines[0]]
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
    chosen = sorted(short, key=lambda row: row is not of_label[row[last]])[:count]
    return [row[first] if last - first == 1 else row[first:last] for row in chosen]
