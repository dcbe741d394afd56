"""Whole training steps as CUDA graphs: forward, backward, clipping and AdamW's update are one launch.

For 32 short texts a large GPU computes a step several times faster than its two thousand kernels are launched
one by one. A graph has one shape, and reads and writes the same memory each time. So two sizes of batch are
recorded before the first step: one for 85 % of the plan's batches, and one for all of them. A batch is filled
up to the smaller size that fits, with one row of padding. Batches with fewer rows are not recorded.

No GPU has verified this yet; `train.cuda_graphs` is off unless it is asked for.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch.nn.functional import pad

from ..batching.loader import Batch, to_device
from ..batching.plan import BatchPlan
from ..errors import first_line
from ..runtime.cuda_graphs import GraphRecorder
from ..runtime.devices import has_memory
from .optimizer import set_learning_rate
from .out_of_memory import RetryOutOfMemory
from .step import StepResult

logger = logging.getLogger(__name__)
# Percent of the plan's batches that fit the smaller size
PERCENTILE = 85
# The tokens of a size are a multiple of this
ROUND_TOKENS_TO = 64
# Steps of the plan that are looked at; rows come in random order, so later batches have similar sizes
MAX_STEPS = 10_000
# How far a replay may differ from a step that is not recorded: relative to each tensor's own norm, and to how
# far two steps differ that are not recorded
TOLERANCE = 1e-2
NOISE_FACTOR = 3.0
# Sum of losses, whether the outputs of each target are finite, gradient norm
Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
# A step on the rows in the memory of a recording
Run = Callable[[], Outputs]


class RecordedStep:
    """Replays the steps of full global batches, whose learning rates are tensors, and leaves others to
    `unrecorded`: with a warning all, where recording fails or a replay differs from the step itself."""

    def __init__(self, unrecorded: RetryOutOfMemory, plan: BatchPlan, total_steps: int) -> None:
        self.unrecorded = unrecorded
        self.step = unrecorded.step
        self.loader = self.step.loader
        self.strategy = self.step.strategy
        self.num_rows = plan.batch_size
        self.recorder = GraphRecorder(self.strategy.device)
        # By tokens with the row of padding, fewest first: the batch that is read, and what trains it
        self.recordings: dict[int, tuple[Batch, Run]] = {}
        device = self.strategy.device
        try:
            with (
                torch.random.fork_rng([device] if has_memory(device) else [], device_type=device.type),
                self.restored() as restore,
            ):
                self.set_rates(lambda rate: torch.tensor(rate, dtype=torch.float32, device=device))
                for tokens, step in batch_sizes(plan, total_steps, self.loader.lengths()).items():
                    self.recordings[tokens] = self.record(tokens, plan.batch(step), restore)
            unrecorded.free_memory = partial(self.give_up, "memory ran out in a step")
        except (RuntimeError, MemoryError) as error:
            self.give_up(first_line(error))

    def __call__(self, index: int, batch: np.ndarray, learning_rate: float) -> StepResult:
        """Make the step `index`, from 0, on the rows at `batch`, a global batch."""
        total = self.loader.lengths(batch).sum() if len(batch) == self.num_rows else np.inf
        tokens = next((tokens for tokens in self.recordings if total < tokens), None)
        if tokens is None:
            return self.unrecorded(index, batch, learning_rate)
        self.step.begin(index, learning_rate)
        static, replay = self.recordings[tokens]
        [(positions, _)] = self.unrecorded.micro_batches(batch)
        self.copy(self.load(positions, tokens), static)
        # Copies, because the next replay writes to the same memory
        loss_sum, finite, norm = (value.clone() for value in replay())
        self.step.before_update()
        return StepResult(
            step=index + 1,
            rows=len(batch),
            learning_rate=learning_rate,
            loss_sum=loss_sum,
            divisor=self.loader.divisor(batch, index),
            positions=positions,
            finite=finite,
            grad_norm=norm,
            skipped=False,
        )

    def load(self, positions: np.ndarray, tokens: int) -> Batch:
        """Return rows on the device with one row of padding more, which fills them up to `tokens`."""
        batch, layout = self.loader.load(positions, torch.device("cpu")), self.loader.layout
        fill = {"input_ids": layout.pad_id, "position_ids": layout.first_position, "token_type_ids": 0}
        end = batch.inputs["input_ids"].shape[1]
        inputs = batch.inputs | {
            name: pad(batch.inputs[name], (0, tokens - end), value=value)
            for name, value in fill.items()
            if name in batch.inputs
        }
        inputs["first_tokens"] = pad(inputs["first_tokens"], (0, 1), value=end)
        if "last_tokens" in inputs:
            inputs["last_tokens"] = pad(inputs["last_tokens"], (0, 1), value=tokens - 1)
        inputs["row_offsets"] = pad(inputs["row_offsets"], (0, 1), value=tokens)
        # An upper bound; torch's kernel for fp32 refuses one above all tokens
        inputs["longest"] = tokens
        inputs = to_device(inputs | {"labels": batch.labels}, self.strategy.device)
        labels = inputs.pop("labels")
        return Batch(inputs, labels, batch.positions, batch.num_rows)

    def copy(self, batch: Batch, static: Batch) -> None:
        """Copy a batch into the memory that a recording reads."""
        to, values = ([*filter(torch.is_tensor, of.inputs.values()), of.labels] for of in (static, batch))
        torch._foreach_copy_(to, values)

    def record(self, tokens: int, batch: np.ndarray, restore: Callable[[], None]) -> tuple[Batch, Run]:
        """Record and verify the step of a size on a batch that fits; raise RuntimeError if it differs."""
        [(positions, _)] = self.unrecorded.micro_batches(batch)
        static = self.load(positions, tokens)
        work = partial(self.run_step, static, self.loader.divisor(batch, 0))
        run = partial(self.recorder.run, work)
        # The first step makes AdamW's state, which has to lie outside of the memory of the graph
        run()
        with self.capturable():
            replay = self.recorder.record(work)
        restore()
        # Another order, so that row starts differ from those of the recording
        self.copy(self.load(positions[::-1].copy(), tokens), static)
        self.verify(replay, run, restore)
        return static, replay

    def run_step(self, batch: Batch, divisor: int) -> Outputs:
        """Make a step on one micro-batch, which is the whole global batch."""
        loss_sum, finite = self.step.forward_backward(batch, divisor)
        norm, _ = self.step.update()
        return loss_sum, finite, norm

    def verify(self, replay: Run, run: Run, restore: Callable[[], None]) -> None:
        """Raise RuntimeError unless `replay` does what `run` does, as far as `run` does the same twice."""
        expected = self.results(run, restore)
        limits = [
            TOLERANCE * tensor.norm() + NOISE_FACTOR * (tensor - again).norm()
            for tensor, again in zip(expected, self.results(run, restore), strict=True)
        ]
        replayed = self.results(replay, restore)
        differences = [(tensor - wanted).norm() for tensor, wanted in zip(replayed, expected, strict=True)]
        # Not one of them may be not-a-number either
        if not all(difference <= limit for difference, limit in zip(differences, limits, strict=True)):
            raise RuntimeError("a replayed step gave other results than the step itself")

    def results(self, run: Run, restore: Callable[[], None]) -> list[torch.Tensor]:
        """Return loss, gradient norm, norm of the change of all weights and AdamW's means after two steps
        from doubled weights, the second of which reads what the first wrote; then restore everything."""
        weights = [parameter.data for parameter in self.strategy.module.parameters()]
        torch._foreach_mul_(weights, 2.0)
        before = [weight.clone() for weight in weights]
        set_learning_rate(self.strategy.optimizer, 1e-4)
        torch.manual_seed(1)
        run()
        loss_sum, _, norm = (value.clone() for value in run())
        change = torch.nn.utils.get_total_norm(torch._foreach_sub(weights, before))
        means = [state["exp_avg"].clone() for state in self.strategy.optimizer.state.values()]
        restore()
        return [loss_sum, norm, change, *means]

    @contextmanager
    def restored(self) -> Iterator[Callable[[], None]]:
        """Give a function that restores weights and AdamW's state, 0 where there was none; call it last."""
        weights = [parameter.data for parameter in self.strategy.module.parameters()]
        weights_before = [weight.clone() for weight in weights]
        states = self.strategy.optimizer.state
        before = {key: {name: value.clone() for name, value in states[key].items()} for key in states}

        def restore() -> None:
            torch._foreach_copy_(weights, weights_before)
            for parameter, state in states.items():
                for name, value in state.items():
                    if parameter in before:
                        value.copy_(before[parameter][name])
                    else:
                        value.zero_()

        try:
            yield restore
        finally:
            # Memory may have run out while AdamW made the state of a parameter
            for parameter in [key for key, state in states.items() if "exp_avg_sq" not in state]:
                del states[parameter]
            restore()

    @contextmanager
    def capturable(self) -> Iterator[None]:
        """Return the context in which torch lets AdamW be recorded; elsewhere it warns of `capturable`."""
        groups = self.strategy.optimizer.param_groups
        for group in groups:
            group["capturable"] = True
        try:
            yield
        finally:
            for group in groups:
                group["capturable"] = False

    def give_up(self, reason: str) -> None:
        """Free the recordings and what a failed one has left, and replay no steps from now on."""
        logger.warning("training steps are not replayed as CUDA graphs: %s", reason)
        self.strategy.zero_grad()
        self.recordings = {}
        self.unrecorded.free_memory = lambda: None
        self.set_rates(float)

    def set_rates(self, convert: Callable[[float], float | torch.Tensor]) -> None:
        """Convert the learning rate of each group of parameters."""
        for group in self.strategy.optimizer.param_groups:
            group["lr"] = convert(float(group["lr"]))


def batch_sizes(plan: BatchPlan, total_steps: int, lengths: np.ndarray) -> dict[int, int]:
    """Return the numbers of tokens to record, fewest first, and for each a step whose batch has fewer.
    `lengths` (num_rows,) are the tokens of each row."""
    batches = map(plan.batch, range(min(total_steps, MAX_STEPS)))
    tokens = np.array([lengths[batch].sum() * (len(batch) == plan.batch_size) for batch in batches])
    full = tokens[tokens > 0]
    if not len(full):
        return {}
    sizes = {
        int(size // ROUND_TOKENS_TO + 1) * ROUND_TOKENS_TO
        for size in (np.percentile(full, PERCENTILE), full.max())
    }
    return {size: int(np.flatnonzero((tokens > 0) & (tokens < size))[0]) for size in sorted(sizes)}
