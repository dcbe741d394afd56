"""Records work on a CUDA device as a graph, which is then launched as one.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Output = TypeVar("Output")


class GraphRecorder:
    """Runs and records work on one stream, so that what the kernels' libraries allocate for it exists before
    the recording."""

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
        """Return a function that replays recorded work and fills the same tensors each time.

        Nothing is computed yet.
        """
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self.stream.device)
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                output = work()
        except BaseException:
            # A recording that fails may keep its pool for good
            # (https://github.com/pytorch/pytorch/pull/190348); in a new one the next recordings share nothing
            # with it.
            self.pool = torch.cuda.graph_pool_handle()
            raise
        finally:
            # torch.cuda.graph does not reset it where the recording fails
            torch.cuda.set_stream(current)

        def replay() -> Output:
            graph.replay()
            return output

        return replay
