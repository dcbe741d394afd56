"""Many files, GPUs or machines: `predict --engine ray`, and the same in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data.read import ReadOptions
from ..errors import InputError
from .open_model import ComputeOptions


def predict_files(
    input: str | Path,
    output: str | Path,
    checkpoint: str | Path,
    *,
    output_format: str = "parquet",
    actors: int | None = None,
    on_bad_row: str = "keep",
    threshold: float | None = None,
    device: str = "auto",
    precision: str = "fp32",
    batch_tokens: int | None = None,
    **reading: Any,
) -> int:
    """Classify a file, a folder or a pattern of files into Parquet or csv files of a new folder, by Ray Data,
    and return the number of rows. The same call continues one that was stopped.

    `checkpoint` is the folder of the model, and `actors` how many processes have it (None: one for each GPU,
    else for each machine). The others are options of predict, `reading` those of how the files are read:
    `text_column`, `format` ... Raises InputError for wrong files, folders and values, TypeError for an
    unknown option, TrainingError for a full disk or where Ray cannot go on.
    """
    if output_format not in ("parquet", "csv"):
        raise InputError(f"output_format must be parquet or csv, found {output_format}")
    ReadOptions(**reading)
    try:
        from .ray_engine import RayJob, classify_files
    except ModuleNotFoundError as error:
        raise InputError(
            f"many files at once need Ray Data ({error}); install it: pip install -r requirements/ray.txt -c "
            "constraints.txt"
        ) from error
    compute = ComputeOptions(device, precision, batch_tokens)
    places = Path(checkpoint), str(input), Path(output).absolute()
    return classify_files(RayJob(*places, output_format, actors, reading, on_bad_row, threshold, compute))
