"""DDP without torch's wrapper, for the contract suite."""

from app.strategies.ddp import DDP
from tests.training.test_cuda_graphs import Again


class Unwrapped(DDP):
    """As `ddp.wrapper` false."""

    wraps = False


class Recorded(Unwrapped):
    """Its passes are recorded, by a recorder that does the work again."""

    @property
    def recorder_class(self):
        return self.new_recorder

    def new_recorder(self, device):
        self.recorder = Again()
        return self.recorder

    def __exit__(self, *failure) -> None:
        super().__exit__(*failure)
        assert failure[0] or self.recorder.counts["replayed"] > 10
