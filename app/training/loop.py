"""The only training loop, whatever mode drives it."""

from collections.abc import Callable

from ..batching.loader import Loader
from ..batching.plan import BatchPlan
from ..config.schema import TrainConfig
from ..strategies.strategy import Strategy
from .optimizer import learning_rate_factor, peak_learning_rate, warmup_steps
from .out_of_memory import RetryOutOfMemory
from .progress import RunProgress
from .recorded_step import RecordedStep
from .step import Loss, StepResult, TrainingStep


def train(
    strategy: Strategy,
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
    step = TrainingStep(strategy, loader, loss, config, before_update)
    step.warm_up()
    run_step = RetryOutOfMemory(step, config, progress)
    if config.cuda_graphs:
        run_step = RecordedStep(run_step, plan, total_steps)
    while progress.step < total_steps and not progress.stop:
        factor = learning_rate_factor(progress.updates, total_steps, warmup, config.schedule)
        result = run_step(progress.step, plan.batch(progress.step), peak * factor)
        progress.step += 1
        progress.updates += not result.skipped
        if strategy.average and not result.skipped:
            strategy.average.update(progress.updates)
        after_step(progress, result)


def planned_steps(plan: BatchPlan, config: TrainConfig) -> int:
    """Return the steps of the whole training."""
    steps = plan.steps_per_epoch * config.epochs
    return min(steps, config.max_steps) if config.max_steps else steps
