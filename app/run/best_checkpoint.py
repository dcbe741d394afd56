"""Which evaluation on dev is the best so far, and when there have been too many without a better one."""

from __future__ import annotations

from ..outcomes.metrics import is_better
from ..training.progress import RunProgress


class BestCheckpoint:
    """Chooses the checkpoint to keep, by `metric` on dev; its place is kept in the run's state."""

    def __init__(self, state: RunProgress, metric: str, early_stopping: int | None) -> None:
        self.state = state
        self.metric = metric
        self.early_stopping = early_stopping

    def update(self, metrics: dict) -> bool:
        """Take in the evaluation at the state's step; return whether it is the best so far."""
        state, value = self.state, metrics[self.metric]
        if not is_better(value, state.best_value, self.metric):
            state.evaluations_without_improvement += 1
            return False
        state.best_value, state.best_step = value, state.step
        state.evaluations_without_improvement = 0
        return True

    def take_last(self) -> None:
        """Take the state's step as the best, in a run without dev rows."""
        self.state.best_step = self.state.step

    @property
    def should_stop(self) -> bool:
        """Whether the last `early_stopping` evaluations have not been better."""
        return bool(self.early_stopping) and self.state.evaluations_without_improvement >= self.early_stopping
