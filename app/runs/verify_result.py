"""What a training of `verify` computed, and the file that rank 0 writes it into.

A *training* is a precision (`float64`, `fp32`, `bf16`, `fp16`), or one of the last three with its *control*
(`fp32-control`): the same rows added up in another order, to see how far rounding alone moves a result. With
*other masks* (`float64-other-masks`) the masks of dropout are not those of the rows, which must be seen.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ..modes.mode import Tensors
from ..runtime.devices import DTYPES

DTYPE_OF = {"float64": torch.float64, "fp32": torch.float32} | DTYPES  # by precision
CONTROL = "-control"
OTHER_MASKS = "-other-masks"


@dataclass(frozen=True)
class TrainingResult:
    """What a mode computed. `tensors` are named losses, logits, gradients/NAME and weights/NAME. `rows` says
    how many rows were evaluated, "33 of 33". `dtypes` are those of the outputs of the first linear layer.
    `states` are the dtypes of states, by the place in the model where they were seen."""

    tensors: Tensors
    rows: str
    dtypes: list[str]
    states: dict[str, list[str]]


def precision_of(training: str) -> str:
    """Return the precision of a training: its first word."""
    return training.partition("-")[0]


def result_file(folder: Path, training: str) -> Path:
    """Return the file that has the result of a training."""
    return folder / f"{training}.safetensors"


def write_result(file: Path, result: TrainingResult) -> None:
    tensors = {name: values.contiguous() for name, values in result.tensors.items()}
    metadata = {
        "rows": result.rows,
        "dtypes": ", ".join(result.dtypes),
        "states": json.dumps(result.states),
    }
    save_file(tensors, file, metadata=metadata)


def read_result(file: Path) -> TrainingResult:
    with safe_open(file, framework="pt") as opened:
        metadata = opened.metadata()
    return TrainingResult(
        tensors=load_file(file),
        rows=metadata["rows"],
        dtypes=metadata["dtypes"].split(", "),
        states=json.loads(metadata["states"]),
    )
