"""What the folder of a model says about it, read without torch: the settings and the data of its run, or the
record of an export; and which run predictions are made with where none is named."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints.run_folder import CHECKPOINTS, CONFIG, MODEL, finished_at
from ..config.command_line import load_data_settings, read_yaml
from ..data.read import ReadOptions
from ..data.tokens import LongTexts, saved_long_texts
from ..errors import InputError, excerpt
from ..runtime.disk import write_json
from ..tasks import TASK_CLASSES
from ..words import _

if TYPE_CHECKING:
    from ..data.dataset import Dataset

RECORD, GRAPH, WEIGHTS, TOKENIZER = "export.json", "model.onnx", "model.onnx.data", "tokenizer.json"
# What predictions depend on in the folder of a model
MODEL_FILES = ("model*.safetensors", f"{MODEL}.index.json", "model.onnx*", "config.json", CONFIG, RECORD)
MODEL_FILES += ("decision.json", "*token*", "*vocab*", "merges.txt", "*.model")
# Settings that say how the model reads a file again; an exported folder has them too
READING = ("train", "long", "max_windows", *(field.name for field in fields(ReadOptions)))


@dataclass(frozen=True)
class ExportRecord:
    """What is known about an exported model.

    `labels` are in the order of their ids, `problem_type` is transformers' word for the kind of answer. Rows
    are cut at `max_length` tokens (None: never) at `truncation_side`, unless `data` says otherwise: the
    settings with which the run read its files, empty where they are not known. `inputs` are the names of the
    graph's inputs. `files` are the files that the folder must have, by name, with their bytes (None: any).
    `proof` is how it was compared with the model that it was made from, `made` from what and with what.
    """

    labels: list[str]
    max_length: int | None
    truncation_side: str
    pad_id: int
    inputs: list[str]
    precision: str
    problem_type: str
    data: dict
    files: dict
    proof: dict
    made: dict


def is_exported(folder: Path) -> bool:
    """Return whether a folder was written by `export`."""
    return (folder / RECORD).is_file()


def write_record(folder: Path, record: ExportRecord) -> None:
    """Write the record of an exported folder."""
    write_json(folder / RECORD, asdict(record))


def read_record(folder: Path) -> ExportRecord:
    """Return the record of an exported folder; raises InputError for files that are damaged or not there."""
    path = folder / RECORD
    try:
        record = ExportRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: the record of an exported model cannot be read ({error}); export again"
        ) from error
    for name, size in record.files.items():
        file = folder / name
        found = file.stat().st_size if file.is_file() else None
        if found is None or size not in (None, found):
            raise InputError(
                f"{file}: the file must be there and have {size or 'any number of'} bytes, found "
                f"{'none' if found is None else found}; copy it or export again"
            )
    return record


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model that its predictions depend on."""
    return sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()})


def recorded_settings(folder: Path) -> dict[str, Any]:
    """Return the recorded `data` settings of a run or export, else none; raises InputError if damaged."""
    return read_record(folder).data if is_exported(folder) else run_settings(folder)


def run_settings(folder: Path, group: str = "data") -> dict[str, Any]:
    """Return a group of the settings that a run was trained with, empty for a checkpoint of another program;
    raises InputError for a damaged file."""
    path = folder / CONFIG
    settings = read_yaml(path) if path.is_file() else None
    values = settings.get(group) if isinstance(settings, dict) else None
    values = values if isinstance(values, dict) else {}
    length = values.get("max_length")
    if length is not None and not (type(length) is int and 4 <= length < 1 << 31):
        rule = "data.max_length must be at least 4 tokens"
        raise InputError(f"{path}: {rule}, found {excerpt(length)}; fix the file")
    return values


def run_long_texts(folder: Path) -> LongTexts:
    """Return how a run read long texts in its training; raises InputError where its settings are damaged."""
    return saved_long_texts(run_settings(folder), folder / CONFIG)


def settings_of_reading(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded settings that an exported folder keeps; of the train file, or the first of several,
    only its name."""
    kept = {name: recorded[name] for name in READING if name in recorded}
    if train := kept.get("train"):
        kept["train"] = Path(train if isinstance(train, str) else train[0]).name
    return kept


def check_pairs(folder: Path, recorded: Mapping[str, Any], given_pairs: bool, remedy: str) -> None:
    """Raise InputError for pairs of texts where the model was trained on single texts, and the reverse."""
    if "text_pair_column" in recorded and (recorded["text_pair_column"] is not None) != given_pairs:
        trained, given = ("single texts", "pairs") if given_pairs else ("pairs of texts", "single texts")
        raise InputError(f"{folder}: the model was trained on {trained}, found {given}; {remedy}")


def dataset_of_run(folder: Path, need: str, remedy: str) -> Dataset:
    """Return the dataset of a run; `need` is what for, and `remedy` what helps without it. Raises InputError
    for a folder that is no run, and for data that is not there any more."""
    from ..data.dataset import open_dataset

    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder}: {need} the data of a run, found no settings of one; {remedy}")
    try:
        return open_dataset(load_data_settings(path))
    except InputError as error:
        raise InputError(f"the data of {folder} cannot be read: {error}; or {remedy}") from error


def choose_run(folder: Path = CHECKPOINTS) -> Path:
    """Return the classifier in `folder` that finished last, also if it is being trained for longer; a run of
    masked language modelling is none. Raises InputError where there is no run."""
    runs = {run: finished_at(run) for run in folder.glob("*") if os.path.isfile(run / MODEL)}
    finished = sorted((run for run in runs if runs[run] is not None), key=runs.get, reverse=True)
    for run in finished:
        task = run_settings(run).get("task")
        if task not in TASK_CLASSES or TASK_CLASSES[task].has_labels:
            return run
    said = _(
        "there is no finished run in {folder}/; train one with python run_single.py, or name a folder "
        "with --checkpoint"
    )
    raise InputError(said.format(folder=folder))
