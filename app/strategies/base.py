"""What the loop asks of a mode. Every default here is the behaviour of one process on one device."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from app.config.schema import Config, TrainConfig
from app.runtime.devices import bf16_speedup, choose_device, set_threads
from app.runtime.host_memory import keep_freed_memory

logger = logging.getLogger(__name__)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SLOW_BF16 = 0.8  # of the speed of fp32, from where on a run in bf16 is warned of


@dataclass(frozen=True)
class StepResult:
    """`grad_norm`: L2 norm of all gradients before clipping, a tensor without dimensions, or None where it was not asked
    for; `skipped`: the gradients overflowed under fp16, or were not finite and such steps are left out; no weight moved."""

    grad_norm: torch.Tensor | None
    skipped: bool


class Strategy:
    """One object between the loop and the mode; a context manager that joins and leaves the process group.

    `rank == 0` is the process that prints and writes. `num_shards` and `shard_index` say how each global batch is cut:
    1 and 0 where one process takes the whole of it.
    """

    packs = True  # whether this mode can hand packed batches to the model
    evaluation_mode: Callable[[], AbstractContextManager] = torch.inference_mode
    keeps_casts = True  # whether each rank has room for a whole model in low precision throughout a step
    one_process = True  # whether this mode is always one process
    keeps_gradients = False  # whether gradients stay in their memory from step to step
    rank = 0
    world_size = 1
    local_world_size = 1

    def __init__(self, config: Config) -> None:
        self.whole_config = config
        self.device = torch.device("cpu")
        self.module: nn.Module
        self.optimizer: torch.optim.Optimizer
        self.scaler: torch.amp.GradScaler | None = None

    @property
    def config(self) -> TrainConfig:
        """How the model is trained."""
        return self.whole_config.train

    @property
    def recovers(self) -> bool:
        """Whether a micro-batch that failed before gradients were exchanged leaves this mode able to do the step again."""
        return self.world_size == 1

    @property
    def records(self) -> bool:
        """Whether `new_recorder` returns a recorder, so that passes may run as CUDA graphs."""
        return False

    @property
    def num_shards(self) -> int:
        return self.world_size

    @property
    def shard_index(self) -> int:
        return self.rank

    @classmethod
    def missing(cls) -> str | None:
        """Return what this machine lacks to run the mode, with the remedy, or None."""
        return None

    @classmethod
    def command(cls, script: list[str], processes: int) -> list[str]:
        """Return the command that runs a script with its arguments in so many processes of this mode, on this machine."""
        return [sys.executable, *script]

    @classmethod
    def launch(cls, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        """Call `work(*arguments)`, here or in the processes that this mode starts itself; return the exit status."""
        return work(*arguments)

    def __enter__(self) -> Strategy:
        self.device = self.choose_device()
        set_threads(self.config.threads, self.local_world_size)
        keep_freed_memory()
        if self.config.precision == "bf16" and self.device.type == "cpu" and (speedup := bf16_speedup()) < SLOW_BF16:
            logger.warning(
                "this CPU multiplies matrices in bf16 at %.2f times the speed of fp32: train.precision fp32 is faster here",
                speedup,
            )
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            # What autocast leaves in fp32 may use TF32 then; a run in fp32 keeps all its bits.
            torch.set_float32_matmul_precision("highest" if self.config.precision == "fp32" else "high")
        return self

    def __exit__(self, *failure: Any) -> None:
        """Leave the process group."""

    def choose_device(self) -> torch.device:
        """Return the device of this process."""
        return choose_device(self.config.device)

    def setup(self, model: nn.Module, build_optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        """Move and wrap the model, then build its optimizer; every rank calls it."""
        self.module = model.to(self.device)
        self.optimizer = build_optimizer(self.module)
        self.scaler = self.new_scaler()

    def new_scaler(self) -> torch.amp.GradScaler | None:
        """Return a loss scaler for fp16, whose small gradients would else round to zero."""
        return torch.amp.GradScaler(self.device.type) if self.config.precision == "fp16" else None

    def autocast(self) -> AbstractContextManager:
        """Return the context of the forward pass in the configured precision."""
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, DTYPES[self.config.precision])

    @contextmanager
    def keeping_casts(self) -> Iterator[None]:
        """Return the context of all micro-batches of a step, in which autocast casts each weight once, not once for each.

        It keeps its casts until the outermost autocast is left; within this one, autocast is off but where `forward` turns it on.
        """
        if self.config.precision == "fp32" or not self.keeps_casts:
            yield
            return
        with self.autocast(), torch.autocast(self.device.type, enabled=False):
            yield

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return float32 logits, (num_rows, num_labels), of inputs on this rank's device."""
        with self.autocast():
            return self.module(**inputs).float()

    def new_recorder(self) -> Any:
        """Return what records passes, an `app.training.recorded_passes.GraphRecorder`, where the mode `records`."""
        raise NotImplementedError

    def settle(self, inputs: dict[str, torch.Tensor]) -> None:
        """Do with a batch that counts for nothing what the mode does in its first pass only; every rank calls it."""

    def micro_batch(self, is_last: bool) -> AbstractContextManager:
        """Return the context around forward *and* backward; unless `is_last`, gradients are not synchronised."""
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradients of `loss`: this rank's sum over rows, divided by the rows of the global batch."""
        (self.scaler.scale(loss) if self.scaler else loss).backward()

    def step(self, max_norm: float) -> StepResult:
        """Unscale, clip to `max_norm` (0: only measure), step, update the scaler, zero the gradients, in this order."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        norm = self.clip(max_norm or float("inf"))
        skipped = False
        if self.scaler:
            scale = self.scaler.get_scale()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            skipped = self.scaler.get_scale() < scale
        elif self.leaves_out(norm):
            skipped = True
        else:
            self.optimizer.step()
        self.zero_grad()
        return StepResult(norm, skipped)

    def zero_grad(self) -> None:
        """Let all gradients start from zero again."""
        if self.keeps_gradients:
            self.optimizer.zero_grad(set_to_none=False)
        else:
            self.optimizer.zero_grad()  # which takes no arguments in Horovod's

    def leaves_out(self, norm: torch.Tensor) -> bool:
        """Return whether a step whose gradients have this norm is left out, because it is not finite and that is configured."""
        return self.config.on_nonfinite == "skip" and not norm.isfinite()

    def clip(self, max_norm: float) -> torch.Tensor:
        """Scale all gradients down to an L2 norm of at most `max_norm`; return the norm before."""
        return nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows of every rank, end to end on dim 0, on every rank; their counts may differ."""
        return rows

    def reduce_sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of `values` over all ranks, on every rank."""
        return values

    def start_sum(self, values: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Start to add up a small CPU tensor over all ranks, off the device; calling what this returns waits for the sum."""
        total = self.reduce_sum(values)
        return lambda: total

    def plain_module(self) -> nn.Module:
        """Return the model without this mode's wrapper."""
        return self.module

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return the full gradients, unscaled, on the CPU by parameter name; every rank calls it, before `step`."""
        scale = self.scaler.get_scale() if self.scaler else 1.0
        found = ((name, parameter.grad) for name, parameter in self.plain_module().named_parameters())
        return {name: to_cpu(full_tensor(grad)) / scale for name, grad in found if grad is not None}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the full weights on the CPU by the model's own names, on rank 0 (elsewhere empty); every rank calls it."""
        if self.rank != 0:
            return {}
        return {name: to_cpu(value) for name, value in self.plain_module().state_dict().items()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Load full weights that rank 0 passes in (elsewhere empty); every rank calls it."""
        self.plain_module().load_state_dict(state)

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """Return the full optimizer state on the CPU as `parameter/figure`, on rank 0 (elsewhere empty); every rank calls it."""
        found = {}
        for name, parameter in self.plain_module().named_parameters():
            for figure, value in self.optimizer.state.get(parameter, {}).items():
                whole = full_tensor(value)
                if self.rank == 0:
                    found[f"{name}/{figure}"] = to_cpu(whole)
        return found

    def load_optimizer_state(self, state: dict[str, torch.Tensor]) -> None:
        """Load what `optimizer_state` returned on rank 0 (elsewhere empty); every rank calls it."""
        names = {parameter: name for name, parameter in self.plain_module().named_parameters()}
        ordered = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        by_index: dict[int, dict[str, torch.Tensor]] = {}
        for index, parameter in enumerate(ordered):
            prefix = f"{names[parameter]}/"
            figures = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            if figures:
                by_index[index] = {figure: self.place(value, parameter) for figure, value in figures.items()}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": by_index, "param_groups": groups})

    def place(self, value: torch.Tensor, parameter: nn.Parameter) -> torch.Tensor:
        """Return a full tensor of optimizer state as this rank keeps it."""
        return value

    def scaler_state(self) -> dict:
        """Return the loss scale and its counters, or an empty dictionary where there is none."""
        return self.scaler.state_dict() if self.scaler else {}

    def load_scaler_state(self, state: dict) -> None:
        """Load what `scaler_state` returned."""
        if self.scaler and state:
            self.scaler.load_state_dict(state)

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value` (any picklable object) on every rank."""
        return value


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole of a tensor that is cut over the ranks; every rank must call it. Others come back as they are."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor on the CPU that later steps do not change."""
    return tensor.detach().to("cpu", copy=True)
