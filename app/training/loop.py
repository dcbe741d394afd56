"""The only training loop, whatever mode drives it, and how far it has come."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ..batching.loader import Loader
from ..batching.plan import BatchPlan
from ..config.schema import TrainConfig
from ..errors import TrainingError
from ..modes.mode import Mode
from ..runtime.devices import is_cuda
from .non_finite import REMEDY
from .optimizer import learning_rate_factor, peak_learning_rate, warmup_steps
from .out_of_memory import RetryOutOfMemory
from .recorded_passes import record_passes
from .step import Loss, StepResult, TrainingStep

# Steps of the plan that sizes are chosen from; rows come in random order, so later ones have similar sizes
RECORDED_FROM = 2_000


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

    def check_trained(self, total_steps: int) -> None:
        """Raise TrainingError where the training has ended and no step has changed the weights."""
        if self.is_trained(total_steps) and not self.updates:
            raise TrainingError(
                f"all {self.step} steps were skipped, because their losses or gradients were not finite: "
                f"nothing was trained, and there is no report; {REMEDY}"
            )


def train(
    mode: Mode,
    loader: Loader,
    plan: BatchPlan,
    loss: Loss,
    config: TrainConfig,
    progress: RunProgress,
    after_step: Callable[[RunProgress, StepResult], None],
    before_update: Callable[[], None] = lambda: None,
) -> None:
    """Train from `progress.step` to the last step of the plan, or until `progress.stop`. Every rank calls
    `before_update` when a step's gradients are complete, and `after_step` after it."""
    total_steps = planned_steps(plan, config)
    warmup, peak = warmup_steps(config.warmup, total_steps), peak_learning_rate(config)
    step = TrainingStep(mode, loader, loss, config, before_update)
    step.warm_up()
    run_step = RetryOutOfMemory(step, config, progress.micro_batch_size)
    if mode.records_passes and is_cuda(mode.device) and not config.gradient_checkpointing:
        steps = range(min(total_steps, RECORDED_FROM))
        micro_batches = [run_step.of_ranks(plan.batch(index))[0] for index in steps]
        step.forward = record_passes(mode, loader, micro_batches, step.copies)
    while progress.step < total_steps and not progress.stop:
        factor = learning_rate_factor(progress.updates, total_steps, warmup, config.schedule)
        result = run_step(progress.step, plan.batch(progress.step), peak * factor)
        progress.micro_batch_size = run_step.fits
        progress.step += 1
        progress.updates += not result.skipped
        after_step(progress, result)


def planned_steps(plan: BatchPlan, config: TrainConfig) -> int:
    """Return the steps of the whole training."""
    steps = plan.steps_per_epoch * config.epochs
    return min(steps, config.max_steps) if config.max_steps else steps
