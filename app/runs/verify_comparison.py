"""What a mode computed against what one process computed in the same precision: how far they differ, and how
far they may. The help of the verb says why."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.linalg import vector_norm

from ..modes.mode import Tensors
from .verify_result import CONTROL, DTYPE_OF, OTHER_MASKS, TrainingResult, read_result, result_file

QUANTITIES = ("losses", "gradients", "weights", "logits")
FLOAT64_LIMIT = 1e-9  # of a relative difference
# A mode may differ this many times as much as the control: sums never round alike, and 4 times was seen
MAX_CONTROL_RATIO = 10.0
# Other masks of dropout must move the gradients at least so far: rounding moves them by less, in bf16 too
MIN_CONTROL_OF_MASKS = 0.02
# A smaller control counts as this: the norm by which gradients are clipped has such an error in float32
MIN_CONTROL = 1e-6
# What a pass in 16 bits returns. One state that rounds to the other of two neighbours moves these by up to
# half the distance of two numbers; whether the sums of the control cross such a boundary too is chance.
RETURNED_BY_PASSES = ("losses", "logits")


@dataclass(frozen=True)
class Comparison:
    """A mode, or a device, against one process in the same precision. `differences` of losses, last
    gradients, weights and logits: L2 norm of the difference, divided by that of the values. `control_ratio`:
    the largest ratio to those of the control, None in float64. `rows`: those counted. `reason` says why a
    mode was not run, or why it failed."""

    mode: str
    processes: int
    precision: str
    reason: str = ""
    differences: dict[str, float] | None = None
    control_ratio: float | None = None
    rows: str = "-"
    verdict: str = "FAIL"


def compare(comparison: Comparison, reference: Path, folder: Path) -> Comparison:
    """Compare the result that a mode wrote into `folder` with that of one process in the folder `reference`.
    PASS where every difference is in its limit, all rows were counted, the mode computed in the precision of
    the comparison, and states between layers have the dtypes that they have in one process."""
    precision = comparison.precision
    expected = read_result(result_file(reference, precision))
    result = read_result(result_file(folder, precision))
    if set(expected.tensors) != set(result.tensors):
        return replace(comparison, reason="the names of the parameters differ")
    differences = relative_differences(expected.tensors, result.tensors)
    limits = dict.fromkeys(QUANTITIES, FLOAT64_LIMIT)
    control_ratio = None
    if precision != "float64":
        control = read_result(result_file(reference, f"{precision}{CONTROL}"))
        limits = limits_by_control(expected.tensors, control.tensors, DTYPE_OF[precision])
        ratios = [differences[quantity] / limits[quantity] for quantity in QUANTITIES]
        control_ratio = MAX_CONTROL_RATIO * max(ratios)
    reasons = []
    for quantity in QUANTITIES:
        # A difference that is not a number is not in its limit
        if not differences[quantity] <= limits[quantity]:
            reasons.append(f"{quantity} differ by more than {limits[quantity]:.2g}")
    reasons += other_problems(expected, result, precision)
    return replace(
        comparison,
        differences=differences,
        control_ratio=control_ratio,
        rows=result.rows,
        verdict="FAIL" if reasons else "PASS",
        reason="; ".join(reasons),
    )


def limits_by_control(reference: Tensors, control: Tensors, dtype: torch.dtype) -> dict[str, float]:
    """Return how far a mode that computes in a dtype may differ, by how far another order of the rows moves
    the same figures."""
    rounding = relative_differences(reference, control)
    limits = {}
    for quantity in QUANTITIES:
        limits[quantity] = MAX_CONTROL_RATIO * max(rounding[quantity], MIN_CONTROL)
    if dtype.itemsize == 2:
        half_distance = torch.finfo(dtype).eps / 2
        for quantity in RETURNED_BY_PASSES:
            limits[quantity] = max(limits[quantity], half_distance)
    return limits


def check_control(comparison: Comparison, reference: Path, folder: Path) -> Comparison:
    """Compare one process with other masks of dropout, whose result is in `folder`. This must differ by far:
    else the comparison of modes would not see masks that depend on the rank."""
    expected = read_result(result_file(reference, comparison.precision))
    result = read_result(result_file(folder, f"{comparison.precision}{OTHER_MASKS}"))
    differences = relative_differences(expected.tensors, result.tensors)
    if not any(differences.values()):
        verdict = "no dropout"
    elif differences["gradients"] > MIN_CONTROL_OF_MASKS:
        verdict = "differs, as it must"
    else:
        verdict = "FAIL"
    return replace(comparison, differences=differences, rows=result.rows, verdict=verdict)


def relative_differences(reference: Tensors, result: Tensors) -> dict[str, float]:
    """Return for each of `QUANTITIES` the L2 norm of the difference divided by that of `reference`. Both have
    the same names; values of another shape are infinitely different."""
    differences = {}
    for quantity in QUANTITIES:
        names = [name for name in reference if name.split("/")[0] == quantity]
        differences[quantity] = _difference_together(names, reference, result)
    return differences


def _difference_together(names: list[str], reference: Tensors, result: Tensors) -> float:
    """Return the relative difference of the values with these names, taken together."""
    if any(reference[name].shape != result[name].shape for name in names):
        return math.inf
    norms = [float(vector_norm(reference[name])) for name in names]
    difference_norms = [float(vector_norm(reference[name] - result[name])) for name in names]
    return math.hypot(*difference_norms) / (math.hypot(*norms) or 1.0)


def other_problems(expected: TrainingResult, result: TrainingResult, precision: str) -> list[str]:
    """Return what is wrong with a result besides its figures, a clause for each problem."""
    problems = []
    dtype = str(DTYPE_OF[precision])
    if result.dtypes != [dtype]:
        problems.append(f"it computed in {', '.join(result.dtypes)}, and {dtype} was asked for")
    problem = different_states(expected.states, result.states)
    if problem:
        problems.append(problem)
    counted, wanted = result.rows.split(" of ")
    if counted != wanted:
        problems.append("not every row was counted once")
    return problems


def different_states(expected: dict[str, list[str]], states: dict[str, list[str]]) -> str:
    """Return where the dtypes of states of a mode are first not those of one process; nothing where all are
    the same."""
    for place in expected | states:
        dtypes = ", ".join(states.get(place, []))
        usual_dtypes = ", ".join(expected.get(place, []))
        if dtypes != usual_dtypes:
            return f"states {place} are {dtypes or 'missing'}, and {usual_dtypes or 'missing'} in one process"
    return ""
