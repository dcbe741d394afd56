"""Whether two modes do the same job: each trains a few steps in its own processes, and what comes out is
compared with what one process computes. The help of the verb says how far they may differ.

A *training* is a precision (`float64`, `fp32`, `bf16`, `fp16`), or one of the last three with its *control*
(`fp32-control`): the same rows added up in another order, to see how far rounding alone moves a result.
"""

import json
import math
import subprocess
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.linalg import vector_norm
from torch.utils._pytree import tree_leaves

from ..checkpoints.progress import RunProgress
from ..config.schema import Config
from ..config.shipped import MODULE
from ..errors import InputError, say
from ..modes import MODES, check_world_size, load_mode
from ..modes.launch import launch_command
from ..modes.mode import Mode, Tensors
from ..runtime.devices import DTYPES
from ..runtime.processes import child_environment
from ..training.build import build
from ..training.evaluation import evaluate_rows
from ..training.step import planned_steps, train_steps
from ..training.step_results import StepResult
from .child_process import last_error

KINDS = ("losses", "gradients", "weights", "logits")
CONTROL = "-control"
DTYPE_OF = {"float64": torch.float64, "fp32": torch.float32} | DTYPES
FLOAT64_LIMIT = 1e-9  # of a relative difference
# A mode may differ this many times as much as the control: sums never round alike, and 4 times was seen
MAX_CONTROL_RATIO = 10.0
# A smaller control counts as this: the norm by which gradients are clipped has such an error in float32
MIN_CONTROL = 1e-6
# An odd number of rows in several batches, so that ranks evaluate different numbers of rows
MAX_EVALUATED_ROWS, EVALUATION_BATCH = 33, 8


@dataclass(frozen=True)
class Comparison:
    """A mode, or a device, against one process in the same precision. `differences` of losses, last
    gradients, weights and logits: L2 norm of the difference, divided by that of the values. `control_ratio`:
    the largest ratio to those of the control, None in float64. `rows`: those counted."""

    mode: str
    processes: int
    precision: str
    reason: str = ""
    differences: dict[str, float] | None = None
    control_ratio: float | None = None
    rows: str = "-"
    verdict: str = "FAIL"


def compare_apart(
    planned: list[Comparison], steps: int, one_process: list[str], settings: list[str]
) -> list[Comparison]:
    """Train in one process with the settings `one_process`, then with `settings` what each row plans. Return
    the rows, compared; raises InputError where the job does not run in one process."""

    def why_failed(mode: str, processes: int, trainings: set[str], folder: Path, words: list[str]) -> str:
        """Do trainings in a mode's own processes, with a line of progress; return nothing where they end."""
        say(f"{mode}, {processes} process{'es' * (processes > 1)}, {', '.join(sorted(trainings))} ...")
        folder.mkdir()
        words = ["--worker", mode, str(folder), *sorted(trainings), "--steps", str(steps), *words]
        command = launch_command(load_mode(mode).launcher, ["-m", MODULE, "verify", *words], processes)
        done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=False)
        ended = f"it ended with status {done.returncode}: {done.stderr[-300:]}"
        return (last_error(done.stderr.splitlines()) or ended) if done.returncode else ""

    with TemporaryDirectory() as temporary:
        reference, rows = Path(temporary, "reference"), []
        precisions = {row.precision for row in planned if not row.reason}
        controls = {f"{precision}{CONTROL}" for precision in precisions - {"float64"}}
        if failure := why_failed("single", 1, precisions | controls, reference, one_process):
            raise InputError(f"the job does not run in one process: {failure}")
        for row in planned:
            folder, mode = Path(temporary, row.mode), row.mode if row.mode in MODES else "single"
            if row.reason or row.mode == "single":
                rows.append(replace(row, precision="-", verdict="not run" if row.reason else "reference"))
            elif failure := why_failed(mode, row.processes, {row.precision}, folder, settings):
                rows.append(replace(row, reason=failure))
            else:
                rows.append(compare(row, reference, folder))
    return rows


def run_trainings(config: Config, steps: int, mode: str, folder: str, *trainings: str) -> int:
    """Do each training in this process, one rank of `mode`; rank 0 writes the results into `folder`."""
    for training in trainings:
        precision = training.removesuffix(CONTROL)
        settings = replace(config.train, max_steps=steps, log_every=1, early_stopping=None)
        # Without autocast, fp32 computes in the dtype of the weights
        settings = replace(settings, precision="fp32" if precision == "float64" else precision)
        if training.endswith(CONTROL):
            settings = replace(settings, accumulation_steps=2 * settings.accumulation_steps)
        # Dropout makes modes differ by design
        comparable = replace(config, model=replace(config.model, dropout=0.0), train=settings)
        torch.set_default_dtype(torch.float64 if precision == "float64" else torch.float32)
        with load_mode(mode)(comparable) as opened:
            check_world_size(mode, opened.group.world_size)
            train_and_write(opened, Path(folder, f"{training}.safetensors"))
    return 0


