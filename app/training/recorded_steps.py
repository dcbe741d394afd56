"""A whole training step as a CUDA graph: forward, backward, clipping and the optimizer's update.

As in `recorded_passes.py`, and besides: gradients exist only inside the graph. Backward writes them, where it
would else add to memory that was zeroed; no launch is left but that of the graph. For global batches of one
micro-batch, and AdamW.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..batching.loader import Batch
from ..config.schema import TrainConfig
from ..runtime.cuda_graphs import GraphRecorder
from ..strategies.strategy import Strategy
from .recorded_passes import Pass, PassOutput, RecordedPasses

# AdamW's state of a parameter
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def can_record_steps(config: TrainConfig, strategy: Strategy) -> bool:
    """Return whether steps of one micro-batch can be recorded as a whole: nothing happens between backward
    and update.

    No decision whether to update is made there, and no gradients are exchanged.
    """
    decides = strategy.scaler is not None or config.on_nonfinite == "skip"
    is_alone = strategy.group.world_size == 1
    return config.cuda_graphs != "passes" and config.optimizer == "adamw" and is_alone and not decides


class RecordedSteps(RecordedPasses):
    """A pass and the optimizer's step after it, recorded as one: returns the sum of losses, the outputs, the
    gradient norm.

    The learning rates become tensors, which a graph reads at each replay. The optimizer's state is made by
    the first eager step, so that it is outside of the graphs' memory.
    """

    keeps_gradients = False

    def __init__(self, run_pass: Pass, strategy: Strategy, recorder: GraphRecorder, max_norm: float) -> None:
        super().__init__(self.run_step, strategy, recorder)
        self.run_pass = run_pass
        self.max_norm = max_norm
        for group in strategy.optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=strategy.device)

    def close(self) -> None:
        """Make the learning rates numbers again, for steps that are not recorded."""
        for group in self.strategy.optimizer.param_groups:
            group["lr"] = float(group["lr"])

    def run_step(self, batch: Batch, divisor: torch.Tensor) -> PassOutput:
        """Make one optimizer step with the gradients of a micro-batch, which is the whole global batch."""
        loss, outputs = self.run_pass(batch, divisor)
        return loss, outputs, self.strategy.step(self.max_norm).grad_norm

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Return the context of a recording, in which torch lets AdamW step; it warns of `capturable` in
        eager steps."""
        groups = self.strategy.optimizer.param_groups
        before = [group["capturable"] for group in groups]
        for group in groups:
            group["capturable"] = True
        try:
            with super().recording():
                yield
        finally:
            for group, capturable in zip(groups, before, strict=True):
                group["capturable"] = capturable

    def check_gradients(self) -> None:
        """Do nothing: a recorded step makes its gradients, and frees them."""

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Change what a recording must read again: double the weights and halve the learning rates for a
        while."""
        rates = [group["lr"] for group in self.strategy.optimizer.param_groups]
        before = [rate.clone() for rate in rates]
        torch._foreach_mul_(rates, 0.5)
        try:
            with super().changed():
                yield
        finally:
            torch._foreach_copy_(rates, before)

    def results(self, run: Pass, batch: Batch, divisor: int, seed: int) -> PassOutput:
        """Return what the second of two steps gives, with the norms of AdamW's state and of the weights'
        change after them.

        The second one reads what the first one has written. Weights and state are then put back.
        """
        torch.manual_seed(seed)
        weights = [parameter.data for parameter in self.strategy.module.parameters()]
        with self.put_back(weights) as before:
            for _ in range(2):
                with self.strategy.cached_autocast():
                    outputs = [output.flatten().clone() for output in run(batch, divisor)]
            norms = [torch.stack(torch._foreach_norm(self.state_tensors(name))) for name in MOMENTS]
            change = torch.nn.utils.get_total_norm(torch._foreach_sub(weights, before))
        return (*outputs, *norms, change)

    @contextmanager
    def put_back(self, weights: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
        """Give copies of the weights; afterwards put these and the optimizer's state back. State that is new
        becomes 0."""
        before = [tensor.clone() for tensor in weights]
        state = {id(tensor): tensor.clone() for name in MOMENTS for tensor in self.state_tensors(name)}
        try:
            yield before
        finally:
            torch._foreach_copy_(weights, before)
            for name in MOMENTS:
                for tensor in self.state_tensors(name):
                    tensor.copy_(state[id(tensor)]) if id(tensor) in state else tensor.zero_()

    def state_tensors(self, name: str) -> list[torch.Tensor]:
        """Return the tensors called `name` of AdamW's state, in the order of the parameters."""
        states = (
            self.strategy.optimizer.state.get(parameter, {})
            for parameter in self.strategy.module.parameters()
        )
        return [state[name] for state in states if name in state]
