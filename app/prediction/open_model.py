"""A folder with a model: what it says of itself, the settings and the data of its run or the record of an
export; which run predictions are made with where none is named; and its predictor."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from ..checkpoints.run_files import CHECKPOINTS, CONFIG, MODEL, holds_run
from ..checkpoints.run_history import finished_at
from ..config.command_line import load_data_settings
from ..config.schema import HINTS, LongTextMode
from ..config.yaml_files import read_yaml
from ..data.read import ReadOptions
from ..data.tokens import CUT, LongTexts, guarded
from ..errors import InputError, excerpt, listed, say
from ..report.commands import training_command
from ..runtime.disk import checked_value, checksum, read_json
from ..tasks import TASK_CLASSES, task_of_model
from ..tasks.task import FITTED_ON, Task
from ..words import _
from . import WantedPrecision
from .predictor import Predictor

if TYPE_CHECKING:
    from ..data.dataset import Dataset

logger = logging.getLogger(__name__)
RECORD, GRAPH, WEIGHTS, TOKENIZER = "export.json", "model.onnx", "model.onnx.data", "tokenizer.json"
# Predictions depend on these files in the folder of a model
MODEL_FILES = ("model*.safetensors", f"{MODEL}.index.json", "model.onnx*", "config.json", CONFIG, RECORD)
MODEL_FILES += ("decision.json", "logits.safetensors", "*token*", "*vocab*", "merges.txt", "*.model")
# Fields of the record of an export that decide what is answered
OF_ANSWERS = ("labels", "max_length", "truncation_side", "pad_id", "inputs", "problem_type", "data")
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
    `sha256` has the SHA-256 of each file, and `answers_digest` as that of export.json (None: not known).
    """

    labels: list[str]
    max_length: int | None
    truncation_side: Literal["left", "right"]
    pad_id: int
    inputs: list[str]
    precision: str
    problem_type: str
    data: dict
    files: dict[str, int | None]
    proof: dict
    made: dict
    sha256: dict[str, str] | None = None

    def answers_digest(self) -> str:
        """Return the SHA-256 of what this record itself says about answers."""
        values = [getattr(self, name) for name in OF_ANSWERS]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def is_exported(folder: Path) -> bool:
    """Return whether a folder was written by `export`."""
    return (folder / RECORD).is_file()


def read_record(folder: Path) -> ExportRecord:
    """Return the record of an exported folder; raises InputError for files that are damaged or not there."""
    path = folder / RECORD
    try:
        # An earlier version wrote no SHA-256
        values = {"sha256": None} | read_json(path, dict, "export again")
        checked_value(values, get_type_hints(ExportRecord), path, "the value", "export again")
        record = ExportRecord(**values)
    except (InputError, TypeError) as error:
        raise InputError(f"the record of an exported model cannot be read ({error}); export again") from error
    for name, size in record.files.items():
        file = folder / name
        found = file.stat().st_size if file.is_file() else None
        if found is None or size not in (None, found):
            raise InputError(
                f"{file}: the file must be there and have {size or 'any number of'} bytes, found "
                f"{'none' if found is None else found}; copy it or export again"
            )
    return record


