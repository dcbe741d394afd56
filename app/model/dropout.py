"""Dropout on the CPU with fast random numbers; torch's own takes 7 % of an fp32 step of BERT-base.

torch draws a Bernoulli number for each element from one thread's Mersenne twister. Here four elements share a
64-bit draw of SFC64 (https://numpy.org/doc/stable/reference/random/bit_generators/sfc64.html), which torch's
generator seeds for every call, so that `torch.manual_seed` still decides the masks.
"""

import numpy as np
import torch
from torch import nn

# A probability is rounded to a multiple of 1 / LEVELS; kept elements are scaled by the rounded one
LEVELS = 2**16


class Dropout(nn.Dropout):
    """nn.Dropout, which calls `dropout` on the CPU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that nn.Dropout gives it
        return (
            dropout(input, self.p) if self.training and input.device.type == "cpu" else super().forward(input)
        )


def dropout(values: torch.Tensor, p: float) -> torch.Tensor:
    """Return CPU `values` (any shape) with each element 0 with probability `p`, the others scaled up. The
    expected value of each element does not change. `p` from 0 to 1."""
    dropped = round(p * LEVELS)
    if dropped == 0:
        return values
    return values * 0 if dropped == LEVELS else _Drop.apply(values, dropped)


def keep_mask(shape: torch.Size, dropped: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor of `dtype` that is 0 with probability `dropped` / LEVELS, else 1."""
    size = shape.numel()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    draws = np.random.SFC64(seed).random_raw(-(-size // 4)).view(np.int16)[:size]
    kept = torch.empty(shape, dtype=dtype)
    return torch.ge(torch.from_numpy(draws).view(shape), dropped - LEVELS // 2, out=kept)


def drop(values: torch.Tensor, kept: torch.Tensor, dropped: int) -> torch.Tensor:
    """Return `values` times `kept`, 0 or 1, times LEVELS / (LEVELS - `dropped`), in one pass over memory. The
    factor is no part of the mask, because bf16 cannot hold it exactly; inside the pass it is a float32."""
    return torch.addcmul(values.new_zeros(()), values, kept, value=LEVELS / (LEVELS - dropped))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: torch.Tensor, dropped: int) -> torch.Tensor:
        kept = keep_mask(values.shape, dropped, values.dtype)
        ctx.save_for_backward(kept)
        ctx.dropped = dropped
        return drop(values, kept, dropped)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        (kept,) = ctx.saved_tensors
        return drop(gradient, kept, ctx.dropped), None


def replace_dropout(model: nn.Module) -> None:
    """Replace every nn.Dropout of a model by `Dropout`."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))
