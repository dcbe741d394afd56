"""Horovod: each rank has the whole model; gradients are summed during the backward pass.

https://horovod.readthedocs.io/en/stable/pytorch.html
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from .horovod_group import HorovodGroup
from .launchers import Horovodrun
from .mode import BuildOptimizer, Mode, Tensors


class Horovod(Mode):
    """`DistributedOptimizer` sums the gradients, so the loop's loss needs no factor."""

    launcher = Horovodrun()
    group_class = HorovodGroup

    @classmethod
    def unavailable_reason(cls) -> str | None:
        try:
            import horovod.torch  # noqa: F401
        except ImportError as error:
            return (
                f"Horovod is not installed for this torch ({error}); install it: bash "
                "scripts/install_horovod.sh"
            )
        return None

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        hvd = self.group.hvd
        self.module = model
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            build_optimizer(model),
            named_parameters=[item for item in model.named_parameters() if item[1].requires_grad],
            backward_passes_per_step=self.config.train.accumulation_steps,
            op=hvd.Sum,
        )

    @contextmanager
    def micro_batch(self, is_last: bool) -> Iterator[None]:
        # The last global batch may have fewer micro-batches, so the count is not left to the optimizer: it
        # starts again at 2 before each micro-batch, which no backward pass uses up, and at 1 before the last,
        # which sends the gradients.
        self.optimizer.set_backward_passes_per_step(1 if is_last else 2)
        yield
        if is_last:
            # Before unscaling and clipping, which need the whole gradients
            self.optimizer.synchronize()

    def update(self, norm: torch.Tensor) -> tuple[torch.Tensor, bool]:
        with self.optimizer.skip_synchronize():
            return super().update(norm)

    def load_weights(self, weights: Tensors) -> None:
        super().load_weights(self.group.broadcast(weights))

    def load_optimizer_state(self, tensors: Tensors) -> None:
        super().load_optimizer_state(self.group.broadcast(tensors))
