"""How far a run has come."""

from dataclasses import dataclass, field


@dataclass
class RunProgress:
    """Plain data, equal on every rank; a training state on disk keeps all of it but `stop`.

    `step`: global batches seen. `updates`: optimizer steps that changed the weights; fewer than `step` only
    where fp16 overflowed or a step was skipped. `micro_batch_size`: rows that fit into memory, once it has
    run out. `stop`: end the loop after this step. `stopped_early`: early stopping has ended the training.
    `best_value`, `best_step`: the best evaluation on dev so far; `evaluations_without_improvement` since
    then. `loss_window`: (sum of losses over all ranks, targets) of each step since the last log line.
    `loss_sum`, `loss_targets`: those since the last evaluation. `scaler`: state of the loss scaler.
    `start_metrics`: those before the first step.
    """

    step: int = 0
    updates: int = 0
    micro_batch_size: int | None = None
    stop: bool = False
    stopped_early: bool = False
    best_value: float | None = None
    best_step: int = 0
    evaluations_without_improvement: int = 0
    loss_window: list[tuple[float, int]] = field(default_factory=list)
    loss_sum: float = 0.0
    loss_targets: int = 0
    scaler: dict = field(default_factory=dict)
    start_metrics: dict = field(default_factory=dict)

    def is_trained(self, total_steps: int) -> bool:
        """Return whether no step is left: all are done, or early stopping has ended the training."""
        return self.stopped_early or self.step >= total_steps
