"""What the folder of a model says about its training. No other file looks into its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ..checkpoints.run_files import CHECKPOINTS, CONFIG, HISTORY, MODEL, holds_run
from ..checkpoints.run_history import TRAIN_COLUMNS, finished_at, read_starts
from ..config.command_line import load_data_settings
from ..config.earlier_values import with_present_names
from ..config.schema import HINTS, LongTextMode
from ..config.yaml_files import read_yaml
from ..data.read import ReadOptions
from ..data.tokens import CUT, LongTexts
from ..errors import InputError, excerpt, listed, say
from ..report.commands import training_command
from ..runtime.disk import checked_value
from ..tasks import TASK_CLASSES
from ..tasks.decision_file import DECISION
from ..tasks.task import Task
from ..tasks.thresholds import RARE_F1
from .export_record import RECORD, is_exported, read_record

if TYPE_CHECKING:
    from ..data.dataset import Dataset

# Predictions depend on these files in the folder of a model
MODEL_FILES = (
    "model*.safetensors",
    f"{MODEL}.index.json",
    "model.onnx*",
    "config.json",
    CONFIG,
    RECORD,
    "decision.json",
    "ngrams.*",
    "logits.safetensors",
    "*token*",
    "*vocab*",
    "merges.txt",
    "*.model",
)
# Settings of data that say how the rows of a file are read
READING = [option.name for option in fields(ReadOptions) if f"data.{option.name}" in HINTS]
MIN_LENGTH = 4  # tokens
MAX_LENGTH = (1 << 31) - 1  # tokens


@dataclass(frozen=True)
class TextColumns:
    """The names of the columns that a model reads: the text (several columns are read as one), and the second
    text of a pair. No text column: the names are not known."""

    texts: tuple[str, ...] = ()
    pair: str | None = None

    @property
    def names(self) -> list[str]:
        """All names, those of the text first."""
        names = list(self.texts)
        if self.pair is not None:
            names.append(self.pair)
        return names


@dataclass(frozen=True)
class TrainedModel:
    """How the model in a folder was trained, as far as the folder says.

    The model of another program has no settings of a training: `is_recorded` is False, and the other fields
    have their defaults. `reading` are the settings with which the files of the training were read. Rows were
    cut at `max_length` tokens (None: not known), unless `long_texts` says otherwise. `train_files` are the
    train files as the user named them. `set_labels` are the names of the labels in the order of their ids
    where the user set them; None: they were found in the train file. `best_metric` chose the weights.
    `train_columns` are the columns of text, text_pair and label in the train file, where they are known: a
    file that is read now may have others.
    """

    folder: Path
    is_recorded: bool = False
    reading: ReadOptions = field(default_factory=ReadOptions)
    max_length: int | None = None
    long_texts: LongTexts = CUT
    train_files: tuple[str, ...] = ()
    set_labels: tuple[str, ...] | None = None
    best_metric: str | None = None
    train_columns: Mapping[str, list[int | str]] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.reading.task

    @property
    def accepts_ids(self) -> bool:
        """Whether integers in a file may be ids of labels: only where the user named the labels, because the
        order of labels that came from a train file means nothing to another file."""
        return self.set_labels is not None

    @property
    def has_pairs(self) -> bool | None:
        """Whether it was trained on pairs of texts, None where that is not known."""
        if not self.is_recorded:
            return None
        return self.reading.text_pair_column is not None

    @property
    def columns(self) -> TextColumns:
        """The columns that it reads, as far as they are known."""
        texts = self.reading.text_column
        if texts is None:
            return TextColumns()
        if not isinstance(texts, list):
            texts = [texts]
        pair = self.reading.text_pair_column
        if pair is not None:
            pair = str(pair)
        return TextColumns(tuple(map(str, texts)), pair)

    @property
    def train_suffix(self) -> str:
        """The ending of the name of its first train file, in lower case; empty where that is not known."""
        if not self.train_files:
            return ""
        return Path(self.train_files[0]).suffix.lower()

    def check_pairs(self, has_pairs: bool, remedy: str) -> None:
        """Raise InputError for pairs of texts where it was trained on single texts, and the reverse."""
        if self.has_pairs in (None, has_pairs):
            return
        if has_pairs:
            rule = "the model was trained on single texts, found pairs"
        else:
            rule = "the model was trained on pairs of texts, found single texts"
        raise InputError(f"{self.folder}: {rule}; {remedy}")

    def settings(self) -> dict[str, Any]:
        """Return the settings from which `trained_with` makes this again, as values of JSON; none where the
        training is not recorded. Of the train files there is the first one, without its folder."""
        if not self.is_recorded:
            return {}
        settings = {name: getattr(self.reading, name) for name in READING}
        settings["max_length"] = self.max_length
        settings["long"] = self.long_texts.way
        settings["max_windows"] = self.long_texts.max_windows
        if self.train_files:
            settings["train"] = Path(self.train_files[0]).name
        if self.set_labels is not None:
            settings["labels"] = list(self.set_labels)
        if self.train_columns:
            settings[TRAIN_COLUMNS] = dict(self.train_columns)
        return settings


def read_trained_model(folder: Path) -> TrainedModel:
    """Return what the folder of a run, an export or a checkpoint of another program says of the training.
    Raises InputError for damaged files."""
    if is_exported(folder):
        return trained_with(folder, read_record(folder).data, source=folder / RECORD)
    path = folder / CONFIG
    if not path.is_file():
        return TrainedModel(folder)
    groups = read_yaml(path)
    if isinstance(groups, dict) and isinstance(groups.get("data"), dict):
        trained = trained_with(folder, groups["data"], groups.get("train"), source=path)
        return replace(trained, train_columns=_recorded_columns(folder))
    # Other programs have a file of this name too
    if holds_run(folder):
        rule = "the settings of a run must have the group data"
        raise InputError(f"{path}: {rule}, found {excerpt(groups)}; copy the file again")
    return TrainedModel(folder)


def _recorded_columns(folder: Path) -> dict[str, list[int | str]]:
    """Return the columns of the train file that the history of a run has, none of an earlier version."""
    starts = read_starts(folder)
    if not starts:
        return {}
    return _checked_columns(starts[0].get(TRAIN_COLUMNS), folder / HISTORY)


def _checked_columns(columns: Any, source: Path) -> dict[str, list[int | str]]:
    if columns is None:
        return {}
    return checked_value(columns, dict[str, list[int | str]], source, TRAIN_COLUMNS, "copy the folder again")


def trained_with(
    folder: Path, data: Mapping[str, Any], train: Any = None, source: Path | None = None
) -> TrainedModel:
    """Return the description of the model in `folder` by the groups `data` and `train` of its settings, which
    `source` has; settings that are not there have their defaults. Raises InputError for wrong values."""
    source = source or folder
    data = _with_present_names(data)
    max_length = data.get("max_length")
    is_length = type(max_length) is int and MIN_LENGTH <= max_length <= MAX_LENGTH
    if max_length is not None and not is_length:
        rule = f"data.max_length must be at least {MIN_LENGTH} tokens"
        raise InputError(f"{source}: {rule}, found {excerpt(max_length)}; fix the file")
    for name in (*READING, "train", "labels"):
        if name in data:
            checked_value(data[name], HINTS[f"data.{name}"], source, f"data.{name}", "fix the file")
    train_files = data.get("train") or []
    if isinstance(train_files, str):
        train_files = [train_files]
    set_labels = data.get("labels")
    best_metric = None
    if isinstance(train, dict):
        best_metric = train.get("best_metric")
    # A setting that is null has its default, which is null itself for nearly all of them
    reading = {name: data[name] for name in READING if data.get(name) is not None}
    return TrainedModel(
        folder,
        is_recorded=bool(data),
        reading=ReadOptions(**reading),
        max_length=max_length,
        long_texts=_long_texts(data, source),
        train_files=tuple(train_files),
        set_labels=None if set_labels is None else tuple(set_labels),
        best_metric=best_metric,
        train_columns=_checked_columns(data.get(TRAIN_COLUMNS), source),
    )


def _with_present_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the group data with the values that they have today."""
    settings = with_present_names({f"data.{name}": value for name, value in data.items()})
    return {name.removeprefix("data."): value for name, value in settings.items()}


