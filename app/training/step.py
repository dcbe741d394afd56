"""The only training loop, whatever the mode, and its step: batch, forward, loss, backward (in the last
micro-batch with the exchange between the ranks), unscale, clip, step, zero. `train.py` builds what it works
with, and does what follows a step. Below are evaluations, the losses of steps over all ranks, and the
learning rate."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..batching.loader import Batch, Loader
from ..batching.plan import BatchPlan, evaluation_batches, micro_batches
from ..checkpoints.progress import RunProgress
from ..config.schema import TrainConfig
from ..data.dataset import Split
from ..errors import TrainingError, first_line
from ..modes.mode import Mode
from ..runtime.devices import give_back_memory, has_memory, is_cuda
from .recorded_passes import record_passes

logger = logging.getLogger(__name__)
# outputs, targets -> the sum of the losses; with R-Drop it also has `divergence`
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# Passes are recorded in sizes that fit these steps. Rows come in random order, so later ones are similar.
RECORDED_FROM = 2_000
SHOWN_ROWS = 10  # of those that are named in an error
BATCH_ROWS = 64  # rows of a batch of an evaluation, in each process
# oneDNN gives no reason when it finds no memory for a kernel, and gives the thread no more of them then.
NO_KERNEL = "could not create a primitive"
# The others are messages of torch's allocators.
MESSAGES = ("can't allocate memory", "out of memory", NO_KERNEL)


@dataclass(frozen=True)
class StepResult:
    """What one step did; tensors stay on the device, so that a step never waits for it."""

    step: int  # from 1
    rows: int  # of the global batch, as tokens
    tokens: int
    learning_rate: float
    loss_sum: torch.Tensor  # of this rank; that of all ranks divided by `divisor` is the loss
    divisor: int
    positions: np.ndarray  # (targets,): the row of each of this rank's targets
    finite: torch.Tensor  # (targets,) bool: whether all outputs of the target are
    grad_norm: torch.Tensor  # L2 norm of all gradients before clipping, without dimensions
    skipped: bool  # no weight has changed, because the gradients overflowed under fp16


def train_steps(
    mode: Mode,
    loader: Loader,
    plan: BatchPlan,
    loss: Loss,
    progress: RunProgress,
    after_step: Callable[[RunProgress, StepResult], None],
    before_update: Callable[[], None] = lambda: None,
) -> None:
    """Train from `progress.step` to the last step of the plan, or until `progress.stop`. The loss of a step
    is the sum over the targets of its global batch divided by their number, for any number of processes and
    micro-batches. Every rank calls `before_update` when a step's gradients are complete, and `after_step`
    after it."""
    config, passes = mode.config.train, Passes(mode, loader, loss)
    total_steps = planned_steps(plan, config)
    # Below 1 it is a fraction of all steps
    warmup = round(config.warmup * total_steps) if config.warmup < 1 else int(config.warmup)
    peak = config.learning_rate or config.head_learning_rate or 0.0
    mode.module.train()
    device = mode.device
    with torch.random.fork_rng([device] if has_memory(device) else [], device_type=device.type):
        mode.warm_up(loader.load(np.empty(0, np.int64), device).inputs)
    if mode.records_passes and is_cuda(device) and not config.gradient_checkpointing:
        steps = range(min(total_steps, RECORDED_FROM))
        rows = [passes.cut(plan.batch(step), progress.micro_batch_size)[0] for step in steps]
        passes.forward = record_passes(mode, loader, rows, passes.copies)

    while progress.step < total_steps and not progress.stop:
        batch = plan.batch(progress.step)
        learning_rate = peak * learning_rate_factor(progress.updates, total_steps, warmup, config.schedule)
        for group in mode.optimizer.param_groups:
            group["lr"] = learning_rate * group.get("lr_scale", 1.0)
        of_passes = passes.run_within_memory(progress, batch)
        before_update()
        norm, skipped = mode.step(config.max_grad_norm)
        mode.optimizer.zero_grad()
        progress.step += 1
        progress.updates += not skipped
        numbers = {"rows": len(batch), "tokens": int(loader.lengths(batch).sum()), "skipped": skipped}
        numbers |= {"learning_rate": learning_rate, "grad_norm": norm}
        after_step(progress, StepResult(step=progress.step, **numbers, **of_passes))


class Passes:
    """The forward and backward passes of a global batch on this rank, in one or more micro-batches."""

    def __init__(self, mode: Mode, loader: Loader, loss: Loss) -> None:
        self.mode, self.loader, self.loss, self.config = mode, loader, loss, mode.config.train
        self.forward = mode.forward
        # R-Drop compares two predictions of each row of a micro-batch.
        self.copies = 2 if self.config.r_drop else 1

    def cut(self, batch: np.ndarray, fits: int | None) -> list[list[np.ndarray]]:
        """Return the micro-batches of each rank, of at most `fits` rows where that is set."""
        config, world_size = self.config, self.mode.group.world_size
        least = 1 if fits is None else -(-len(batch) // (world_size * fits))
        count = max(config.accumulation_steps, least)
        most_tokens = config.micro_batch_tokens
        if most_tokens is not None:
            # Each row is there `copies` times. At least 1, for one row a micro-batch: 0 would be no limit.
            most_tokens = max(1, most_tokens // self.copies)
        lengths = self.loader.lengths(batch)
        padded = not self.loader.layout.packed
        return micro_batches(batch, lengths, world_size, count, most_tokens, padded)

    def run(self, step: int, batch: np.ndarray, micro_batches: list[np.ndarray]) -> dict[str, Any]:
        """Add the gradients of the rows at `batch`, the global batch of `step` (from 0), of which this rank
        has `micro_batches`. Return `loss_sum`, `divisor`, `positions` and `finite` as in `StepResult`."""
        mode, device, config = self.mode, self.mode.device, self.config
        # Dropout is a function of the step and the rank, so resuming needs no state of a generator.
        seed = np.random.SeedSequence([config.seed, step, mode.group.rank])
        torch.manual_seed(int(seed.generate_state(1, np.uint64)[0]))
        divisor = self.loader.divisor(batch, step)
        loss_sum, positions, finite = torch.zeros((), device=device), [], []
        # A second replay of a recorded pass would write over the gradients of the first
        forward = self.forward if len(micro_batches) == 1 else mode.forward
        with mode.precision.cached_autocast():
            for index, rows in enumerate(micro_batches):
                micro_batch = self.loader.load(np.tile(rows, self.copies), device, step)
                # Gradients are exchanged with the other ranks in the last one only.
                with mode.micro_batch(is_last=index == len(micro_batches) - 1):
                    outputs = micro_batch.row_outputs(forward(micro_batch.inputs))
                    micro_loss = self.loss(outputs, micro_batch.labels)
                    if config.r_drop:
                        # https://arxiv.org/abs/2106.14448: the second half of the outputs is of the same rows
                        # under other dropout, and the loss of a target the mean of its two losses plus the
                        # divergence of its two predictions, of this target alone.
                        divergence = self.loss.divergence(*outputs.chunk(2))
                        micro_loss = micro_loss / 2 + config.r_drop * divergence
                    mode.backward(micro_loss / divisor)
                loss_sum += micro_loss.detach()
                positions.append(micro_batch.positions[micro_batch.label_rows].numpy())
                finite.append(outputs.detach().isfinite().all(dim=1))
        of_rows = {"positions": np.concatenate(positions), "finite": torch.cat(finite)}
        return {"loss_sum": loss_sum, "divisor": divisor} | of_rows

    def run_within_memory(self, progress: RunProgress, batch: np.ndarray) -> dict[str, Any]:
        """Call `run`; where memory runs out, again with micro-batches of half the size, which later steps
        keep. Not in modes that exchange gradients: a rank that failed cannot tell the others, and what wraps
        the model waits for the rest of the backward pass, even in one process."""
        rank = self.mode.group.rank
        while True:
            parts = self.cut(batch, progress.micro_batch_size)
            try:
                return self.run(progress.step, batch, parts[rank])
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.mode.launcher != "one":
                    raise TrainingError(
                        f"memory ran out on rank {rank}, and this mode cannot repeat a step: "
                        f"{first_line(error)}; resume from the last training state with --output.resume auto "
                        "--train.accumulation_steps N, with a larger number"
                    ) from error
                replace_onednn(error)
            # From here on the error no longer keeps the tensors of the failed passes alive.
            self.mode.optimizer.zero_grad()
            # Recorded passes keep memory, and are for one micro-batch.
            self.forward = self.mode.forward
            largest = max(len(rows) for of_rank in parts for rows in of_rank)
            if largest <= 1:
                raise TrainingError(
                    f"memory ran out in step {progress.step + 1} with micro-batches of one row; lower "
                    "data.max_length (with data.long windows also data.max_windows), or use a smaller model"
                )
            progress.micro_batch_size = -(-largest // 2)
            give_back_memory(self.mode.device)
            logger.info(
                f"memory ran out in step {progress.step + 1} with micro-batches of {largest} rows; it is "
                f"repeated, with at most {progress.micro_batch_size} from now on; the global batch stays"
            )


def evaluate(
    mode: Mode,
    loader: Loader,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda rows: None,
    row_results: Callable[[torch.Tensor, Batch], torch.Tensor] = lambda outputs, batch: outputs,
) -> np.ndarray:
    """Return the `row_results` of a split (its logits), (num_rows, any) float32 in the split's order, on
    every rank. Every rank must call it. `on_batch` is called with the approximate number of rows done by all
    ranks together. Raises RuntimeError unless each row came back exactly once, and TrainingError, naming the
    rows, unless all results are finite."""
    group, padded = mode.group, not loader.layout.packed
    mode.module.eval()
    own_positions, own_results = [], []
    limits = loader.windows(), mode.config.train.micro_batch_tokens, padded
    # Not in inference mode: parameters that ZeRO gathers there could not be trained again
    with torch.no_grad():
        for rows in evaluation_batches(loader.lengths(), batch_size, group.world_size, group.rank, *limits):
            batch = loader.load(rows, mode.device)
            outputs = batch.row_outputs(mode.forward(batch.inputs))
            own_results.append(row_results(outputs, batch))
            own_positions.append(batch.positions)
            on_batch(len(batch.positions) * group.world_size)
    # This is not done in each step, because it takes a millisecond, for which a GPU would wait
    mode.module.train()
    positions = group.gather(torch.cat(own_positions).to(mode.device)).cpu().numpy()
    results = group.gather(torch.cat(own_results)).cpu().numpy()
    if not np.array_equal(np.sort(positions), np.arange(len(loader))):
        raise RuntimeError(
            f"every row of {loader.split.name} must be evaluated exactly once; of {len(loader):,} rows "
            f"{len(np.unique(positions)):,} came back, in {len(positions):,} results, so there is no report"
        )
    wrong = positions[~np.isfinite(results).all(axis=1)]
    if len(wrong):
        raise TrainingError(
            f"evaluation on {loader.split.name} needs finite logits, found {len(wrong):,} of {len(loader):,} "
            f"rows without: {named_rows(loader.split, wrong)}. This model was not saved as the best; look at "
            "these rows, lower train.learning_rate or set train.precision fp32, and resume from the last "
            "training state: --output.resume auto"
        )
    return results[np.argsort(positions)]


def add_losses(mode: Mode, loader: Loader, steps: list[StepResult], progress: RunProgress) -> None:
    """Check the losses of `steps`, which have stayed on the device until now, add them to `progress`, and
    empty the list; every rank calls it. Raises TrainingError for a loss or gradient that is not finite."""
    if not steps:
        return
    group = mode.group
    sums = group.reduce_sum(torch.stack([step.loss_sum for step in steps])).tolist()
    norms = torch.stack([step.grad_norm for step in steps]).tolist()
    for step, loss, norm in zip(steps, sums, norms, strict=True):
        # Gradients that overflow under fp16 while the loss is finite are handled by the loss scaler.
        overflowed = mode.config.train.precision == "fp16" and step.skipped
        if math.isfinite(loss) and (math.isfinite(norm) or overflowed):
            progress.add(loss, step.divisor)
            continue
        own = torch.from_numpy(step.positions).to(mode.device)
        positions, found = group.gather(own[~step.finite]), "rows whose logits are not finite"
        if not len(positions):
            positions, found = group.gather(own), "all logits are finite; rows of the batch"
        raise TrainingError(
            f"step {step.step}: the loss is {loss / step.divisor:.4g} and the gradient norm {norm:.4g}; "
            f"{found}: {named_rows(loader.split, positions.cpu().numpy())}. No state was written since; look "
            "at these rows, or lower train.learning_rate, and resume with --output.resume auto"
        )
    steps.clear()


def named_rows(split: Split, positions: np.ndarray) -> str:
    """Return the first rows at `positions` of a split by id and line, how many more there are, their file."""
    rows = np.unique(split.rows[positions])
    shown = ", ".join(f"{row} ({split.table.place(row)})" for row in rows[:SHOWN_ROWS].tolist())
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"{shown}{more} of {split.table.source}"


def planned_steps(plan: BatchPlan, config: TrainConfig) -> int:
    steps = plan.steps_per_epoch * config.epochs
    return min(steps, config.max_steps) if config.max_steps else steps


def learning_rate_factor(step: int, total_steps: int, warmup: int, schedule: str) -> float:
    """Return the factor on the highest learning rate for optimizer step `step`, counted from 0. It rises
    linearly to 1 at step `warmup - 1`, then stays there, or falls to 0 after the last step."""
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    left = max(0.0, (total_steps - step) / max(1, total_steps - warmup))
    return left if schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left))


def replace_onednn(error: Exception) -> None:
    """Compute without oneDNN from now on, where it is what found no memory: it would find none again."""
    if NO_KERNEL in str(error) and torch.backends.mkldnn.enabled:
        torch.backends.mkldnn.set_flags(False)
        logger.warning("oneDNN found no memory for a kernel: torch's own kernels are used from now on")


def is_out_of_memory(error: Exception) -> bool:
    is_of_torch = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return is_of_torch or any(text in str(error) for text in MESSAGES)
