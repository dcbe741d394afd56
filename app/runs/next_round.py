"""A run and rows labelled since -> the run again with these rows too, and what they brought."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from ..checkpoints.run_folder import is_finished
from ..checkpoints.run_history import CONFIG
from ..config.command_line import load_config
from ..data.dataset import Dataset
from ..data.file_formats import FORMATS
from ..data.read import ReadOptions, recognised
from ..data.rows import Row
from ..errors import InputError, TrainingError
from ..prediction.recorded_settings import recorded_settings
from ..prediction.run_data import dataset_of_run
from ..prediction.sources import open_file
from ..report.logits_file import read_run
from ..run import work
from ..tasks.task import Task
from .comparing import compare_runs, render_comparison
from .series import say

COLUMNS = ("text", "text_pair", "label")
# How the new file is read, whatever the run's own files were
READING = {"format": "csv", "text_column": "text", "label_column": "label", "header": "true"}
READING |= {"encoding": "utf-8", "quoting": "double", "dev_size": "0", "test_size": "0", "verb": "{}"}
READING |= dict.fromkeys(("label_separator", "label_columns", "limit", "relabel", "dev", "test"), "null")


def add_round(folder: Path, labelled: str, target: Path) -> str:
    """Write the training rows of the run in `folder` and the rows of the file `labelled` to `target`, train
    the run again with them, and return what that brought, on the run's own test rows.

    The dev and test rows are files beside `target`, and the new run is in a folder beside the old one, with
    the name of `target`; the same call continues it. Raises InputError for bad rows, and for files that are
    there with other content; TrainingError where the training fails.
    """
    dataset = dataset_of_run(folder, "suggest --add needs", "name another run with --checkpoint")
    task, _ = read_run(folder)
    new = new_rows(folder, labelled, dataset, task)
    has_pairs = dataset.splits["train"].table.has_pairs
    held_out = [name for name in ("dev", "test") if name in dataset.splits]
    reading = READING | {"text_pair_column": "text_pair" if has_pairs else "null", "train": str(target)}
    _write(target, [*_split_rows(dataset, "train", task), *new], has_pairs)
    for name in held_out:
        reading[name] = str(target.with_name(f"{target.stem}-{name}.csv"))
        _write(Path(reading[name]), _split_rows(dataset, name, task), has_pairs)
    run = folder.with_name(target.stem)
    num_rows = len(dataset.splits["train"])
    say(f"{target}: {num_rows:,} training rows of {folder} and {len(new):,} new ones; training {run}")
    if not is_finished(run):
        words = [word for name, value in reading.items() for word in (f"--data.{name}", value)]
        words += ["--output.dir", str(run), "--output.name", "null", "--output.resume", "auto"]
        status = work(load_config(["--config", str(folder / CONFIG), *words]), "single")
        if status:
            raise TrainingError(f"{run}: the training ended with status {status}; the same command continues")
    if not held_out:
        return f"{folder} has no dev or test rows, so that the two cannot be compared"
    return render_comparison(folder, run, compare_runs(folder, run))


def new_rows(folder: Path, labelled: str, dataset: Dataset, task: Task) -> list[list[str]]:
    """Return text, second text and label of the labelled rows that the run does not know, each text once;
    raises InputError for an unknown label, and where there is no such row."""
    known = {row[:2] for name in dataset.splits for row in _split_rows(dataset, name, task)}
    rows, counts = {}, {"without a label": 0, "known to the run": 0, "repeated": 0}
    # As suggest has written it, whatever the pool was
    options = recognised(Path(labelled), ReadOptions(encoding="utf-8"))
    asked = {"label_column": task.label_column, "encoding": options.encoding, "quoting": "double"}
    format = options.format
    asked |= {"format": format} | ({"header": True} if FORMATS[format].has_header else {})
    source = open_file(labelled, recorded_settings(folder), asked, need_label=True)
    for row in source.rows("keep"):
        if not isinstance(row, Row):
            counts["without a label"] += 1
            continue
        unknown = task.form.unknown(row.label, task.label_names)
        if unknown is not None:
            raise InputError(
                f"{source.name}, {source.place} {row.line}: the run has no label {unknown}; fix the row, or "
                "leave it out"
            )
        texts = (row.text, row.pair or "")
        counts["known to the run"] += texts in known
        counts["repeated"] += texts in rows
        if texts not in known and texts not in rows:
            rows[texts] = task.cell(task.form.of_texts([row.label], task.label_names)[0])
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    if not rows:
        raise InputError(f"{labelled}: there is no new row with a label ({said or 'it is empty'})")
    say(f"{labelled}: {len(rows):,} new rows" + (f"; left out: {said}" if said else ""))
    return [[*texts, label] for texts, label in rows.items()]


def _split_rows(dataset: Dataset, name: str, task: Task) -> Iterator[tuple[str, str, str]]:
    split = dataset.splits[name]
    for row, label in zip(split.rows.tolist(), split.labels, strict=True):
        yield split.table.text(row), split.table.pair(row) or "", task.cell(label)


def _write(path: Path, rows: list | Iterator, has_pairs: bool) -> None:
    """Write a file, unless it is there with the same content; raises InputError for another content."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([name for name in COLUMNS if has_pairs or name != "text_pair"])
    writer.writerows(row if has_pairs else (row[0], row[2]) for row in rows)
    if path.is_file() and path.read_bytes() == text.getvalue().encode():
        return
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text.getvalue())
    except FileExistsError as error:
        raise InputError(f"{path}: there is such a file; choose another name") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
