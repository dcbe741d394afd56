"""The exponential moving average of the weights, as each rank holds them: whole, or its shards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class WeightAverage:
    """Averages the tensors that `held` returns, (num_tensors,) of any shapes, always in the same order.

    After update n the average is d * average + (1 - d) * weights, with d = min(`decay`, (1 + n) / (10 + n)),
    so that the random start of a head is soon forgotten. Everything is element by element, so shards give
    what whole tensors give.
    """

    def __init__(self, held: Callable[[], list[torch.Tensor]], decay: float) -> None:
        self.held = held
        self.decay = decay
        self.restart()

    def restart(self) -> None:
        """Make the average equal to the weights."""
        self.values = [weight.clone() for weight in self.held()]

    def update(self, updates: int) -> None:
        """Add the weights after so many updates."""
        decay = min(self.decay, (1 + updates) / (10 + updates))
        torch._foreach_lerp_(self.values, self.held(), 1 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Return a context in which the model has the average as its weights."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def exchange(self) -> None:
        """Exchange the weights and the average, tensor by tensor."""
        for weight, value in zip(self.held(), self.values, strict=True):
            kept = weight.clone()
            weight.copy_(value)
            value.copy_(kept)
