"""Many files, GPUs or machines: `predict --engine ray`, and the same in Python."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from ..data.read import ReadOptions
from ..errors import InputError, nearest
from .open_model import ComputeOptions

OTHER_OPTIONS = ("on_bad_row", "threshold", "evidence")


def predict_files(
    input: str | Path,
    output: str | Path,
    checkpoint: str | Path,
    *,
    output_format: str = "parquet",
    actors: int | None = None,
    **options: Any,
) -> int:
    """Classify a file, a folder or a pattern of files into Parquet or csv files of a new folder, by Ray Data,
    and return the number of rows. The same call continues one that was stopped.

    `checkpoint` is the folder of the model, and `actors` how many processes have it (None: one for each GPU,
    else for each machine). `options` are those of predict: `on_bad_row`, `threshold`, `evidence`, `device`,
    `precision`, `batch_tokens`, `calibrate`, and how the files are read: `text_column`, `format` ... Raises
    InputError for wrong files, folders and options, TrainingError where it cannot go on.
    """
    computing, reading = ({one.name for one in fields(of)} for of in (ComputeOptions, ReadOptions))
    known = {*computing, *reading, *OTHER_OPTIONS}
    for name in options:
        if name not in known:
            raise InputError(f"predict_files has no option {name}{nearest(name, known)}")
    if output_format not in ("parquet", "csv"):
        raise InputError(f"output_format must be parquet or csv, found {output_format}")
    try:
        from .ray_engine import RayJob, classify_files
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise InputError(
            "many files at once need Ray Data; install it: pip install -r requirements/ray.txt -c "
            "constraints.txt"
        ) from error
    job = RayJob(
        Path(checkpoint),
        str(input),
        Path(output).absolute(),
        output_format,
        actors,
        asked={name: value for name, value in options.items() if name in reading},
        compute=ComputeOptions(**{name: options[name] for name in options if name in computing}),
        **{name: options[name] for name in options if name in OTHER_OPTIONS},
    )
    return classify_files(job)
