"""How far a run has come."""

from dataclasses import dataclass, field


@dataclass
class RunProgress:
    """Plain data, equal on every rank; a training state on disk keeps it under these names."""

    step: int = 0  # global batches seen
    updates: int = 0  # steps that changed the weights; fewer only where fp16 overflowed
    micro_batch_size: int | None = None  # rows that fit into memory, once it has run out
    stop: bool = False  # end the loop after this step
    stopped_early: bool = False  # early stopping has ended the training
    best_value: float | None = None  # of the best evaluation on dev so far, after best_step steps
    best_step: int = 0  # 0 with a best_value: the model as it was before the first step
    evaluations_without_improvement: int = 0
    # Sum of losses over all ranks, and targets, since the last log line, and since the last evaluation
    logged: list[float] = field(default_factory=lambda: [0.0, 0])
    evaluated: list[float] = field(default_factory=lambda: [0.0, 0])
    scaler: dict = field(default_factory=dict)  # state of the loss scaler
    start_metrics: dict = field(default_factory=dict)  # before the first step

    @property
    def has_best(self) -> bool:
        return self.best_step > 0 or self.best_value is not None

    def is_trained(self, total_steps: int) -> bool:
        return self.stopped_early or self.step >= total_steps

    def add(self, loss_sum: float, targets: int) -> None:
        for window in (self.logged, self.evaluated):
            window[0] += loss_sum
            window[1] += targets

    def mean_loss(self, window: list[float]) -> float:
        """Return the mean loss of the targets of a window, not a mean of means, and empty the window."""
        loss_sum, targets = window
        window[:] = [0.0, 0]
        return loss_sum / max(1, targets)
