"""Modes with the mistakes of copied scripts, which the contract suite must catch; and others that must do the
same job: one whose memory runs out, and those that replay their passes, with plain calls in the place of CUDA
graphs."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from app.modes.accelerate_mode import Accelerate
from app.modes.mode import DDP, FSDP, Mode, Single, modules_to_shard
from app.training import build, recorded_passes


class MeanOfMeans(DDP):
    """Averages each rank's share by itself, as if all shares had the same number of rows."""

    def forward(self, inputs):
        self.rows = len(inputs["first_tokens"])
        return super().forward(inputs)

    def backward(self, loss: torch.Tensor) -> None:
        # The loop divided by the rows of the global batch; this divides by those of the micro-batch instead.
        super().backward(loss * 16 / (self.rows * self.group.world_size))


class MasksOfRanks(DDP):
    """Has other masks of dropout on each rank, as a generator on each would draw them."""

    def forward(self, inputs):
        inputs = dict(inputs)
        inputs["dropout_keys"] = inputs.get("dropout_keys", 0) + self.group.rank
        return super().forward(inputs)


class ForgottenZeroGrad(DDP):
    """Never zeroes the gradients, so each step adds to those before."""

    def wrap(self, model):
        module, optimizer = super().wrap(model)
        optimizer.zero_grad = lambda: None
        return module, optimizer


class MissingUnscale(DDP):
    """Clips gradients that still carry the loss scale; it scales in every precision, also in float64."""

    def wrap(self, model):
        self.scaler = torch.amp.GradScaler(self.device.type)
        return super().wrap(model)

    def step(self, max_norm):
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), max_norm or float("inf"))
        return norm, super().step(0)[1]


class UnsynchronisedGradients(DDP):
    """Wraps nothing: every rank trains alone on its share."""

    wrap = Mode.wrap
    unwrapped_module = Mode.unwrapped_module
    micro_batch = Mode.micro_batch


class LittleMemory(Single):
    """Has memory for the gradients of three rows, so that the program halves its micro-batches."""

    def forward(self, inputs):
        if self.module.training and len(inputs["first_tokens"]) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(inputs)


class WrongPrecision(Single):
    """Turns autocast on with the device's own dtype, whatever was configured, as replicas once did."""

    def wrap(self, model):
        model.autocast = partial(torch.autocast, "cpu", torch.float16)
        return super().wrap(model)


class StatesInBF16(FSDP):
    """Casts all parameters of the encoder, also norms and embeddings, which makes bf16 of all states."""

    def wrap(self, model):
        mesh = init_device_mesh(self.device.type, (self.group.world_size,))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        layers, _ = modules_to_shard(model.model.base_model)
        for module in [*layers, model.model.base_model]:
            fully_shard(module, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh)
        return model, model.build_optimizer(self.config.train)


class PlainCalls:
    """In the place of CUDA graphs: a function is called again where its graph would be replayed."""

    num_calls = 0

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        function()

        def replay() -> None:
            self.num_calls += 1
            function()

        return replay

    def record_and_run(self, function: Callable[[], None]) -> Callable[[], None]:
        # A plain call runs while it is recorded
        return self.record(function)

    def has_memory_for(self, passes: Callable[[], None], other_bytes: int) -> bool:
        passes()
        return True


class Replayed(Mode):
    """Mixin, first in the MRO: all passes of training are replayed."""

    def __enter__(self):
        choose_layout = build.choose_layout

        def choose_varlen_layout(*choices):
            layout = choose_layout(*choices)
            return replace(layout, varlen=layout.packed)

        # Otherwise only for kernels of CUDA
        build.choose_layout = choose_varlen_layout
        self.plain_calls = PlainCalls()
        self.num_launched = 0
        return super().__enter__()

    def recorder(self):
        return self.plain_calls

    def backward(self, loss: torch.Tensor) -> None:
        self.num_launched += 1
        super().backward(loss)

    def __exit__(self, *failure):
        super().__exit__(*failure)
        assert self.plain_calls.num_calls
        assert not self.num_launched


class ReplayedSingle(Replayed, Single):
    """One process."""


class ReplayedDDP(Replayed, DDP):
    """Gradients are added up by one all-reduce of all of them, not by DDP."""


class ReplayedAccelerate(Replayed, Accelerate):
    """The same with the wrapper of Accelerate."""


class ReplayedAtTimes(ReplayedDDP):
    """Some steps do not fit what was recorded, and go through DDP."""

    def __enter__(self):
        choose_sizes = recorded_passes.choose_sizes

        def choose_smaller_size(*choices):
            sizes, fullest_batches = choose_sizes(*choices)
            return replace(sizes, num_tokens=sizes.num_tokens[:1]), fullest_batches[:1]

        recorded_passes.PERCENTILE = 40
        recorded_passes.ROUND_TOKENS_TO = 1
        recorded_passes.choose_sizes = choose_smaller_size
        return super().__enter__()

    def __exit__(self, *failure):
        Mode.__exit__(self, *failure)
        assert self.plain_calls.num_calls
        assert self.num_launched


class ForgottenAllReduce(ReplayedDDP):
    """Replays passes, and every rank keeps its own gradients."""

    def __enter__(self):
        super().__enter__()
        self.group.add_up = lambda values: None
        return self
