"""The losses of the last steps: they stay on the devices until they are needed, then ranks add up."""

from dataclasses import dataclass, field

import torch

from ...modes.mode import Mode
from ..step import StepResult


@dataclass
class Losses:
    """`window` is the run's list of (sum of losses, targets) of the steps since the last log line; the losses
    of the steps `on_device` are not in it yet."""

    mode: Mode
    window: list[tuple[float, int]]
    on_device: list[StepResult] = field(default_factory=list)

    def collect(self) -> tuple[list[StepResult], list[float]]:
        """Return the steps since the last call and the sums of their losses over all ranks; extend the
        window. Every rank calls it. Waits for the device."""
        steps, self.on_device = self.on_device, []
        if not steps:
            return [], []
        sums = self.mode.group.reduce_sum(torch.stack([step.loss_sum for step in steps])).tolist()
        self.window += [(loss_sum, step.divisor) for loss_sum, step in zip(sums, steps, strict=True)]
        return steps, sums

    def take_mean(self) -> float:
        """Return the mean loss of the targets in the window, not a mean of means, and empty the window."""
        loss_sums, targets = zip(*self.window, strict=True)
        self.window.clear()
        return sum(loss_sums) / sum(targets)
