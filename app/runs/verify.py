"""Whether two modes do the same job: each trains a few steps in its own processes, and what comes out is
compared with what one process computes.

In float64 rounding is near 1e-15 and errors are far above it, so one limit fits every model. In lower
precision rounding depends on the model, and AdamW enlarges that of small gradients up to the learning rate.
There one process does the job a second time with the rows added up in another order; this *control* shows how
far rounding alone moves a result. A *training* is a precision (`float64`, `fp32`, `bf16`, `fp16`), or one of
the last three with its control (`fp32-control`).
"""

import math
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.linalg import vector_norm

from ..checkpoints.training_state import RunProgress
from ..config.schema import Config
from ..config.shipped import MODULE
from ..errors import InputError
from ..modes import mode_names, open_mode
from ..modes.mode import Mode
from ..runtime.devices import DTYPES
from ..training.build import build, set_up
from ..training.evaluate import evaluate
from ..training.step import StepResult, planned_steps, train_steps
from .series import child_environment, last_error, mode_command, say

KINDS = ("losses", "gradients", "weights", "logits")
CONTROL = "-control"
DTYPE_OF = {"float64": torch.float64, "fp32": torch.float32} | DTYPES
FLOAT64_LIMIT = 1e-9  # of a relative difference
# A mode may differ this many times as much as the control, because two ways to add rows up never round alike;
# 4 is the most that was seen
MAX_CONTROL_RATIO = 10.0
# A smaller control counts as this. The few losses may be equal by chance, and the norm by which gradients are
# clipped has an error of this size in float32, whatever the order of the rows; modes compute it differently.
MIN_CONTROL = 1e-6
# An odd number of rows in several batches, so that ranks evaluate different numbers of rows
MAX_EVALUATED_ROWS, EVALUATION_BATCH = 33, 8
TIMEOUT_SECONDS = 3600  # for the trainings of one mode


@dataclass(frozen=True)
class Comparison:
    """A mode, or a device, against one process in the same precision. `differences` of losses, last
    gradients, weights and logits: L2 norm of the difference, divided by that of the values. `control`: those
    of the control, None in float64; `control_ratio`: the largest ratio to it. `rows`: those counted."""

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


def compare_apart(
    planned: list[Comparison], folder: Path, steps: int, one_process: list[str], settings: list[str]
) -> list[Comparison]:
    """Train in one process with the settings `one_process`, then with `settings` what each row plans: a mode,
    or a device, in one process. Return the rows, compared; raises InputError where the job does not run in
    one process."""
    references, results = folder / "references", folder / "results"
    references.mkdir(), results.mkdir()
    precisions = {row.precision for row in planned if not row.reason}
    trainings = precisions | {f"{precision}{CONTROL}" for precision in precisions - {"float64"}}
    if failure := train_apart("single", 1, sorted(trainings), references, steps, one_process):
        raise InputError(f"the job does not run in one process: {failure}")
    rows = []
    for row in planned:
        mode = row.mode if row.mode in mode_names() else "single"
        if row.reason or row.mode == "single":
            rows.append(replace(row, precision=None, verdict="not run" if row.reason else "reference"))
        elif failure := train_apart(mode, row.processes, [row.precision], results, steps, settings):
            rows.append(replace(row, reason=failure))
        else:
            result = result_file(results, mode, row.precision)
            reference = result_file(references, "single", row.precision)
            control = result_file(references, "single", f"{row.precision}{CONTROL}")
            is_exact = row.precision == "float64"
            rows.append(compare(row.mode, row.precision, reference, result, None if is_exact else control))
    return rows


def train_apart(
    mode: str, processes: int, trainings: list[str], folder: Path, steps: int, settings: list[str]
) -> str | None:
    """Do trainings in a mode's own processes, with a line of progress; return why that failed, or None."""
    say(f"{mode}, {processes} process{'es' * (processes > 1)}, {', '.join(trainings)} ...")
    words = ["--worker", mode, str(folder), *trainings, "--steps", str(steps), *settings]
    command = mode_command(mode, processes, MODULE, "verify", *words)
    options = {"capture_output": True, "text": True, "timeout": TIMEOUT_SECONDS, "check": False}
    try:
        done = subprocess.run(command, env=child_environment(), **options)
    except subprocess.TimeoutExpired:
        return f"it did not end within {TIMEOUT_SECONDS} seconds"
    ended = f"it ended with status {done.returncode}: {done.stderr[-300:]}"
    return (last_error(done.stderr.splitlines()) or ended) if done.returncode else None


