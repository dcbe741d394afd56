"""The only training loop, whatever mode drives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..batching.loader import Loader
from ..batching.plan import BatchPlan
from ..config.schema import TrainConfig
from ..strategies.strategy import Strategy
from .forward_backward import ForwardBackward, Loss, PassResults
from .optimizer import learning_rate_factor, set_learning_rate, warmup_steps
from .progress import RunProgress


@dataclass(frozen=True)
class StepLog:
    """What one step leaves for the log; tensors stay on the device so that a step never waits for it.

    `step` is its number from 1, `rows` the rows of the global batch, `passes` what forward and backward left
    on this rank.
    """

    step: int
    rows: int
    learning_rate: float
    grad_norm: torch.Tensor | None
    skipped: bool
    passes: PassResults


def train(
    strategy: Strategy,
    loader: Loader,
    plan: BatchPlan,
    loss: Loss,
    config: TrainConfig,
    state: RunProgress,
    after_step: Callable[[RunProgress, StepLog], None],
    before_step: Callable[[], None] = lambda: None,
) -> None:
    """Train from `state.step` to the last step of the plan, or until `state.stop`.

    The loss of a step is the sum over the targets of its global batch divided by their number, for any number
    of processes and micro-batches. Every rank calls `before_step` when the gradients of a step are complete
    (or used up, where the whole step is recorded), and `after_step` after the step.
    """
    total_steps = planned_steps(plan, config)
    warmup = warmup_steps(config.warmup, total_steps)
    forward_backward = ForwardBackward(strategy, loader, plan, total_steps, loss, config, state)
    forward_backward.warm_up()
    while state.step < total_steps and not state.stop:
        strategy.module.train()
        learning_rate = config.learning_rate * learning_rate_factor(
            state.updates, total_steps, warmup, config.schedule
        )
        set_learning_rate(strategy.optimizer, learning_rate)
        batch = plan.batch(state.step)
        passes = forward_backward(batch)
        before_step()
        result = passes.step or strategy.step(config.max_grad_norm)
        state.step += 1
        state.updates += not result.skipped
        after_step(
            state, StepLog(state.step, len(batch), learning_rate, result.grad_norm, result.skipped, passes)
        )


def planned_steps(plan: BatchPlan, config: TrainConfig) -> int:
    """Return the steps of the whole training."""
    steps = plan.steps_per_epoch * config.epochs
    return min(steps, config.max_steps) if config.max_steps else steps
