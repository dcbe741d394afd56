"""Embeddings on the CPU whose gradient, as large as the table, is written to the same memory in each step.

BERT's table of words has 65 MB, of which a step changes 2. torch asks the system for that memory anew in each backward pass
and fills it with zeros: 16,000 new pages, up to 0.1 s where pages are slow, as in a virtual machine.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from app.model.modules import replace_modules


class Embedding(nn.Embedding):
    """nn.Embedding, whose gradient on the CPU is made in memory that is kept."""

    def __init__(self, plain: nn.Embedding) -> None:
        """Take the place of `plain`, with its very weight."""
        super().__init__(plain.num_embeddings, plain.embedding_dim, plain.padding_idx, _weight=plain.weight.detach())
        self.weight = plain.weight
        self.train(plain.training)
        self.kept = KeptMemory()

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name that nn.Embedding gives it
        if self.weight.device.type != "cpu":
            return super().forward(input)
        return _LookUp.apply(self.weight, input, self.padding_idx, self.kept)


class KeptMemory:
    """Blocks of memory for gradients; one is lent again when nobody uses any longer what was made of it."""

    def __init__(self) -> None:
        self.blocks: list[tuple[torch.Tensor, int]] = []  # with the uses of its memory while it is not lent

    def __deepcopy__(self, memo: dict) -> KeptMemory:
        return KeptMemory()

    def zeros(self, like: tuple[torch.Size, torch.dtype]) -> torch.Tensor:
        """Return a tensor of zeros of a shape and dtype, which may have been another's memory before."""
        shape, dtype = like
        for block, uses_when_free in self.blocks:
            if (block.shape, block.dtype) == like and _uses(block) == uses_when_free:
                return block.zero_().detach()
        block = torch.zeros(shape, dtype=dtype)
        self.blocks.append((block, _uses(block)))
        return block.detach()


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, weight: torch.Tensor, ids: torch.Tensor, padding_idx: int | None, kept: KeptMemory
    ) -> torch.Tensor:
        ctx.save_for_backward(ids)
        ctx.like = weight.shape, weight.dtype
        ctx.padding_idx, ctx.kept = padding_idx, kept
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        (ids,) = ctx.saved_tensors
        total = ctx.kept.zeros(ctx.like)
        total.index_add_(0, ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1]))
        if ctx.padding_idx is not None:
            total[ctx.padding_idx] = 0
        return total, None, None, None


def _uses(tensor: torch.Tensor) -> int:
    """Return how many tensors, and other objects, hold a tensor's memory."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def keep_gradient_memory(model: nn.Module) -> None:
    """Put `Embedding` in the place of every nn.Embedding of a model without special options; weights and their names stay."""
    replace_modules(model, nn.Embedding, lambda plain: plain if _has_options(plain) else Embedding(plain))


def _has_options(plain: nn.Embedding) -> bool:
    return plain.max_norm is not None or plain.scale_grad_by_freq or plain.sparse
