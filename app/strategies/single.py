"""One process on one device: CUDA, MPS or CPU."""

import torch
from torch import nn

from app.model.joint_casts import JointCasts
from app.runtime.cuda_graphs import GraphRecorder
from app.runtime.precision import DTYPES
from app.strategies.strategy import BuildOptimizer, Strategy


class Single(Strategy):
    """No communication inside a pass: on CUDA it can be recorded as a graph, and all gradients may arrive at its end."""

    can_cast_jointly = True
    joint_casts: JointCasts | None = None

    @property
    def recorder_class(self) -> type[GraphRecorder] | None:
        return GraphRecorder if self.device.type == "cuda" else None

    def wrap(self, model: nn.Module, build_optimizer: BuildOptimizer) -> None:
        super().wrap(model, build_optimizer)
        wanted = self.config.train.joint_casts
        if self.device.type == "cuda" if wanted is None else wanted:
            dtype = DTYPES.get(self.precision.name)
            self.joint_casts = JointCasts(model, dtype) if dtype else None

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        if self.joint_casts is None or not self.module.training:
            return super().forward(inputs)
        with self.joint_casts.in_use():
            return super().forward(inputs)
