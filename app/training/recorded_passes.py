"""Forward and backward of a micro-batch as a CUDA graph: one launch in place of some two thousand.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs. 32 short texts are half a millisecond of arithmetic for a
large GPU, several times less than the launches of their kernels take. A graph is of one shape, and reads and writes the same
memory each time; so batches are filled up to few numbers of tokens (`Layout.filled`), inputs are copied to where the graph
reads them, and gradients stay where they are, zeroed instead of freed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from app.batching.loader import Batch
from app.strategies.base import Strategy

logger = logging.getLogger(__name__)
MOST_GRAPHS = 64
# How far a recorded pass may be from the one that it was recorded of: what the order of additions can do in bf16.
TOLERANCE = 1e-2
Figures = tuple[torch.Tensor, torch.Tensor]
# A pass takes a micro-batch and the rows of its global batch; it adds gradients, and returns the sum of row losses and logits.
Pass = Callable[[Batch, int], Figures]


class GraphRecorder:
    """Runs and records work on one stream of its own, so that what kernels' libraries allocate there is there already."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()  # for all graphs: no two of them run at the same time

    def run(self, work: Callable[[], Figures]) -> Figures:
        """Do work on the stream."""
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            found = work()
        current.wait_stream(self.stream)
        return found

    def record(self, work: Callable[[], Figures]) -> Callable[[], Figures]:
        """Return what does recorded work: it fills the same tensors each time. Nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self.stream.device)
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                found = work()
        finally:
            torch.cuda.set_stream(current)  # which torch.cuda.graph leaves to us where the recording fails

        def replay() -> Figures:
            graph.replay()
            return found

        return replay


@dataclass(frozen=True)
class Recorded:
    """A recorded pass, `replay`, and the tensors that it reads."""

    replay: Callable[[], Figures]
    batch: Batch
    num_rows: torch.Tensor


class RecordedPasses:
    """A pass that records itself: the second batch of a shape is recorded and replayed, the first shows that there are more.

    Where recording fails, or gives other figures than the pass itself, passes run unrecorded, with a warning.
    """

    def __init__(
        self, run: Callable[[Batch, torch.Tensor], Figures], strategy: Strategy, recorder: GraphRecorder
    ) -> None:
        self.run = run
        self.strategy = strategy
        self.recorder = recorder
        self.recorded: dict[tuple, Recorded] = {}
        self.seen: set[tuple] = set()
        self.works = True
        self.gradients: list[torch.Tensor] = []
        strategy.keeps_gradients = True

    def __call__(self, batch: Batch, num_rows: int) -> Figures:
        """Add the gradients of a micro-batch; the tensors returned are valid until the next call."""
        shape = shape_of(batch)
        if not self.works:
            return self.run(batch, self.scalar(num_rows))
        if shape not in self.recorded:
            if shape not in self.seen or len(self.recorded) == MOST_GRAPHS:
                self.seen.add(shape)
                return self.run_once(batch, num_rows)
            try:
                self.recorded[shape] = self.record(batch, num_rows)
            except RuntimeError as error:
                self.give_up(str(error).splitlines()[0])
                return self.run(batch, self.scalar(num_rows))
        self.check_gradients()
        known = self.recorded[shape]
        torch._foreach_copy_(tensors(known.batch), tensors(batch))
        known.num_rows.fill_(num_rows)
        return known.replay()

    def scalar(self, num_rows: int) -> torch.Tensor:
        """Return a number on the device; dividing by one and by a number of Python's may differ in the last bit."""
        return torch.full((), num_rows, dtype=torch.float32, device=self.strategy.device)

    def run_once(self, batch: Batch, num_rows: int) -> Figures:
        """Run a pass unrecorded."""
        try:
            return self.recorder.run(partial(self.run, batch, self.scalar(num_rows)))
        except RuntimeError:  # of memory running out, as a rule; recordings would hold on to theirs
            self.recorded.clear()
            self.seen.clear()
            raise

    def record(self, batch: Batch, num_rows: int) -> Recorded:
        """Record the pass of a batch's shape."""
        inputs = {name: value.clone() if torch.is_tensor(value) else value for name, value in batch.inputs.items()}
        static = Batch(inputs, batch.labels.clone(), batch.positions, batch.num_rows)
        divisor = self.scalar(num_rows)
        # A cast that autocast keeps would be one of this moment's weights, in every step to come.
        keeps_casts = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            return Recorded(self.recorder.record(partial(self.run, static, divisor)), static, divisor)
        finally:
            torch.set_autocast_cache_enabled(keeps_casts)

    def check_gradients(self) -> None:
        """Make sure that gradients are where graphs add to them; elsewhere they would be lost without an error."""
        found = gradients_of(self.strategy)
        self.gradients = self.gradients or found
        if len(found) != len(self.gradients) or any(map(lambda a, b: a is not b, found, self.gradients)):
            raise AssertionError("gradients have moved since passes were recorded")

    def prove(self, batch: Batch, num_rows: int) -> None:
        """Give up unless a recorded pass does what the pass does, with other inputs and other weights than it was recorded with.

        To be called before the first step, which finds weights and gradients as they would have been.
        """
        turned = {name: value.flip(-1) if name == "input_ids" else value for name, value in batch.inputs.items()}
        other = replace(batch, inputs=turned, labels=batch.labels.flip(-1))
        try:
            for _ in range(2):
                self.figures(self, batch, num_rows)  # runs, then records and replays
            with self.doubled_weights():
                found = self.figures(self, other, num_rows + 1)
                wanted = self.figures(self.run_once, other, num_rows + 1)
        except RuntimeError as error:  # of memory, perhaps, which the loop knows how to get over
            self.give_up(str(error).splitlines()[0])
            self.strategy.zero_grad()
            return
        if self.works and not all(map(is_close, found, wanted)):
            self.give_up("a recorded pass gave other figures than the pass itself")

    def figures(self, run: Pass, batch: Batch, num_rows: int) -> tuple[torch.Tensor, ...]:
        """Return the loss and the logits of a pass, and the norm of each of its gradients, which are then zeroed."""
        torch.manual_seed(0)
        with self.strategy.keeping_casts():
            found = [part.flatten().clone() for part in run(batch, num_rows)]
        found.append(torch.stack(torch._foreach_norm(gradients_of(self.strategy))))
        self.strategy.zero_grad()
        return tuple(found)

    @contextmanager
    def doubled_weights(self) -> Iterator[None]:
        """Double the weights for a while; halving them again gives back every bit."""
        weights = [parameter.data for parameter in self.strategy.module.parameters()]
        torch._foreach_mul_(weights, 2.0)
        try:
            yield
        finally:
            torch._foreach_mul_(weights, 0.5)

    def give_up(self, reason: str) -> None:
        """Run passes unrecorded from now on, and free what was recorded."""
        logger.warning("steps are not recorded as CUDA graphs, and may be slower for it: %s", reason)
        self.works = False
        self.recorded.clear()
        self.strategy.keeps_gradients = False


def gradients_of(strategy: Strategy) -> list[torch.Tensor]:
    """Return the gradients that there are, in the order of the parameters."""
    return [parameter.grad for parameter in strategy.module.parameters() if parameter.grad is not None]


def is_close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Return whether figures are the same up to TOLERANCE, of each or of the largest."""
    finite = wanted[wanted.isfinite()].abs()
    largest = float(finite.max()) if len(finite) else 0.0
    return torch.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * largest, equal_nan=True)


def tensors(batch: Batch) -> list[torch.Tensor]:
    """Return the tensors on the device that a pass reads."""
    return [value for value in batch.inputs.values() if torch.is_tensor(value)] + [batch.labels]


def shape_of(batch: Batch) -> tuple:
    """Return what a recorded pass depends on but for the values of its tensors."""
    values = batch.inputs.items()
    return batch.num_rows, *((name, tuple(value.shape) if torch.is_tensor(value) else value) for name, value in values)
