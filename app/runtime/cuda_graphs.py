"""Records work on a CUDA device as a graph, which is then launched as one.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch

Output = TypeVar("Output")
# After a recording that fails, older versions leave the generator of random numbers and the allocator in it
# (https://github.com/pytorch/pytorch/pull/176752, https://github.com/pytorch/pytorch/pull/180395)
MIN_TORCH = (2, 13)


class GraphRecorder:
    """Runs and records work on one stream, on which libraries have allocated before the recording."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        # Shared by all graphs: no two of them run at the same time
        self.pool = torch.cuda.graph_pool_handle()

    def run(self, work: Callable[[], Output]) -> Output:
        """Run work on the stream, unrecorded."""
        current = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            output = work()
        current.wait_stream(self.stream)
        return output

    def record(self, work: Callable[[], Output]) -> Callable[[], Output]:
        """Return a function that replays recorded work and fills the same tensors each time. Nothing is
        computed yet. After an error the device can be used as before, without the recording."""
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self.stream.device)
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                output = work()
        except BaseException:
            self.end_failed_recording()
            raise
        finally:
            # torch.cuda.graph does not reset it where the recording fails
            torch.cuda.set_stream(current)

        def replay() -> Output:
            graph.replay()
            return output

        return replay

    def end_failed_recording(self) -> None:
        """Take the allocator and the generator out of a failed recording. Later ones get a new pool, because
        it may keep its own for good (https://github.com/pytorch/pytorch/pull/190348)."""
        index = self.stream.device.index
        # Raised where the recording has ended already
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(index, self.pool)
        generator = torch.cuda.default_generators[index]
        generator.graphsafe_set_state(generator.clone_state())
        self.pool = torch.cuda.graph_pool_handle()


def can_record() -> bool:
    """Return whether this torch can be used after a recording that fails."""
    return tuple(map(int, torch.__version__.split(".")[:2])) >= MIN_TORCH
