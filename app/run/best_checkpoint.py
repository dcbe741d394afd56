"""Which evaluation on dev is the best so far, and when there have been too many without a better one."""

from __future__ import annotations

from ..outcomes.metrics import is_better
from ..training.progress import RunProgress


class BestCheckpoint:
    """Chooses the checkpoint to keep, by `metric` on dev; its place is kept in the run's progress."""

    def __init__(self, progress: RunProgress, metric: str, early_stopping: int | None) -> None:
        self.progress = progress
        self.metric = metric
        self.early_stopping = early_stopping

    def update(self, metrics: dict) -> bool:
        """Take in the evaluation at the current step; return whether it is the best so far."""
        progress, value = self.progress, metrics[self.metric]
        if not is_better(value, progress.best_value, self.metric):
            progress.evaluations_without_improvement += 1
            return False
        progress.best_value, progress.best_step = value, progress.step
        progress.evaluations_without_improvement = 0
        return True

    def take_last(self) -> None:
        """Take the current step as the best, in a run without dev rows."""
        self.progress.best_step = self.progress.step

    @property
    def should_stop(self) -> bool:
        """Whether the last `early_stopping` evaluations have not been better."""
        return (
            bool(self.early_stopping) and self.progress.evaluations_without_improvement >= self.early_stopping
        )