def train_and_write(mode: Mode, file: Path) -> None:
    """Train a model with weights of the default dtype; every rank calls it. Rank 0 writes losses, last
    gradients, weights and logits, and as metadata the evaluated rows and the dtypes it computed in."""
    components = build(mode.config, mode)
    components.model.to(torch.get_default_dtype())
    mode.setup(components.model, components.config)
    task, plan, progress = components.task, components.plan, RunProgress()
    last_step = planned_steps(plan, components.config.train) - 1
    losses, dtypes, gradients = [], set(), {}
    linear = next(module for module in mode.unwrapped_module().modules() if isinstance(module, nn.Linear))
    linear.register_forward_hook(lambda module, inputs, output: dtypes.add(str(output.dtype)))
    states = watch_states(mode.unwrapped_module())

    def before_update() -> None:
        # Gathering the gradients of every step would take longer than the steps
        if progress.step == last_step:
            gradients.update(mode.gradients())

    def after_step(progress: RunProgress, step: StepResult) -> None:
        loss_sum = mode.group.reduce_sum(step.passes.loss_sum)
        losses.append(float(loss_sum) / step.passes.divisor)

    loaders = components.loaders
    train_steps(mode, loaders["train"], plan, task.loss, progress, after_step, before_update)
    tested = loaders[next(name for name in ("test", "dev", "train") if name in loaders)]
    rows, labels = (values[:MAX_EVALUATED_ROWS] for values in (tested.split.rows, tested.split.labels))
    first_rows = task.loader(replace(tested.split, rows=rows, labels=labels), tested.store, tested.layout)
    results = evaluate_rows(mode, first_rows, EVALUATION_BATCH, row_results=task.row_results)
    weights = mode.weights()
    if mode.group.rank != 0:
        return
    tensors = {"losses": torch.tensor(losses, dtype=torch.float64), "logits": torch.from_numpy(results)}
    tensors |= {f"gradients/{name}": value for name, value in gradients.items()}
    tensors |= {f"weights/{name}": value for name, value in weights.items()}
    metadata = {"rows": f"{len(results)} of {len(rows)}", "dtypes": ", ".join(sorted(dtypes))}
    metadata["states"] = json.dumps({place: sorted(found) for place, found in states.items()})
    save_file({name: value.contiguous() for name, value in tensors.items()}, file, metadata=metadata)


def watch_states(model: nn.Module) -> dict[str, set[str]]:
    """Return a dictionary that later passes fill: the dtypes of the states that each layer takes and returns,
    and of the outputs of the model. Layers have numbers for names."""
    dtypes = defaultdict(set)

    def watch(place: str, values: Any) -> None:
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                # The states come first; masks and positions may follow
                dtypes[place].add(str(value.dtype))
                return

    def watch_layer(name: str, layer: nn.Module, inputs: tuple, output: Any) -> None:
        watch(f"into {name}", inputs)
        watch(f"out of {name}", output)

    for name, module in model.named_modules():
        if name.rpartition(".")[2].isdigit():
            module.register_forward_hook(partial(watch_layer, name))
    model.register_forward_hook(lambda module, inputs, output: watch("out of the model", output))
    return dtypes


def different_states(one_process: str, mode: str) -> str:
    """Return where the dtypes of states of a mode, as JSON of `watch_states`, are first not those of one
    process; nothing where all are the same."""
    expected = json.loads(one_process)
    found = json.loads(mode)
    for place in expected | found:
        dtypes = ", ".join(found.get(place, []))
        usual = ", ".join(expected.get(place, []))
        if dtypes != usual:
            return f"states {place} are {dtypes or 'missing'}, and {usual or 'missing'} in one process"
    return ""


def compare(row: Comparison, reference: Path, result: Path) -> Comparison:
    """Compare the file that a mode wrote into a folder with that of one process; PASS where every difference
    is in its limit, all rows were counted, the mode computed in the precision of `row`, and states between
    layers have the dtypes that they have in one process."""
    name = f"{row.precision}.safetensors"
    control = f"{row.precision}{CONTROL}.safetensors"
    with safe_open(reference / name, framework="pt") as file:
        usual_states = file.metadata()["states"]
    with safe_open(result / name, framework="pt") as file:
        metadata = file.metadata()
    rows = metadata["rows"]
    dtypes = metadata["dtypes"]
    one_process, tensors = load_file(reference / name), load_file(result / name)
    if set(one_process) != set(tensors):
        return replace(row, reason="the names of the parameters differ")
    differences = relative_differences(one_process, tensors)
    ratio, limits = None, dict.fromkeys(KINDS, FLOAT64_LIMIT)
    if row.precision != "float64":
        rounding = relative_differences(one_process, load_file(reference / control))
        limits = {kind: MAX_CONTROL_RATIO * max(rounding[kind], MIN_CONTROL) for kind in KINDS}
        ratio = MAX_CONTROL_RATIO * max(differences[kind] / limits[kind] for kind in KINDS)
    far = [kind for kind in KINDS if not differences[kind] <= limits[kind]]
    reasons = [f"{kind} differ by more than {limits[kind]:.2g}" for kind in far]
    if dtypes != str(DTYPE_OF[row.precision]):
        reasons.append(f"it computed in {dtypes}, and {DTYPE_OF[row.precision]} was asked for")
    if difference := different_states(usual_states, metadata["states"]):
        reasons.append(difference)
    if len(set(rows.split(" of "))) > 1:
        reasons.append("not every row was counted once")
    figures = {"differences": differences, "control_ratio": ratio, "rows": rows}
    return replace(row, **figures, verdict="FAIL" if reasons else "PASS", reason="; ".join(reasons))


def relative_differences(reference: Tensors, result: Tensors) -> dict[str, float]:
    """Return for each of `KINDS` the L2 norm of the difference divided by that of `reference`. Both have the
    same names; values of another shape are infinitely different."""
    differences = {}
    for kind in KINDS:
        pairs = [(value, result[name]) for name, value in reference.items() if name.split("/")[0] == kind]
        norm = math.hypot(*(float(vector_norm(value)) for value, _ in pairs)) or 1.0
        is_alike = all(value.shape == other.shape for value, other in pairs)
        far = math.hypot(*(float(vector_norm(value - other)) for value, other in pairs if is_alike))
        differences[kind] = far / norm if is_alike else math.inf
    return differences
