"""An exported folder: which files it has, and what its record says. It is read without torch."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import InputError
from ..runtime.disk import write_json

RECORD, GRAPH, WEIGHTS, TOKENIZER = "export.json", "model.onnx", "model.onnx.data", "tokenizer.json"


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
    """Return the record of an exported folder; raises InputError for damaged files."""
    path = folder / RECORD
    try:
        record = ExportRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: the record of an exported model cannot be read ({error}); export again"
        ) from error
    _check_files(folder, record.files)
    return record


def _check_files(folder: Path, files: dict[str, int | None]) -> None:
    """Raise InputError for a file that is not there, or not whole."""
    for name, size in files.items():
        file = folder / name
        if not file.is_file():
            raise InputError(
                f"{folder}: an exported folder must have {name}, found none; copy it or export again"
            )
        bytes_there = file.stat().st_size
        if size not in (None, bytes_there):
            raise InputError(
                f"{file}: the file must have {size:,} bytes, found {bytes_there:,}; copy it or export again"
            )
