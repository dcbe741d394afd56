"""What follows recorded passes as a CUDA graph: the norm of all gradients, their clipping, and the step of
AdamW, which the host otherwise launches kernel by kernel after each replay of the passes.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

import logging
from collections.abc import Callable

import torch

from ..errors import first_line
from ..modes.mode import Mode
from ..runtime.cuda_graphs import CudaGraphs

logger = logging.getLogger(__name__)


class RecordedUpdate:
    """Updates of the weights, for gradients that stay in the same memory. The learning rates are a tensor on
    the device, which graphs read. Not for fp16: whether a step is skipped decides the next learning rate, so
    that the host has to wait for it."""

    def __init__(self, mode: Mode, recorder: CudaGraphs) -> None:
        self.mode = mode
        self.recorder = recorder
        self.can_record = True
        parameter = mode.parameters[0]
        num_groups = len(mode.optimizer.param_groups)
        self.rates = torch.zeros(num_groups, dtype=parameter.dtype, device=parameter.device)
        self.norm = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
        # By the place of the gradients
        self.replays: dict[int, Callable[[], None]] = {}

    @staticmethod
    def is_possible(mode: Mode) -> bool:
        """Return whether the optimizer of a mode can be recorded."""
        return isinstance(mode.optimizer, torch.optim.AdamW) and not mode.scaler.is_enabled()

    def run(self, rates: list[float], place: int) -> torch.Tensor:
        """Update the weights with their gradients, which are in the same memory in all calls of one `place`.
        `rates` has the learning rate of each group. Return the norm before clipping, ()."""
        self.write_rates(rates)
        replay = self.replays.get(place)
        if replay is not None:
            replay()
        elif self.can_record and self.has_state():
            self.record(place)
        else:
            # The first step of AdamW makes the state, which graphs change where it is
            self.update()
        # The next replay writes to the same memory, and the log reads norms of many steps at once
        return self.norm.clone()

    def write_rates(self, rates: list[float]) -> None:
        """Copy the learning rates to the device, without waiting for it."""
        values = torch.tensor(rates, dtype=self.rates.dtype)
        if self.rates.device.type == "cuda":
            values = values.pin_memory()
        self.rates.copy_(values, non_blocking=True)
        for group, rate in zip(self.mode.optimizer.param_groups, self.rates.unbind(), strict=True):
            group["lr"] = rate

    def has_state(self) -> bool:
        """Return whether AdamW has a state for each parameter with a gradient."""
        for parameter in self.mode.parameters:
            if parameter.grad is not None and not self.mode.optimizer.state.get(parameter):
                return False
        return True

    def update(self) -> None:
        self.norm.copy_(self.mode.clip_gradients(self.mode.config.train.max_grad_norm))
        self.mode.optimizer.step()

    def record(self, place: int) -> None:
        """Record an update with the gradients of a place, and make it; where that fails, this and later ones
        are made kernel by kernel."""
        self.set_capturable(True)
        try:
            self.replays[place] = self.recorder.record_and_run(self.update)
        except RuntimeError as error:
            logger.warning("updates are not recorded as CUDA graphs: %s", first_line(error))
            self.can_record = False
            self.update()
        finally:
            self.set_capturable(False)

    def set_capturable(self, is_capturable: bool) -> None:
        """Tell AdamW that it is recorded. Its fused kernels are the same, but it refuses to be recorded
        without, and warns where it is not recorded with it."""
        for group in self.mode.optimizer.param_groups:
            group["capturable"] = is_capturable