def run_trainings(config: Config, mode: str, steps: int, folder: str, trainings: list[str]) -> int:
    """Do each training in this process, one rank of `mode`; rank 0 writes the results into `folder`."""
    before = torch.get_default_dtype()
    for training in trainings:
        precision = training.removesuffix(CONTROL)
        settings = replace(config.train, max_steps=steps, log_every=1, early_stopping=None)
        # Without autocast, fp32 computes in the dtype of the weights
        settings = replace(settings, precision="fp32" if precision == "float64" else precision)
        if training.endswith(CONTROL):
            # The same rows are added up in another order
            settings = replace(settings, accumulation_steps=2 * settings.accumulation_steps)
        # Dropout makes modes differ by design
        comparable = replace(config, model=replace(config.model, dropout=0.0), train=settings)
        torch.set_default_dtype(torch.float64 if precision == "float64" else torch.float32)
        try:
            with open_mode(mode, comparable) as opened:
                train_and_write(opened, result_file(Path(folder), mode, training))
        finally:
            torch.set_default_dtype(before)
    return 0


def result_file(folder: Path, mode: str, training: str) -> Path:
    """Return the file that rank 0 of a mode writes for a training."""
    return folder / f"{mode}-{training}.safetensors"


def train_and_write(mode: Mode, file: Path) -> None:
    """Train a model with weights of the default dtype; every rank calls it. Rank 0 writes losses, last
    gradients, weights and logits, and as metadata processes, evaluated rows and the dtypes it computed in."""
    components = build(mode.config, mode)
    components.model.to(torch.get_default_dtype())
    set_up(mode, components)
    task, settings, plan = components.task, components.config.train, components.plan
    last_step, progress = planned_steps(plan, settings) - 1, RunProgress()
    losses: list[float] = []
    dtypes: set[str] = set()
    gradients: dict[str, torch.Tensor] = {}
    linear = next(module for module in mode.unwrapped_module().modules() if isinstance(module, nn.Linear))
    linear.register_forward_hook(lambda module, inputs, output: dtypes.add(str(output.dtype)))

    def before_update() -> None:
        # Gathering the gradients of every step would take longer than the steps
        if progress.step == last_step:
            gradients.update(mode.gradients())

    def after_step(progress: RunProgress, step: StepResult) -> None:
        losses.append(float(mode.group.reduce_sum(step.loss_sum)) / step.divisor)

    loaders = components.loaders
    train_steps(mode, loaders["train"], plan, task.loss, settings, progress, after_step, before_update)
    tested = loaders[next(name for name in ("test", "dev", "train") if name in loaders)]
    rows, labels = (values[:MAX_EVALUATED_ROWS] for values in (tested.split.rows, tested.split.labels))
    first_rows = task.loader(replace(tested.split, rows=rows, labels=labels), tested.store, tested.layout)
    results = evaluate(mode, first_rows, EVALUATION_BATCH, row_results=task.row_results)
    weights = mode.weights()
    if mode.group.rank != 0:
        return
    tensors = {"losses": torch.tensor(losses, dtype=torch.float64), "logits": torch.from_numpy(results)}
    tensors |= {f"gradients/{name}": value for name, value in gradients.items()}
    tensors |= {f"weights/{name}": value for name, value in weights.items()}
    metadata = {"processes": mode.group.world_size, "rows": len(results), "expected_rows": len(rows)}
    metadata = {name: str(value) for name, value in metadata.items()}
    metadata["dtypes"] = ", ".join(sorted(dtypes))
    save_file({name: value.contiguous() for name, value in tensors.items()}, file, metadata=metadata)


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
    rounding, ratio, limits = None, None, dict.fromkeys(KINDS, FLOAT64_LIMIT)
    if control:
        rounding = relative_differences(one_process, load_file(control))
        limits = {kind: MAX_CONTROL_RATIO * max(rounding[kind], MIN_CONTROL) for kind in KINDS}
        ratio = MAX_CONTROL_RATIO * max(differences[kind] / limits[kind] for kind in KINDS)
    far = [kind for kind in KINDS if not differences[kind] <= limits[kind]]
    reasons = [f"{kind} differ by more than {limits[kind]:.2g}" for kind in far]
    if metadata["dtypes"] != str(DTYPE_OF[precision]):
        reasons.append(f"it computed in {metadata['dtypes']}, and {DTYPE_OF[precision]} was asked for")
    if rows != expected:
        reasons.append("not every row was counted once")
    figures = (differences, rounding, ratio, rows, expected, "FAIL" if reasons else "PASS")
    return Comparison(mode, processes, precision, *figures, "; ".join(reasons))


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
    differences = {kind: math.sqrt(far / (norm or 1.0)) for kind, (far, norm) in squares.items()}
    return {kind: value if math.isfinite(value) else math.inf for kind, value in differences.items()}
