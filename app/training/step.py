"""The only training loop, whatever the mode, and its step: batch, forward, loss, backward (in the last
micro-batch with the exchange between the ranks), unscale, clip, update, zero. `train.py` builds what it works
with, and does what follows a step. Below is the learning rate."""

import logging
import math
from collections.abc import Callable

import numpy as np
import torch

from ..batching.collate import StepMasks
from ..batching.loader import Batch, Loader
from ..batching.plan import BatchPlan, micro_batches
from ..checkpoints.progress import RunProgress
from ..config.schema import TrainConfig
from ..errors import TrainingError, first_line
from ..modes.mode import Mode
from ..runtime.memory import give_back_memory
from .out_of_memory import is_out_of_memory, replace_onednn
from .recorded_passes import RecordedPasses, Shards, record_passes
from .recorded_update import RecordedUpdate
from .step_results import PassesResult, StepResult

logger = logging.getLogger(__name__)
# outputs, targets -> the sum of the losses
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# Passes are recorded in sizes that fit these steps. Rows come in random order, so later ones are similar.
RECORDED_FROM = 2_000


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
    config = mode.config.train
    total_steps = planned_steps(plan, config)
    mode.module.train()
    step = Step(mode, loader, loss, before_update)
    step.prepare(plan, min(total_steps, RECORDED_FROM), progress.micro_batch_size)
    while progress.step < total_steps and not progress.stop:
        learning_rate = learning_rate_after(config, progress.updates, total_steps)
        result = step.run(progress, plan.batch(progress.step), learning_rate)
        after_step(progress, result)


