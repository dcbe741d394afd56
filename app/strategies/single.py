"""One process on one device: CUDA, MPS or CPU."""

from ..runtime.cuda_graphs import GraphRecorder
from .strategy import Strategy


class Single(Strategy):
    """No communication inside a pass: on CUDA it can be recorded as a graph, and all gradients may arrive at
    its end."""

    can_cast_jointly = True

    @property
    def recorder_class(self) -> type[GraphRecorder] | None:
        return GraphRecorder if self.device.type == "cuda" else None
