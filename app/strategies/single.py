"""One process on one device: CUDA, MPS or CPU."""

from app.strategies.base import Strategy
from app.training.recorded_passes import GraphRecorder


class Single(Strategy):
    """The base class is this mode, but that nothing has to happen within a pass here, so it can be a CUDA graph."""

    @property
    def records(self) -> bool:
        return self.device.type == "cuda"

    def new_recorder(self) -> GraphRecorder:
        return GraphRecorder(self.device)
