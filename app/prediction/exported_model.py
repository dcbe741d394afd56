"""An exported folder: which files it has, and what its record says. It is read without torch."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path

from ..errors import InputError, excerpt
from ..runtime.disk import write_json

RECORD, GRAPH, WEIGHTS, TOKENIZER = "export.json", "model.onnx", "model.onnx.data", "tokenizer.json"
FORMAT = 1
SINGLE_LABEL, MULTI_LABEL = "single_label_classification", "multi_label_classification"


@dataclass(frozen=True)
class ExportRecord:
    """What is known about an exported model.

    `labels` are in the order of their ids. Rows are cut at `max_length` tokens (None: never) at
    `truncation_side`, unless `data` says otherwise: the settings with which the run read its files, empty
    where they are not known. `inputs` are the names of the graph's inputs, `graph_bytes` and `weights_bytes` the sizes of
    its files. `problem_type` is transformers' word for one label or any
    number; with any number, `label_rule` has the thresholds and limits of
    app/evaluation/multi_label/decisions.py. `proof` is how it was compared with the model that it was made
    from, `made` from what and with what; a quantised model has a `cpu_check`, see
    app/prediction/cpu_check.py.
    """

    labels: list[str]
    max_length: int | None
    truncation_side: str
    pad_id: int
    inputs: list[str]
    precision: str
    data: dict
    graph_bytes: int
    weights_bytes: int
    proof: dict
    made: dict
    cpu_check: dict = field(default_factory=dict)
    problem_type: str = SINGLE_LABEL
    label_rule: dict = field(default_factory=dict)
    format: int = FORMAT


def is_exported(folder: Path) -> bool:
    """Return whether a folder was written by `export`."""
    return (folder / RECORD).is_file()


def write_record(folder: Path, record: ExportRecord) -> None:
    """Write the record of an exported folder."""
    write_json(folder / RECORD, asdict(record))


def read_record(folder: Path) -> ExportRecord:
    """Return the record of an exported folder; raises InputError for a damaged one, and for files that are
    not whole."""
    path = folder / RECORD
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: the record of an exported model cannot be read ({error}); export again"
        ) from error
    version = values.get("format") if isinstance(values, dict) else None
    if version != FORMAT:
        raise InputError(
            f"{path}: format must be {FORMAT}, found {excerpt(version)}; export again with this version"
        )
    needed = [
        known.name for known in fields(ExportRecord) if known.default is known.default_factory is MISSING
    ]
    missing = [name for name in needed if name not in values]
    labels = values.get("labels")
    if (
        missing
        or not isinstance(labels, list)
        or len(labels) < 2
        or not all(isinstance(name, str) for name in labels)
        or not isinstance(values["data"], dict)
    ):
        raise InputError(
            f"{path}: the record is damaged ({', '.join(missing) or 'labels or data'}); export again"
        )
    record = ExportRecord(
        **{known.name: values[known.name] for known in fields(ExportRecord) if known.name in values}
    )
    sizes = {GRAPH: record.graph_bytes, WEIGHTS: record.weights_bytes, TOKENIZER: None}
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file():
            raise InputError(
                f"{folder}: an exported folder must have {name}, found none; copy it or export again"
            )
        found = file.stat().st_size
        if size not in (None, found):
            raise InputError(
                f"{file}: the file must have {size:,} bytes, found {found:,}; copy it or export again"
            )
    return record
