"""Functions as CUDA graphs: a graph launches all kernels of a function at once.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from collections.abc import Callable

import torch


class CudaGraphs:
    """Records functions as CUDA graphs that share one pool of memory: a result stays until another graph is
    replayed."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.pool = torch.cuda.graph_pool_handle()
        # Graphs that share a pool are recorded on one stream
        self.stream = torch.cuda.Stream(device)

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does again what `function` does now to the memory of the device. Raises
        RuntimeError where it cannot be recorded, for instance because it waits for the device."""
        graph = torch.cuda.CUDAGraph()
        # After a recording that fails torch would stay on the stream of the recording
        with (
            torch.cuda.stream(torch.cuda.current_stream(self.device)),
            torch.cuda.graph(graph, pool=self.pool, stream=self.stream),
        ):
            function()
        return graph.replay

    def record_and_run(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record a function, and do what it does once; return what `record` does, and raise the same."""
        replay = self.record(function)
        replay()
        return replay

    def has_memory_for(self, passes: Callable[[], None], other_bytes: int) -> bool:
        """Return whether there is memory for graphs of `passes`, beside such passes that are not recorded and
        `other_bytes`. It calls `passes` once."""
        bytes_before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        passes()
        bytes_of_passes = torch.cuda.max_memory_allocated(self.device) - bytes_before
        torch.cuda.empty_cache()
        free_bytes, _ = torch.cuda.mem_get_info(self.device)
        return free_bytes > 2 * bytes_of_passes + other_bytes
