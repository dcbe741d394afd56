"""The only training loop, and the only evaluation, whatever mode drives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from app.batches import BatchPlan, evaluation_batches, micro_batches
from app.config import TrainConfig
from app.loader import Loader
from app.metrics import check_rows
from app.optimizer import learning_rate_factor, set_learning_rate, warmup_steps
from app.strategies.base import Strategy


@dataclass
class TrainState:
    """How far training has come: `step` global batches seen; `updates` of the weights made, which is less only where fp16
    overflowed; `stop` ends the loop after this step."""

    step: int = 0
    updates: int = 0
    stop: bool = False


@dataclass(frozen=True)
class StepLog:
    """What one step leaves for the log; tensors stay on the device so that a step never waits for it.

    `loss_sum` is this rank's sum of row losses, `rows` the rows of the global batch.
    """

    loss_sum: torch.Tensor
    rows: int
    learning_rate: float
    grad_norm: torch.Tensor | None
    skipped: bool


class RowLoss:
    """The summed loss of a micro-batch: cross entropy with label smoothing and class weights."""

    def __init__(self, class_weights: torch.Tensor | None, label_smoothing: float) -> None:
        self.class_weights = class_weights
        self.label_smoothing = label_smoothing

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sum over rows, without dimensions, of logits (num_rows, num_labels) and labels (num_rows,)."""
        return cross_entropy(logits, labels, self.class_weights, reduction="sum", label_smoothing=self.label_smoothing)


def train(
    strategy: Strategy,
    loader: Loader,
    plan: BatchPlan,
    row_loss: RowLoss,
    config: TrainConfig,
    state: TrainState,
    after_step: Callable[[TrainState, StepLog], None],
    before_step: Callable[[], None] = lambda: None,
) -> None:
    """Train from `state.step` to the last step of the plan, or until `state.stop`.

    The loss of a step is the sum over the rows of its global batch divided by their number, under any number of processes
    and micro-batches. `after_step` is called on every rank behind each step, `before_step` when its gradients are complete.
    """
    total_steps = planned_steps(plan, config)
    warmup = warmup_steps(config.warmup, total_steps)
    while state.step < total_steps and not state.stop:
        strategy.module.train()
        # Dropout is a function of the step and the shard, so that resuming needs no generator state.
        torch.manual_seed(step_seed(config.seed, state.step, strategy.shard_index))
        learning_rate = config.learning_rate * learning_rate_factor(state.updates, total_steps, warmup, config.schedule)
        set_learning_rate(strategy.optimizer, learning_rate)
        batch = plan.batch(state.step)
        parts = micro_batches(
            batch, loader.lengths(batch), strategy.num_shards, strategy.shard_index, config.accumulation_steps
        )
        loss_sum = torch.zeros((), device=strategy.device)
        for index, positions in enumerate(parts):
            micro = loader.load(positions, strategy.device)
            with strategy.micro_batch(is_last=index == len(parts) - 1):
                logits = strategy.forward(micro.inputs)[: micro.num_rows]
                loss = row_loss(logits, micro.labels)
                strategy.backward(loss / len(batch))
            loss_sum += loss.detach()
        before_step()
        result = strategy.step(config.max_grad_norm)
        state.step += 1
        state.updates += not result.skipped
        after_step(state, StepLog(loss_sum, len(batch), learning_rate, result.grad_norm, result.skipped))


def planned_steps(plan: BatchPlan, config: TrainConfig) -> int:
    """Return the steps of the whole training."""
    steps = plan.steps_per_epoch * config.epochs
    return min(steps, config.max_steps) if config.max_steps else steps


def step_seed(seed: int, step: int, shard_index: int) -> int:
    """Return a seed that differs for every step and shard."""
    return int(np.random.SeedSequence([seed, step, shard_index]).generate_state(1, np.uint64)[0])


def evaluate(
    strategy: Strategy, loader: Loader, batch_size: int, on_batch: Callable[[int], None] = lambda rows: None
) -> np.ndarray:
    """Return the logits of every row of a split, (num_rows, num_labels) float32 in the split's order, on every rank.

    Raises RuntimeError unless each row came back exactly once. Every rank must call it. `on_batch` is called with the
    number of rows done by all ranks together, about.
    """
    strategy.module.eval()
    found_positions, found_logits = [], []
    with torch.inference_mode():
        for positions in evaluation_batches(loader.lengths(), batch_size, strategy.num_shards, strategy.shard_index):
            batch = loader.load(positions, strategy.device)
            found_logits.append(strategy.forward(batch.inputs)[: batch.num_rows])
            found_positions.append(batch.positions)
            on_batch(batch.num_rows * strategy.num_shards)
    positions = strategy.gather(torch.cat(found_positions).to(strategy.device)).cpu().numpy()
    logits = strategy.gather(torch.cat(found_logits)).cpu().numpy()
    check_rows(positions, len(loader), loader.split.name)
    ordered = np.empty_like(logits)
    ordered[positions] = logits
    return ordered
