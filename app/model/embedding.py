"""Embeddings on the CPU whose gradient, as large as the table, is written to the same memory in every step.

BERT's word table has 65 MB, of which a step changes 2. torch allocates that memory in each backward pass and
fills it with zeros: 16,000 new pages, up to 0.1 s where new pages are slow, as in a virtual machine.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .modules import replace_modules


class Embedding(nn.Embedding):
    """nn.Embedding, whose gradient on the CPU is written to reused memory."""

    def __init__(self, plain: nn.Embedding) -> None:
        """Take the weight of `plain`, the same parameter."""
        super().__init__(
            plain.num_embeddings, plain.embedding_dim, plain.padding_idx, _weight=plain.weight.detach()
        )
        self.weight = plain.weight
        self.train(plain.training)
        self.memory = ReusedMemory()

    # The name is that of nn.Embedding
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        if self.weight.device.type != "cpu":
            return super().forward(input)
        return _LookUp.apply(self.weight, input, self.padding_idx, self.memory)


@dataclass
class Block:
    """Memory of one shape and dtype; `user` refers to the array under the tensors that use it now, which no
    longer exists when there are none."""

    memory: torch.Tensor
    user: weakref.ref | None = None

    def is_free(self) -> bool:
        return self.user is None or self.user() is None

    def tensor(self) -> torch.Tensor:
        """Return a new tensor on the memory, as it is.

        torch keeps the array of `from_numpy` alive as long as any tensor or view of its storage, in Python or
        C++.
        """
        array: np.ndarray = self.memory.view(torch.uint8).numpy()
        self.user = weakref.ref(array)
        return torch.from_numpy(array).view(self.memory.dtype)


class ReusedMemory:
    """Blocks of memory for gradients; a block is used again when no tensor is left on it."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def __reduce__(self) -> tuple:
        # A copied or pickled model starts without blocks
        return ReusedMemory, ()

    def zeros(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of zeros, on memory that an earlier one may have used."""
        for block in self.blocks:
            if (block.memory.shape, block.memory.dtype) == (shape, dtype) and block.is_free():
                block.memory.zero_()
                return block.tensor()
        self.blocks.append(Block(torch.zeros(shape, dtype=dtype)))
        return self.blocks[-1].tensor()


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, weight: torch.Tensor, ids: torch.Tensor, padding_idx: int | None, memory: ReusedMemory
    ) -> torch.Tensor:
        ctx.save_for_backward(ids)
        ctx.shape, ctx.dtype = weight.shape, weight.dtype
        ctx.padding_idx, ctx.memory = padding_idx, memory
        return nn.functional.embedding(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        (ids,) = ctx.saved_tensors
        total = ctx.memory.zeros(ctx.shape, ctx.dtype)
        total.index_add_(0, ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1]))
        if ctx.padding_idx is not None:
            total[ctx.padding_idx] = 0
        return total, None, None, None


def reuse_gradient_memory(model: nn.Module) -> None:
    """Replace every nn.Embedding of a model without special options by `Embedding`; weights and their names
    stay."""
    replace_modules(model, nn.Embedding, lambda plain: plain if _has_options(plain) else Embedding(plain))


def _has_options(plain: nn.Embedding) -> bool:
    return plain.max_norm is not None or plain.scale_grad_by_freq or plain.sparse
