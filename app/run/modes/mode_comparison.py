"""Whether two modes did the same job: how far what they computed differs, and how far it may.

In float64 rounding is near 1e-15 and errors are far above it, so one limit fits every model. In lower
precision rounding depends on the model, and AdamW enlarges that of small gradients up to the learning rate.
There one process does the job a second time with the rows added up in another order; this *control* shows how
far rounding alone moves a result.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch.linalg import vector_norm

from .worker import DTYPE_OF

KINDS = ("losses", "gradients", "weights", "logits")
# Of a relative difference in float64
FLOAT64_LIMIT = 1e-9
# A mode may differ this many times as much as the control, because two ways to add rows up never round alike;
# 4 is the most that was seen
MAX_CONTROL_RATIO = 10.0
# A smaller control counts as this. The few losses may be equal by chance, and the norm by which gradients are
# clipped has an error of this size in float32, whatever the order of the rows; modes compute it differently.
MIN_CONTROL = 1e-6


@dataclass(frozen=True)
class Comparison:
    """One row of the table: a mode, compared with one process in the same `precision`.

    `differences`: of losses, last gradients, weights and logits, the L2 norm of the difference divided by the
    L2 norm of the values. `control`: the same numbers of the control; None in float64. `control_ratio`: the
    largest of their ratios. `rows` are those that an evaluation counted.
    """

    mode: str
    processes: int
    precision: str | None = None
    differences: dict[str, float] | None = None
    control: dict[str, float] | None = None
    control_ratio: float | None = None
    rows: int | None = None
    expected_rows: int | None = None
    verdict: str = "FAIL"
    reason: str = ""


def compare(mode: str, precision: str, reference: Path, result: Path, control: Path | None) -> Comparison:
    """Compare what a mode wrote with what one process wrote; PASS where every difference is in its limit, all
    rows were counted, and the mode computed in `precision`."""
    with safe_open(result, framework="pt") as file:
        metadata = file.metadata()
    processes, rows, expected = (int(metadata[name]) for name in ("processes", "rows", "expected_rows"))
    one_process, tensors = load_file(reference), load_file(result)
    if set(one_process) != set(tensors):
        return Comparison(mode, processes, precision, reason="the names of the parameters differ")
    differences = relative_differences(one_process, tensors)
    control_differences = relative_differences(one_process, load_file(control)) if control else None
    limits = dict.fromkeys(KINDS, FLOAT64_LIMIT)
    if control_differences:
        limits = {kind: MAX_CONTROL_RATIO * max(control_differences[kind], MIN_CONTROL) for kind in KINDS}
    reasons = [
        f"{kind} differ by more than {limits[kind]:.2g}"
        for kind in KINDS
        if not differences[kind] <= limits[kind]
    ]
    if metadata["dtypes"] != str(DTYPE_OF[precision]):
        reasons.append(f"it computed in {metadata['dtypes']}, and {DTYPE_OF[precision]} was asked for")
    if rows != expected:
        reasons.append("not every row was counted once")
    return Comparison(
        mode,
        processes,
        precision,
        differences,
        control_differences,
        max(differences[kind] / limits[kind] for kind in KINDS) * MAX_CONTROL_RATIO if control else None,
        rows,
        expected,
        "FAIL" if reasons else "PASS",
        "; ".join(reasons),
    )


def relative_differences(
    reference: dict[str, torch.Tensor], result: dict[str, torch.Tensor]
) -> dict[str, float]:
    """Return for each of `KINDS` the L2 norm of the difference divided by that of `reference`. Both have the
    same names. Another shape, or a value that is not finite, is an infinite difference."""
    squares = {kind: [0.0, 0.0] for kind in KINDS}
    for name, expected in reference.items():
        value, sums = result[name], squares[name.split("/")[0]]
        same_shape = value.shape == expected.shape
        sums[0] += float(vector_norm(value - expected)) ** 2 if same_shape else math.inf
        sums[1] += float(vector_norm(expected)) ** 2
    differences = {
        kind: math.sqrt(difference / (norm or 1.0)) for kind, (difference, norm) in squares.items()
    }
    return {kind: value if math.isfinite(value) else math.inf for kind, value in differences.items()}