class Step:
    """A step of training on this rank: a global batch changes the weights. Its passes are launched kernel by
    kernel, or replayed where they could be recorded (`recorded`)."""

    def __init__(
        self, mode: Mode, loader: Loader, loss: Loss, before_update: Callable[[], None] = lambda: None
    ) -> None:
        self.mode = mode
        self.loader = loader
        self.loss = loss
        self.before_update = before_update
        self.config = mode.config.train
        self.launched = LaunchedPasses(mode, loader)
        self.recorded: RecordedPasses | None = None
        self.recorded_update: RecordedUpdate | None = None
        # The passes of the step that is made
        self.passes: LaunchedPasses | RecordedPasses = self.launched
        self.why_not_by_row = mode.unwrapped_module().why_not_by_row(loader.layout)
        if self.why_not_by_row:
            logger.info(
                "Dropout depends on the number of processes and micro-batches: %s.", self.why_not_by_row
            )

    def prepare(self, plan: BatchPlan, num_steps: int, max_rows: int | None) -> None:
        """Do what comes once, before the first step: record the passes, in sizes that fit the first steps of
        the plan. Every rank calls it."""
        first_masks = StepMasks(self.config.seed, step=0)
        self.mode.warm_up(self.loader.load(np.empty(0, np.int64), self.mode.device, 0, first_masks).inputs)
        recorder = self.mode.recorder()
        if recorder is None:
            return
        first_steps = [self.split_batch(plan.batch(step), max_rows) for step in range(num_steps)]
        self.recorded = record_passes(self.mode, self.loader, recorder, first_steps)
        if self.recorded is not None and RecordedUpdate.is_possible(self.mode):
            self.recorded_update = RecordedUpdate(self.mode, recorder)

    def run(self, progress: RunProgress, batch: np.ndarray, learning_rate: float) -> StepResult:
        """Train on the rows at `batch`, the global batch of step `progress.step`; every rank calls it."""
        passes_result = self.gradients_within_memory(progress, batch)
        self.before_update()
        norm, is_skipped = self.update(learning_rate)
        self.mode.optimizer.zero_grad()
        progress.step += 1
        progress.updates += not is_skipped
        return StepResult(
            step=progress.step,
            rows=len(batch),
            tokens=int(self.loader.lengths(batch).sum()),
            learning_rate=learning_rate,
            passes=passes_result,
            grad_norm=norm,
            skipped=is_skipped,
        )

    def update(self, learning_rate: float) -> tuple[torch.Tensor, bool]:
        """Change the weights by their gradients, and return the norm of these before clipping, and whether
        the update was skipped: fp16 overflowed."""
        groups = self.mode.optimizer.param_groups
        rates = [learning_rate * group.get("lr_scale", 1.0) for group in groups]
        if self.recorded_update is not None and self.passes is self.recorded:
            return self.recorded_update.run(rates, self.recorded.place_of_gradients), False
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        return self.mode.step(self.config.max_grad_norm)

    def gradients(self, step: int, batch: np.ndarray, shards: Shards) -> PassesResult:
        """Add the gradients of the rows at `batch`, the global batch of `step` (from 0), which `shards` deal
        to the ranks."""
        mode = self.mode
        own_micro_batches = shards[mode.group.rank]
        masks = StepMasks(self.config.seed, step)
        if self.why_not_by_row:
            # With a function of step and rank, resuming needs no state of a generator
            seed = np.random.SeedSequence([self.config.seed, step, mode.group.rank])
            torch.manual_seed(int(seed.generate_state(1, np.uint64)[0]))
        self.passes = self.launched
        if self.recorded is not None and self.recorded.can_compute(shards):
            self.passes = self.recorded
        divisor = self.loader.divisor(batch, step)
        loss_sum = torch.zeros((), device=mode.device)
        positions = []
        finite = []
        with mode.precision.cached_autocast():
            for index, rows in enumerate(own_micro_batches):
                micro_batch = self.passes.load(rows, step, masks)
                # Gradients are exchanged with the other ranks in the last one only.
                with mode.micro_batch(is_last=index == len(own_micro_batches) - 1):
                    outputs = micro_batch.row_outputs(self.passes.forward(micro_batch.inputs))
                    micro_loss = self.loss(outputs, micro_batch.labels)
                    self.passes.backward(micro_loss / divisor)
                loss_sum += micro_loss.detach()
                positions.append(micro_batch.positions[micro_batch.label_rows].numpy())
                finite.append(outputs.detach().isfinite().all(dim=1))
        return PassesResult(loss_sum, divisor, np.concatenate(positions), torch.cat(finite))

    def split_batch(self, batch: np.ndarray, max_rows: int | None) -> Shards:
        """Return the micro-batches of each rank, of at most `max_rows` rows where that is set."""
        world_size = self.mode.group.world_size
        num_micro_batches = self.config.accumulation_steps
        if max_rows is not None:
            needed_micro_batches = -(-len(batch) // (world_size * max_rows))
            num_micro_batches = max(num_micro_batches, needed_micro_batches)
        return micro_batches(
            batch,
            self.loader.lengths(batch),
            num_shards=world_size,
            accumulation_steps=num_micro_batches,
            max_tokens=self.config.micro_batch_tokens,
            padded=not self.loader.layout.packed,
        )

    def gradients_within_memory(self, progress: RunProgress, batch: np.ndarray) -> PassesResult:
        """Call `gradients`; where memory runs out, again with micro-batches of half the size, which later
        steps keep. Not in modes that exchange gradients: a rank that failed cannot tell the others, and what
        wraps the model waits for the rest of the backward pass, even in one process."""
        rank = self.mode.group.rank
        while True:
            shards = self.split_batch(batch, progress.micro_batch_size)
            try:
                return self.gradients(progress.step, batch, shards)
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
            self.recorded = None
            # A mode that repeats a step has one rank
            [own_micro_batches] = shards
            largest = max(len(rows) for rows in own_micro_batches)
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


class LaunchedPasses:
    """Passes of which each kernel is launched by itself, in the way of the mode, with the same methods as
    `RecordedPasses`."""

    def __init__(self, mode: Mode, loader: Loader) -> None:
        self.mode = mode
        self.loader = loader

    def load(self, rows: np.ndarray, step: int, masks: StepMasks) -> Batch:
        return self.loader.load(rows, self.mode.device, step, masks)

    def forward(self, inputs: dict) -> torch.Tensor:
        return self.mode.forward(inputs)

    def backward(self, loss: torch.Tensor) -> None:
        self.mode.backward(loss)


def planned_steps(plan: BatchPlan, config: TrainConfig) -> int:
    steps = plan.steps_per_epoch * config.epochs
    if config.max_steps:
        return min(steps, config.max_steps)
    return steps


def learning_rate_after(config: TrainConfig, updates: int, total_steps: int) -> float:
    """Return the learning rate after some updates, of groups of parameters without an `lr_scale`."""
    if config.warmup < 1:
        # It is a fraction of all steps
        warmup_steps = round(config.warmup * total_steps)
    else:
        warmup_steps = int(config.warmup)
    peak = config.learning_rate or config.head_learning_rate or 0.0
    return peak * learning_rate_factor(updates, total_steps, warmup_steps, config.schedule)


def learning_rate_factor(step: int, total_steps: int, warmup: int, schedule: str) -> float:
    """Return the factor on the highest learning rate for optimizer step `step`, counted from 0. It rises
    linearly to 1 at step `warmup - 1`, then stays there, or falls to 0 after the last step."""
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    fraction_left = max(0.0, (total_steps - step) / max(1, total_steps - warmup))
    if schedule == "linear":
        return fraction_left
    return 0.5 * (1 - math.cos(math.pi * fraction_left))