def check_export(folder: Path, record: ExportRecord) -> None:
    """Raise InputError unless the files of an exported folder are as `export` wrote them; a warning says
    where its record does not know."""
    if record.sha256 is None:
        logger.warning("%s: the SHA-256 of its files is not recorded, so they are not checked.", folder)
        return
    for name, expected in record.sha256.items():
        path = folder / name
        found = "none"
        if name == RECORD:
            found = record.answers_digest()
        elif path.is_file():
            found = checksum(path)
        if found != expected:
            raise InputError(
                f"{path}: the exported model could not be loaded: this file must be as the export wrote it "
                f"(SHA-256 {expected[:12]}), found {found[:12]}: it is damaged or replaced; copy the folder "
                "again or, if it was changed on purpose, write null in place of the object of "
                f'"sha256" in {folder / RECORD}'
            )


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model that its predictions depend on."""
    return sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()})


def recorded_settings(folder: Path) -> dict[str, Any]:
    """Return the `data` settings that the model of a run or an export was trained with, as far as they are
    recorded, empty for a checkpoint of another program. Raises InputError for a damaged file."""
    if is_exported(folder):
        path, values = folder / RECORD, read_record(folder).data
    else:
        path = folder / CONFIG
        settings = read_yaml(path) if path.is_file() else None
        values = settings.get("data") if isinstance(settings, dict) else None
        if not isinstance(values, dict):
            # Other projects have a file of this name too
            if path.is_file() and holds_run(folder):
                rule = "the settings of a run must have the group data"
                raise InputError(f"{path}: {rule}, found {excerpt(settings)}; copy the file again")
            values = {}
    length, modes, (way, most) = values.get("max_length"), get_args(LongTextMode), long_texts(values)
    if length is not None and not (type(length) is int and 4 <= length < 1 << 31):
        rule = "data.max_length must be at least 4 tokens"
        raise InputError(f"{path}: {rule}, found {excerpt(length)}; fix the file")
    if way not in modes or type(most) is not int or most < 1:
        rule = f"data.long must be one of {listed(modes)}, and data.max_windows a number from 1"
        raise InputError(f"{path}: {rule}, found {excerpt(way)} and {excerpt(most)}; fix the file")
    for name in READING:
        if name in values:
            checked_value(values[name], HINTS[f"data.{name}"], path, f"data.{name}", "fix the file")
    return values


def long_texts(recorded: Mapping[str, Any]) -> LongTexts:
    """Return how a model with these `recorded_settings` read long texts in its training."""
    return LongTexts(recorded.get("long", CUT.way), recorded.get("max_windows", CUT.max_windows))


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
        task = recorded_settings(run).get("task")
        if task not in TASK_CLASSES or TASK_CLASSES[task].has_labels:
            return run
    message = _(
        "there is no finished run in {folder}/; train one with {command}, or name a folder with --checkpoint"
    )
    raise InputError(message.format(folder=folder, command=training_command()))


@dataclass(frozen=True)
class OpenedModel:
    """A model that can classify. `recorded` are the `data` settings that it was trained with, as far as they
    are known; from `threshold` on its labels are accepted."""

    folder: Path
    predictor: Predictor
    recorded: dict[str, Any] = field(default_factory=dict)
    threshold: float | None = None

    @property
    def has_pairs(self) -> bool | None:
        """Whether it was trained on pairs of texts, None where that is not known."""
        known = "text_pair_column" in self.recorded
        return self.recorded["text_pair_column"] is not None if known else None

    @property
    def text_columns(self) -> list[str] | None:
        """The columns whose texts it reads as one, where it was trained on several."""
        columns = self.recorded.get("text_column")
        return list(map(str, columns)) if isinstance(columns, list) else None


@dataclass(frozen=True)
class ComputeOptions:
    """On what a model computes: `device` and `precision` as in training, `batch_tokens` (None: as usual
    there), whether to `calibrate` probabilities as fitted on dev."""

    device: str = "auto"
    precision: str = "fp32"
    batch_tokens: int | None = None
    calibrate: bool = True

    def __post_init__(self) -> None:
        if self.precision not in ("fp32", "bf16"):
            raise InputError(f"the precision must be fp32 or bf16, found {excerpt(self.precision)}")


def open_model(
    folder: Path | None, options: ComputeOptions, threshold: float | WantedPrecision | None = None
) -> OpenedModel:
    """Return the model in `folder`, None for the run that finished last: exports by ONNX Runtime, without
    importing torch, all others by torch. Its threshold is as `decision_threshold` says. Raises InputError
    saying what is wrong."""
    folder = folder or choose_run()
    recorded = recorded_settings(folder)
    if is_exported(folder):
        if options.device not in ("auto", "cpu") or options.precision != "fp32":
            raise InputError(
                f"{folder}: an exported model computes on the CPU, in the precision of its export, found "
                f"--device {options.device} --precision {options.precision}; leave them out"
            )
        from tokenizers import Tokenizer

        from .onnx_runtime import OnnxRuntime, cuts_off_sums

        record = read_record(folder)
        if record.made.get("weight_bits") == 8 and cuts_off_sums():
            raise InputError(
                f"{folder}: its weights have 8 bits, for CPUs with VNNI, which this one has not; export "
                "again on this machine"
            )
        with guarded(f"{folder / TOKENIZER}: the tokenizer cannot be read; export again"):
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        task = task_of_model(record.problem_type, record.labels)
        task.read(folder, options.calibrate)
        # Before the graph is given to a library that may not survive a damaged one
        check_export(folder, record)
        about = (record.inputs, record.pad_id, record.precision)
        runtime = OnnxRuntime(folder / GRAPH, *about, options.batch_tokens)
        limits = record.max_length, record.truncation_side, long_texts(recorded)
        predictor = Predictor(runtime, tokenizer, task, *limits)
    else:
        from .torch_runtime import load_predictor

        length, long = recorded.get("max_length"), long_texts(recorded)
        predictor = load_predictor(folder, length, long, **asdict(options))
    return OpenedModel(folder, predictor, recorded, decision_threshold(folder, predictor.task, threshold))


def decision_threshold(folder: Path, task: Task, wanted: float | WantedPrecision | None) -> float | None:
    """Return the threshold for decisions, or None. One for a precision is chosen on the run's dev rows, and
    said with how well it does on others; raises InputError without these, and for a model of numbers."""
    if wanted is not None and task.predicts_number:
        raise InputError("this model gives no probability; leave out --threshold")
    if not isinstance(wanted, WantedPrecision):
        return wanted
    from ..report.confidence import choose_threshold
    from ..report.logits_file import LOGITS, read_run

    path = folder / LOGITS
    # Dev has chosen the thresholds of several labels a row
    splits = read_run(folder)[1] if path.exists() and not task.form.has_several else {}
    if FITTED_ON not in splits:
        raise InputError(
            f"--threshold precision=P needs a model of one label a row, and the logits of its run for dev "
            f"rows in {path}; train again with dev rows, or set --threshold to a probability"
        )
    dev, task.recall_at = splits[FITTED_ON], wanted.precision
    scores = task.score(dev.labels, dev.logits, calibrated=True)
    rows = scores.confidence, scores.correct, dev.hashes
    value, bound, said = choose_threshold(*rows, wanted.precision)
    say(said)
    if bound < wanted.precision:
        say(f"warning: that bound is below {wanted.precision:g}; more dev rows, or a higher precision, help")
    return value
