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
        is_ours = self.training and input.device.type == "cpu"
        return dropout(input, self.p) if is_ours else super().forward(input)


def replace_dropout(model: nn.Module) -> None:
    """Replace every nn.Dropout of a model by `Dropout`."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p).train(child.training))


def dropout(values: torch.Tensor, p: float) -> torch.Tensor:
    """Return CPU `values` (any shape) with each element 0 with probability `p`, the others scaled up. The
    expected value of each element does not change. `p` from 0 to 1."""
    dropped = round(p * LEVELS)
    if dropped == 0:
        return values
    return values * 0 if dropped == LEVELS else _Drop.apply(values, dropped)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values: torch.Tensor, dropped: int) -> torch.Tensor:
        size, seed = values.numel(), int(torch.empty((), dtype=torch.int64).random_())
        draws = np.random.SFC64(seed).random_raw(-(-size // 4)).view(np.int16)[:size]
        draws = torch.from_numpy(draws).view(values.shape)
        # 0 or 1, without the factor of kept elements, which bf16 cannot hold exactly
        kept = torch.ge(draws, dropped - LEVELS // 2, out=torch.empty(values.shape, dtype=values.dtype))
        ctx.save_for_backward(kept)
        ctx.factor = LEVELS / (LEVELS - dropped)
        return _multiplied(values, kept, ctx.factor)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        return _multiplied(gradient, *ctx.saved_tensors, ctx.factor), None


def _multiplied(values: torch.Tensor, kept: torch.Tensor, factor: float) -> torch.Tensor:
    """Return `values * kept * factor` in one pass over memory, inside which the factor is a float32."""
    return torch.addcmul(values.new_zeros(()), values, kept, value=factor)
