"""Modes with the mistakes of copied scripts, which the contract suite must catch; and one whose memory runs
out, which must do the same job."""

from functools import partial

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from app.modes.mode import DDP, FSDP, Mode, Single, modules_to_shard


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
