"""The passes by which a micro-batch is trained: one, or a second with perturbed embeddings (FGM).

Miyato et al. 2017, https://arxiv.org/abs/1605.07725
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn


class OnePass:
    """One forward and backward pass."""

    number = 1

    def __call__(
        self, inputs: dict[str, Any], is_last: bool
    ) -> Iterator[tuple[bool, AbstractContextManager]]:
        """Give for each pass whether gradients are exchanged, as `is_last` says, and its context."""
        yield is_last, nullcontext()


class FGM(OnePass):
    """Two passes, whose gradients are averaged. In the second the embeddings of each row's tokens are moved
    in the direction of the gradient of the first.

    The movement of a row has an L2 norm of `epsilon` over all its tokens. It depends on the gradient of this
    row alone, so it is the same however rows are spread over processes and micro-batches. (The usual code
    divides by the norm of the gradient of the whole embedding table, which depends on the rows of a process.)
    A row without a gradient is not moved. With windows, each window is such a row.
    """

    number = 2

    def __init__(self, embedding: nn.Module, epsilon: float) -> None:
        """`embedding`: the word embedding of the model; its outputs are watched and moved."""
        self.epsilon = epsilon
        self.is_watching = False
        self.gradient: torch.Tensor | None = None
        self.movement: torch.Tensor | None = None
        embedding.register_forward_hook(self.hook)

    def __call__(
        self, inputs: dict[str, Any], is_last: bool
    ) -> Iterator[tuple[bool, AbstractContextManager]]:
        yield False, self.watching()
        yield is_last, self.moving(inputs)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Return the context of a pass in which the gradient of the embeddings is kept."""
        self.is_watching = True
        try:
            yield
        finally:
            self.is_watching = False

    @contextmanager
    def moving(self, inputs: dict[str, Any]) -> Iterator[None]:
        """Return the context of a pass on the same inputs in which the embeddings are moved."""
        self.movement = movement(self.gradient, inputs, self.epsilon)
        self.gradient = None
        try:
            yield
        finally:
            self.movement = None

    def hook(self, module: nn.Module, inputs: tuple, output: torch.Tensor) -> torch.Tensor | None:
        """Watch or move the output of the word embedding; neither outside of the two passes."""
        if self.movement is not None:
            return output + self.movement.to(output.dtype)
        if not self.is_watching:
            return None
        if not output.requires_grad:
            # Frozen embeddings
            output = output.detach().requires_grad_()
        output.register_hook(self.keep)
        return output

    def keep(self, gradient: torch.Tensor) -> None:
        """Keep the gradient of the embeddings."""
        self.gradient = gradient.detach()


def movement(gradient: torch.Tensor, inputs: dict[str, Any], epsilon: float) -> torch.Tensor:
    """Return `gradient` with an L2 norm of `epsilon` for each row; both (1, total_tokens, hidden) for packed
    `inputs`, (num_rows, longest, hidden) for padded ones."""
    gradient = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    rows = token_rows(inputs)
    # The largest value first, because squares of small ones would be 0
    flat, row = gradient.flatten(0, 1), rows.flatten()
    # At most as many rows as tokens; to count them would wait for the device
    num_rows = len(flat)
    largest = flat.new_zeros(num_rows).scatter_reduce(0, row, flat.abs().amax(dim=1), "amax")
    largest = torch.where(largest > 0, largest, 1.0)
    scaled = flat / largest[row, None]
    norms = flat.new_zeros(num_rows).index_add(0, row, scaled.square().sum(dim=1)).sqrt()
    factors = torch.where(norms > 0, epsilon / norms, 0.0)
    return (scaled * factors[row, None]).view_as(gradient)


def token_rows(inputs: dict[str, Any]) -> torch.Tensor:
    """Return the number of the row of each token, in the shape of the token ids."""
    ids = inputs["input_ids"]
    if "position_ids" not in inputs:
        return torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
    # Packed: a row begins where positions begin again
    positions = inputs["position_ids"]
    return (positions == positions[0, 0]).cumsum(dim=1) - 1
