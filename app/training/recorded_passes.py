"""Forward and backward of a micro-batch as a CUDA graph: one launch instead of some two thousand.

For 32 short texts a large GPU needs half a millisecond of arithmetic, several times less than it takes to
launch the kernels. A graph has fixed shapes, and reads and writes the same memory each time. So batches are
filled up to few shapes (`Layout.filled`); those that are planned are recorded and verified before the first
step. Inputs are copied to where the graph reads them, and gradients keep their memory: zeroed, not freed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..batching.loader import Batch
from ..errors import first_line
from ..runtime.cuda_graphs import GraphRecorder
from ..strategies.strategy import Strategy
from .out_of_memory import is_out_of_memory

logger = logging.getLogger(__name__)
MAX_GRAPHS = 64
# How far a replayed pass may differ from an eager one: what the order of additions can do in bf16
TOLERANCE = 1e-2
PassOutput = tuple[torch.Tensor, ...]
# A pass takes a micro-batch and by what losses are divided; it adds gradients, and returns the sum of losses
# and the outputs.
Pass = Callable[[Batch, int], PassOutput]


@dataclass(frozen=True)
class Recording:
    """A recorded pass, `replay`, and the tensors that it reads."""

    replay: Callable[[], PassOutput]
    batch: Batch
    divisor: torch.Tensor


class RecordedPasses:
    """A pass that records itself: the second batch of a shape is recorded and replayed; the first one runs
    eagerly.

    `verify` does both with one batch. Where recording fails, or gives other results than the eager pass, all
    passes run eagerly from then on, with a warning.
    """

    # Graphs add to gradients that are in the same memory in every step
    keeps_gradients = True

    def __init__(
        self,
        run_eagerly: Callable[[Batch, torch.Tensor], PassOutput],
        strategy: Strategy,
        recorder: GraphRecorder,
    ) -> None:
        self.run_eagerly = run_eagerly
        self.strategy = strategy
        self.recorder = recorder
        self.recordings: dict[tuple, Recording] = {}
        self.seen_shapes: set[tuple] = set()
        self.enabled = True
        self.gradients: list[torch.Tensor] = []
        strategy.keep_gradients = self.keeps_gradients

    def __call__(self, batch: Batch, divisor: int) -> PassOutput:
        """Add the gradients of a micro-batch; the tensors returned are valid until the next call."""
        shape = shape_of(batch)
        if not self.enabled:
            return self.run_eagerly(batch, self.scalar(divisor))
        if shape not in self.recordings:
            if shape not in self.seen_shapes or len(self.recordings) == MAX_GRAPHS:
                self.seen_shapes.add(shape)
                return self.run_on_stream(batch, divisor)
            try:
                self.recordings[shape] = self.record(batch, divisor)
            except (RuntimeError, MemoryError) as error:
                # Smaller micro-batches are recorded again
                if is_out_of_memory(error):
                    self.forget()
                    raise
                self.disable(first_line(error))
                return self.run_eagerly(batch, self.scalar(divisor))
        self.check_gradients()
        recording = self.recordings[shape]
        torch._foreach_copy_(tensors(recording.batch), tensors(batch))
        recording.divisor.fill_(divisor)
        return recording.replay()

    def scalar(self, number: int) -> torch.Tensor:
        """Return a number as a tensor: dividing by a tensor and by a Python number may differ in the last
        bit."""
        return torch.full((), number, dtype=torch.float32, device=self.strategy.device)

    def run_on_stream(self, batch: Batch, divisor: int) -> PassOutput:
        """Run a pass eagerly, on the recorder's stream."""
        try:
            return self.recorder.run(partial(self.run_eagerly, batch, self.scalar(divisor)))
        except (RuntimeError, MemoryError):
            # Out of memory, usually; recordings would keep theirs
            self.forget()
            raise

    def forget(self) -> None:
        """Free all recordings; shapes are recorded again when they come again."""
        self.recordings.clear()
        self.seen_shapes.clear()

    def record(self, batch: Batch, divisor: int) -> Recording:
        """Record the pass of a batch's shape."""
        inputs = {
            name: value.clone() if torch.is_tensor(value) else value for name, value in batch.inputs.items()
        }
        static = Batch(inputs, batch.labels.clone(), batch.positions, batch.num_rows)
        static_divisor = self.scalar(divisor)
        with self.recording():
            replay = self.recorder.record(partial(self.run_eagerly, static, static_divisor))
        return Recording(replay, static, static_divisor)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Return the context of a recording, without autocast's cache: its casts would be of the present
        weights, for ever."""
        caches_casts = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            yield
        finally:
            torch.set_autocast_cache_enabled(caches_casts)

    def check_gradients(self) -> None:
        """Make sure that gradients are where graphs add to them; elsewhere they would be lost without an
        error."""
        gradients = gradients_of(self.strategy)
        self.gradients = self.gradients or gradients
        if len(gradients) != len(self.gradients) or any(
            map(lambda a, b: a is not b, gradients, self.gradients)
        ):
            raise AssertionError("gradients have moved since passes were recorded")

    def verify(self, batch: Batch, divisor: int) -> None:
        """Disable graphs unless replay matches eager on new inputs and weights, with other dropout masks.

        To be called before the first step; weights and gradients are afterwards as they were. Raises the
        error of memory that has run out; smaller micro-batches may be verified then.
        """
        flipped = {
            name: value.flip(-1) if name == "input_ids" else value for name, value in batch.inputs.items()
        }
        other = replace(batch, inputs=flipped, labels=batch.labels.flip(-1))
        try:
            for _ in range(2):
                # Runs eagerly, then records and replays
                self.results(self, batch, divisor, seed=0)
            with self.changed():
                replayed = self.results(self, other, divisor + 1, seed=1)
                eager = self.results(self.run_on_stream, other, divisor + 1, seed=1)
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                self.forget()
                self.strategy.zero_grad()
                raise
            self.disable(first_line(error))
            self.strategy.zero_grad()
            return
        if self.enabled and not all(map(is_close, replayed, eager)):
            self.disable("a replayed pass gave other results than the eager pass")

    def results(self, run: Pass, batch: Batch, divisor: int, seed: int) -> tuple[torch.Tensor, ...]:
        """Return the loss and the logits of a pass, and the norm of each of its gradients, which are then
        zeroed."""
        torch.manual_seed(seed)
        with self.strategy.cached_autocast():
            outputs = [output.flatten().clone() for output in run(batch, divisor)]
        outputs.append(torch.stack(torch._foreach_norm(gradients_of(self.strategy))))
        self.strategy.zero_grad()
        return tuple(outputs)

    @contextmanager
    def changed(self) -> Iterator[None]:
        """Change what a recording must read again: double the weights for a while; halving them restores
        every bit."""
        weights = [parameter.data for parameter in self.strategy.module.parameters()]
        torch._foreach_mul_(weights, 2.0)
        try:
            yield
        finally:
            torch._foreach_mul_(weights, 0.5)

    def disable(self, reason: str) -> None:
        """Run all passes eagerly from now on, and free the recordings."""
        logger.warning("training is not recorded as CUDA graphs and may be slower: %s", reason)
        self.enabled = False
        self.recordings.clear()
        self.strategy.keep_gradients = False


def gradients_of(strategy: Strategy) -> list[torch.Tensor]:
    """Return the gradients that exist, in the order of the parameters."""
    return [parameter.grad for parameter in strategy.module.parameters() if parameter.grad is not None]


def is_close(replayed: torch.Tensor, eager: torch.Tensor) -> bool:
    """Return whether values are equal up to TOLERANCE, relative to each or to the largest."""
    finite = eager[eager.isfinite()].abs()
    largest = float(finite.max()) if len(finite) else 0.0
    return torch.allclose(replayed, eager, rtol=TOLERANCE, atol=TOLERANCE * largest, equal_nan=True)


def tensors(batch: Batch) -> list[torch.Tensor]:
    """Return the tensors on the device that a pass reads."""
    return [value for value in batch.inputs.values() if torch.is_tensor(value)] + [batch.labels]


def shape_of(batch: Batch) -> tuple:
    """Return everything that a recorded pass depends on, except the values of its tensors."""
    values = batch.inputs.items()
    return batch.num_rows, *(
        (name, tuple(value.shape) if torch.is_tensor(value) else value) for name, value in values
    )
