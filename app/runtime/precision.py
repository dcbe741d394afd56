"""The arithmetic of a model: fp32, or bf16 and fp16 by autocast.

https://docs.pytorch.org/docs/stable/amp.html
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The contexts and the loss scaler of one precision (`fp32`, `bf16` or `fp16`) on one type of device."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self.device_type = device.type

    def autocast(self) -> AbstractContextManager:
        """Return the context of a forward pass."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(self.device_type, DTYPES[self.name])

    @contextmanager
    def cached_autocast(self) -> Iterator[None]:
        """Return a context in which all forward passes under `autocast` share their casts of the weights.

        Autocast keeps the low-precision copy of each weight until the outermost autocast ends. This is that
        one, switched off inside: only code under `autocast` itself runs in low precision.
        """
        if self.name == "fp32":
            yield
            return
        with self.autocast(), torch.autocast(self.device_type, enabled=False):
            yield

    def new_scaler(self) -> torch.amp.GradScaler | None:
        """Return a loss scaler for fp16, in which small gradients would round to zero, else None."""
        return torch.amp.GradScaler(self.device_type) if self.name == "fp16" else None


def at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Return `values` in float32; those in float64, in which `python -m app verify` trains, as they are."""
    return values if values.dtype == torch.float64 else values.float()
