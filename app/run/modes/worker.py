"""What one rank of a mode does for `python -m app verify`: it trains a few steps and writes what came out.

A *training* is one way to do the job: `float64`, `fp32`, `bf16` or `fp16`, and for the last three a control,
such as `fp32-control`: the same rows, added up in another order.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from ...batching.loader import Loader
from ...checkpoints.progress import RunProgress
from ...config.schema import Config, TrainConfig
from ...modes import open_mode
from ...modes.mode import Mode
from ...runtime.precision import DTYPES
from ...training.build import Components, build, set_up
from ...training.evaluate import evaluate
from ...training.step import StepResult, planned_steps, train

CONTROL = "-control"
DTYPE_OF = {"float64": torch.float64, "fp32": torch.float32} | DTYPES
# An odd number of rows in several batches, so that ranks evaluate different numbers of rows
MAX_EVALUATED_ROWS = 33
EVALUATION_BATCH = 8


def result_file(folder: Path, name: str, training: str) -> Path:
    """Return the file that rank 0 of a mode writes for a training."""
    return folder / f"{name}-{training}.safetensors"


def comparable(config: Config, steps: int, training: str) -> Config:
    """Return the configuration of a training, without what makes modes differ by design: dropout."""
    precision = training.removesuffix(CONTROL)
    settings = replace(config.train, max_steps=steps, log_every=1, early_stopping=None)
    if precision == "float64":
        # Without autocast, fp32 computes in the dtype of the weights
        settings = replace(settings, precision="fp32")
    else:
        settings = replace(settings, precision=precision)
    if training.endswith(CONTROL):
        settings = in_another_order(settings)
    return replace(config, model=replace(config.model, dropout=0.0), train=settings)


def in_another_order(settings: TrainConfig) -> TrainConfig:
    """Return settings with micro-batches of half the size: the same rows are added up in another order."""
    return replace(settings, accumulation_steps=2 * settings.accumulation_steps)


def run_trainings(config: Config, name: str, steps: int, trainings: list[str], folder: str) -> int:
    """Do each training in this process, one rank of `mode`; rank 0 writes the results into `folder`."""
    for training in trainings:
        dtype = torch.float64 if training == "float64" else torch.float32
        file = result_file(Path(folder), name, training)
        with default_dtype(dtype), open_mode(name, comparable(config, steps, training)) as mode:
            train_and_write(mode, dtype, file)
    return 0


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set the dtype of new tensors inside the context."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def train_and_write(mode: Mode, dtype: torch.dtype, file: Path) -> None:
    """Train a model with weights of `dtype`; every rank calls it. Rank 0 writes losses, last gradients,
    weights and logits, and as metadata processes, evaluated rows and the dtypes of the computation."""
    components = build(mode.config, mode)
    components.model.to(dtype)
    set_up(mode, components)
    dtypes = watch_dtypes(mode.unwrapped_module())
    settings, loader, plan = components.config.train, components.loaders["train"], components.plan
    last_step = planned_steps(plan, settings) - 1
    losses: list[float] = []
    gradients: dict[str, torch.Tensor] = {}
    progress = RunProgress()

    def before_update() -> None:
        # Gathering the gradients of every step would take longer than the steps
        if progress.step == last_step:
            gradients.update(mode.full_state.gradients())

    def after_step(progress: RunProgress, step: StepResult) -> None:
        losses.append(float(mode.group.reduce_sum(step.loss_sum)) / step.divisor)

    train(mode, loader, plan, components.task.loss, settings, progress, after_step, before_update)
    rows = evaluated_rows(components)
    results = evaluate(mode, rows, EVALUATION_BATCH, row_results=components.task.row_results)
    weights = mode.full_state.weights()
    if mode.group.rank != 0:
        return
    tensors = {"losses": torch.tensor(losses, dtype=torch.float64), "logits": torch.from_numpy(results)}
    tensors |= {f"gradients/{name}": value for name, value in gradients.items()}
    tensors |= {f"weights/{name}": value for name, value in weights.items()}
    metadata = {
        "processes": str(mode.group.world_size),
        "rows": str(len(results)),
        "expected_rows": str(len(rows)),
        "dtypes": ", ".join(sorted(dtypes)),
    }
    save_file({name: value.contiguous() for name, value in tensors.items()}, file, metadata=metadata)


def watch_dtypes(model: nn.Module) -> set[str]:
    """Return a set that receives the dtype of what the model's first linear layer computes."""
    dtypes: set[str] = set()
    layer = next(module for module in model.modules() if isinstance(module, nn.Linear))
    layer.register_forward_hook(lambda module, inputs, output: dtypes.add(str(output.dtype)))
    return dtypes


def evaluated_rows(components: Components) -> Loader:
    """Return a loader of the first rows of test (else dev, else train)."""
    name = next(name for name in ("test", "dev", "train") if name in components.loaders)
    loader = components.loaders[name]
    split = loader.split
    first_rows = replace(
        split, rows=split.rows[:MAX_EVALUATED_ROWS], labels=split.labels[:MAX_EVALUATED_ROWS]
    )
    return components.task.loader(first_rows, loader.store, loader.layout)