def _long_texts(data: Mapping[str, Any], source: Path) -> LongTexts:
    """Return how long texts were read; raises InputError for values that cannot be."""
    way = data.get("long", CUT.way)
    max_windows = data.get("max_windows", CUT.max_windows)
    ways = get_args(LongTextMode)
    if way not in ways or type(max_windows) is not int or max_windows < 1:
        rule = f"data.long must be one of {listed(ways)}, and data.max_windows a number from 1"
        raise InputError(f"{source}: {rule}, found {excerpt(way)} and {excerpt(max_windows)}; fix the file")
    return LongTexts(way, max_windows)


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model that its predictions depend on."""
    paths: set[Path] = set()
    for pattern in MODEL_FILES:
        paths.update(path for path in folder.glob(pattern) if path.is_file())
    return sorted(paths)


def holds_model(folder: Path) -> bool:
    """Return whether a folder has a model, of this program or another one, or a run that has none yet."""
    names = ("config.json", MODEL)
    return any(os.path.isfile(folder / name) for name in names) or holds_run(folder) or is_exported(folder)


def choose_run(folder: Path = CHECKPOINTS) -> Path:
    """Return the classifier in `folder` that finished last, also if it is being trained for longer. A run of
    masked language modelling is no classifier. Raises InputError where there is no run."""
    times: dict[Path, float] = {}
    for run in folder.glob("*"):
        # os.path says no for a folder that may not be entered, where pathlib raises an error
        if not os.path.isfile(run / MODEL):
            continue
        time = finished_at(run)
        if time is not None:
            times[run] = time
    for run in sorted(times, key=times.get, reverse=True):
        if TASK_CLASSES[read_trained_model(run).task].has_labels:
            return run
    raise InputError(
        f"there is no finished run in {folder}/; train one with {training_command()}, or name a folder with "
        "--checkpoint"
    )


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


def warn_without_decision(trained: TrainedModel, task: Task) -> None:
    """Say that the decision of a run is not there, where its answers would be others with it. A process that
    is killed while it replaces its best model may leave none."""
    folder = trained.folder
    if not holds_run(folder) or (folder / DECISION).exists():
        return
    if task.form.has_several or trained.best_metric == RARE_F1:
        say(
            f"warning: {folder}: {DECISION} is not there, which says from which probability on a label is "
            "given; 0.5 is taken for all labels. It was removed, or the run was stopped while it saved this "
            "model: then finish it with --resume auto"
        )
