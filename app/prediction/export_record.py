"""The record in a folder that `export` wrote, and whether the folder's files are as the record says."""

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from ..errors import InputError
from ..runtime.disk import checked_value, checksum, read_json

logger = logging.getLogger(__name__)
RECORD = "export.json"
GRAPH = "model.onnx"
WEIGHTS = "model.onnx.data"
TOKENIZER = "tokenizer.json"
# Fields of the record that decide what the model answers
ANSWER_FIELDS = (
    "labels",
    "max_length",
    "truncation_side",
    "pad_id",
    "inputs",
    "problem_type",
    "data",
)


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
        values = [getattr(self, name) for name in ANSWER_FIELDS]
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def is_exported(folder: Path) -> bool:
    """Return whether a folder was written by `export`."""
    return (folder / RECORD).is_file()


def read_record(folder: Path) -> ExportRecord:
    """Return the record of an exported folder. Raises InputError for a record that cannot be read, and for
    files that are missing or have another size."""
    path = folder / RECORD
    # An earlier version wrote no SHA-256
    values: dict[str, Any] = {"sha256": None}
    try:
        values |= read_json(path, dict, "export again")
        checked_value(values, get_type_hints(ExportRecord), path, "the value", "export again")
        record = ExportRecord(**values)
    except (InputError, TypeError) as error:
        raise InputError(f"the record of an exported model cannot be read ({error}); export again") from error
    for name, size in record.files.items():
        _check_size(folder / name, size)
    return record


def _check_size(file: Path, expected: int | None) -> None:
    """Raise InputError unless the file is there and has the expected bytes (None: any number)."""
    num_bytes = "none"
    if file.is_file():
        num_bytes = file.stat().st_size
        if expected in (None, num_bytes):
            return
    raise InputError(
        f"{file}: the file must be there and have {expected or 'any number of'} bytes, found "
        f"{num_bytes}; copy it or export again"
    )


def check_export(folder: Path, record: ExportRecord) -> None:
    """Raise InputError unless the files of an exported folder are as `export` wrote them. A record without
    SHA-256 gives a warning."""
    if record.sha256 is None:
        logger.warning("%s: the SHA-256 of its files is not recorded, so they are not checked.", folder)
        return
    for name, expected in record.sha256.items():
        path = folder / name
        digest = "none"
        if name == RECORD:
            digest = record.answers_digest()
        elif path.is_file():
            digest = checksum(path)
        if digest != expected:
            raise InputError(
                f"{path}: the exported model could not be loaded: this file must be as the export wrote it "
                f"(SHA-256 {expected[:12]}), found {digest[:12]}: it is damaged or replaced; copy the folder "
                "again or, if it was changed on purpose, write null in place of the object of "
                f'"sha256" in {folder / RECORD}'
            )
