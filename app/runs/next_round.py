"""A run and rows labelled since -> the run again with these rows too, and what they brought."""

import csv
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ..checkpoints.run_folder import is_finished
from ..checkpoints.run_history import CONFIG
from ..config.command_line import load_config
from ..data.dataset import Split
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

# How the new file is read, whatever the run's own files were
READING = {"format": "csv", "text_column": "text", "label_column": "label", "header": "true"}
READING |= {"encoding": "utf-8", "quoting": "double", "dev_size": "0", "test_size": "0", "verb": "{}"}
READING |= dict.fromkeys(("label_separator", "label_columns", "limit", "relabel", "dev", "test"), "null")
Texts = tuple[str, str]  # the second is empty unless the rows are pairs


def add_round(folder: Path, labelled: str, target: Path) -> str:
    """Write the training rows of the run in `folder` and the rows of the file `labelled` to `target`, train
    the run again with them, and return what that brought, on the run's own test rows.

    The dev and test rows are files beside `target`, and the new run is in a folder beside the old one, with
    the name of `target`; the same call continues it. Raises InputError for bad rows, and for files that are
    there with other content; TrainingError where the training fails.
    """
    dataset = dataset_of_run(folder, "suggest --add needs", "name another run with --checkpoint")
    task, _ = read_run(folder)
    rows = {name: labels_of(split, task) for name, split in dataset.splits.items()}
    new = new_rows(folder, labelled, {texts for split in rows.values() for texts, _ in split}, task)
    run, num_rows = folder.with_name(target.stem), len(rows["train"])
    rows["train"] += new.items()
    has_pairs, reading = dataset.splits["train"].table.has_pairs, dict(READING)
    reading["text_pair_column"] = "text_pair" if has_pairs else "null"
    for name, of_split in rows.items():
        path = target if name == "train" else target.with_name(f"{target.stem}-{name}.csv")
        write_rows(path, of_split, has_pairs)
        reading[name] = str(path)
    say(f"{target}: {num_rows:,} training rows of {folder} and {len(new):,} new ones; training {run}")
    if not is_finished(run):
        words = [word for name, value in reading.items() for word in (f"--data.{name}", value)]
        words += ["--output.dir", str(run), "--output.name", "null", "--output.resume", "auto"]
        status = work(load_config(["--config", str(folder / CONFIG), *words]), "single")
        if status:
            raise TrainingError(f"{run}: the training ended with status {status}; the same command continues")
    if rows.keys() == {"train"}:
        return f"{folder} has no dev or test rows, so that the two cannot be compared"
    return render_comparison(folder, run, compare_runs(folder, run))


def new_rows(folder: Path, labelled: str, known: set[Texts], task: Task) -> dict[Texts, str]:
    """Return the labels of the labelled texts that are not `known` to the run; raises InputError for an
    unknown label, and where there is no such text."""
    rows: dict[Texts, str] = {}
    left_out: Counter = Counter()
    # As suggest has written it, whatever the pool was
    options = recognised(Path(labelled), ReadOptions(encoding="utf-8"))
    asked = {"label_column": task.label_column, "encoding": options.encoding, "quoting": "double"}
    asked |= {"format": options.format} | ({"header": True} if FORMATS[options.format].has_header else {})
    source = open_file(labelled, recorded_settings(folder), asked, need_label=True)
    for row in source.rows("keep"):
        if not isinstance(row, Row):
            left_out["without a label"] += 1
            continue
        unknown = task.form.unknown(row.label, task.label_names)
        if unknown is not None:
            raise InputError(
                f"{source.name}, {source.place} {row.line}: the run has no label {unknown}; fix the row, or "
                "leave it out"
            )
        texts = (row.text, row.pair or "")
        if texts in known or texts in rows:
            left_out["known to the run" if texts in known else "repeated"] += 1
        else:
            rows[texts] = task.cell(task.form.of_texts([row.label], task.label_names)[0])
    said = ", ".join(f"{count:,} {what}" for what, count in left_out.items())
    if not rows:
        raise InputError(f"{labelled}: there is no new row with a label ({said or 'it is empty'})")
    say(f"{labelled}: {len(rows):,} new rows" + (f"; left out: {said}" if said else ""))
    return rows


def labels_of(split: Split, task: Task) -> list[tuple[Texts, str]]:
    """Return the texts of each row of a split, and its label as a file has it."""
    table = split.table
    texts = [(table.text(row), table.pair(row) or "") for row in split.rows.tolist()]
    return list(zip(texts, map(task.cell, split.labels), strict=True))


def write_rows(path: Path, rows: Iterable[tuple[Texts, str]], has_pairs: bool) -> None:
    """Write a file, unless it is there with the same content; raises InputError for another content."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["text", "text_pair", "label"] if has_pairs else ["text", "label"])
    writer.writerows([*texts, label] if has_pairs else [texts[0], label] for texts, label in rows)
    try:
        if not path.is_file() or path.read_bytes() != text.getvalue().encode():
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(text.getvalue())
    except OSError as error:
        why = "there is such a file" if isinstance(error, FileExistsError) else error.strerror
        raise InputError(f"{path}: cannot be written: {why}; choose another name") from error
