"""The weights of all linear layers in low precision, cast by one call, and their gradients back by one.

Autocast casts each weight where it is used: for BERT-base 150 small kernels in a pass, and 150 more for the
gradients. By estimate, most of them take longer to launch on CUDA than to run. The results have the same bits
as with autocast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class CastLinear(nn.Linear):
    """nn.Linear, which computes with `casts`, copies of its weight and bias in low precision, while there are
    any."""

    casts: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that nn.Linear gives it
        return super().forward(input) if self.casts is None else nn.functional.linear(input, *self.casts)


class JointCasts:
    """Casts the weights of a model's linear layers to `dtype` for one forward pass under autocast; gradients
    arrive in fp32.

    Only the class of the layers changes: parameters keep their names. Other weights, such as the embedding
    that predicts masked tokens, are left to autocast.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.layers = [
            module
            for module in model.modules()
            if type(module) is nn.Linear
            and all(weight.dtype == torch.float32 for weight in module.parameters())
        ]
        for layer in self.layers:
            layer.__class__ = CastLinear

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Return the context of one forward pass: casts are of the weights as they are at its beginning."""
        weights = [parameter for layer in self.layers for parameter in layer.parameters()]
        casts = iter(_Cast.apply(self.dtype, *weights) if weights else ())
        for layer in self.layers:
            layer.casts = (next(casts), None if layer.bias is None else next(casts))
        try:
            yield
        finally:
            for layer in self.layers:
                layer.casts = None


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dtype: torch.dtype, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        copies = cast(weights, dtype)
        frozen = [copy for copy, weight in zip(copies, weights, strict=True) if not weight.requires_grad]
        ctx.mark_non_differentiable(*frozen)
        # A layer that the pass did not use has no gradient, and gets none
        ctx.set_materialize_grads(False)
        return tuple(copies)

    @staticmethod
    def backward(ctx, *gradients: torch.Tensor | None):
        cast_back = iter(cast([gradient for gradient in gradients if gradient is not None], torch.float32))
        return None, *(None if gradient is None else next(cast_back) for gradient in gradients)


def cast(tensors: list[torch.Tensor] | tuple[torch.Tensor, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Return copies of tensors in another dtype, made by one call, of few kernels on CUDA.

    torch does so where all sources have one dtype, and all copies one:
    https://github.com/pytorch/pytorch/pull/121717
    """
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return copies
