"""The only training loop, and the only evaluation, whatever mode drives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from app.batching.loader import Batch, Loader
from app.batching.plan import BatchPlan, evaluation_batches
from app.config.schema import TrainConfig
from app.evaluation.metrics import check_rows
from app.strategies.base import Strategy
from app.training.optimizer import learning_rate_factor, set_learning_rate, warmup_steps
from app.training.out_of_memory import MicroBatches
from app.training.recorded_passes import Pass, RecordedPasses
from app.training.state import RunState


@dataclass(frozen=True)
class StepLog:
    """What one step leaves for the log; tensors stay on the device so that a step never waits for it.

    `loss_sum` is this rank's sum of row losses, `rows` the rows of the global batch, `step` its number from 1; `finite`
    (rows of this rank,) says whose logits are, for the rows at `positions`.
    """

    loss_sum: torch.Tensor
    rows: int
    learning_rate: float
    grad_norm: torch.Tensor | None
    skipped: bool
    step: int = 0
    positions: np.ndarray | None = None
    finite: torch.Tensor | None = None


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
    state: RunState,
    after_step: Callable[[RunState, StepLog], None],
    before_step: Callable[[], None] = lambda: None,
) -> None:
    """Train from `state.step` to the last step of the plan, or until `state.stop`.

    The loss of a step is the sum over the rows of its global batch divided by their number, under any number of processes
    and micro-batches. `after_step` is called on every rank behind each step, `before_step` when its gradients are complete.
    """
    total_steps = planned_steps(plan, config)
    warmup = warmup_steps(config.warmup, total_steps)
    strategy.module.train()
    strategy.settle(loader.load(np.empty(0, np.int64), strategy.device).inputs)
    micro = MicroBatches(strategy, config, state.micro_batch_size)
    add_gradients = partial(run_pass, strategy, row_loss)
    if loader.layout.filled:
        add_gradients = RecordedPasses(add_gradients, strategy, strategy.new_recorder())
        batch = plan.batch(state.step)
        part = micro.cut(batch, loader.lengths(batch))[0]
        add_gradients.prove(loader.load(part, strategy.device), len(batch))
    while state.step < total_steps and not state.stop:
        strategy.module.train()
        learning_rate = config.learning_rate * learning_rate_factor(state.updates, total_steps, warmup, config.schedule)
        set_learning_rate(strategy.optimizer, learning_rate)
        batch = plan.batch(state.step)
        lengths = loader.lengths(batch)
        parts = micro.cut(batch, lengths)
        while (
            passed := run_micro_batches(
                strategy, loader, add_gradients, config.seed, state.step, parts, len(batch), micro
            )
        ) is None:
            strategy.zero_grad()
            micro.halve(state.step + 1, len(batch))
            state.micro_batch_size = micro.limit
            parts = micro.cut(batch, lengths)
        before_step()
        result = strategy.step(config.max_grad_norm)
        state.step += 1
        state.updates += not result.skipped
        loss_sum, finite = passed
        figures = (loss_sum, len(batch), learning_rate, result.grad_norm, result.skipped)
        after_step(state, StepLog(*figures, state.step, np.concatenate(parts), finite))


def run_micro_batches(
    strategy: Strategy,
    loader: Loader,
    add_gradients: Pass,
    seed: int,
    step: int,
    parts: list[np.ndarray],
    num_rows: int,
    micro: MicroBatches,
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Add up the gradients of a step over this rank's micro-batches, of `num_rows` rows on all ranks; every rank calls it.

    Returns the sum of its row losses and whose logits are finite, (rows,); None where memory ran out on some rank.
    """
    # Dropout is a function of the step and the shard, so that resuming needs no generator state.
    torch.manual_seed(step_seed(seed, step, strategy.shard_index))
    loss_sum, finite, passed = torch.zeros((), device=strategy.device), [], True
    with strategy.keeping_casts():
        for index, positions in enumerate(parts):
            is_last = index == len(parts) - 1
            if is_last and micro.asks_others and not micro.all_passed(passed):
                return None
            try:
                batch = loader.load(positions, strategy.device)
                with strategy.micro_batch(is_last=is_last):
                    loss, logits = add_gradients(batch, num_rows)
            except (RuntimeError, MemoryError) as error:
                micro.check(error, is_last)
                passed = False
                continue
            loss_sum += loss
            finite.append(logits.isfinite().all(dim=1))
    return (loss_sum, torch.cat(finite)) if passed else None


def run_pass(
    strategy: Strategy, row_loss: RowLoss, batch: Batch, num_rows: int | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add the gradients of a micro-batch of a global batch of `num_rows`; return the sum of its row losses, and its logits."""
    logits = strategy.forward(batch.inputs)[: batch.num_rows]
    loss = row_loss(logits, batch.labels)
    strategy.backward(loss / num_rows)
    return loss.detach(), logits.detach()


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
    with strategy.evaluation_mode():
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
