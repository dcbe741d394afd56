"""The machine's rate of matrix products on the shapes of a BERT encoder's training step: the limit of what a
step can do.

A step needs, for each weight of a linear layer and each token, a multiplication and an addition in the
forward pass and two of each in the backward pass: 6 operations. All else (attention, norms, dropout, the
optimizer) comes on top.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from benchmarks.harness.meter import Meter, Sizes

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# That each rate is measured for
SECONDS = 0.4
# The rate is also taken with so many times the tokens of a batch, and the higher one counts
LARGER = 8


@dataclass(frozen=True)
class Shapes:
    """Output and input size of the linear layers of an encoder, `weights`; `tokens` is the mean number of
    real tokens in a global batch."""

    weights: list[tuple[int, int]]
    tokens: int
    precisions: list[str]
    device: str

    @property
    def operations_per_token(self) -> int:
        """Arithmetic operations of one training step for each token."""
        return 6 * sum(rows * columns for rows, columns in self.weights)


def main(job: Shapes, meter: Meter) -> None:
    """Serve the measurement; the outcome of a step is the rate in operations per second for each
    precision."""
    meter.start(lambda steps: Sizes(0, 0, 0))
    while True:
        meter.step_done({name: highest_rate(job, DTYPES[name]) for name in job.precisions})


def highest_rate(shapes: Shapes, dtype: torch.dtype) -> float:
    """Return operations per second, with the tokens of one batch or of `LARGER`, whichever is faster."""
    weights = [torch.randn(*size, device=shapes.device, dtype=dtype) for size in shapes.weights]
    return max(_rate(weights, tokens, shapes.device) for tokens in (shapes.tokens, LARGER * shapes.tokens))


def _rate(weights: list[torch.Tensor], tokens: int, device: str) -> float:
    sizes = {size for weight in weights for size in weight.shape}
    states = {size: torch.randn(tokens, size, device=device, dtype=weights[0].dtype) for size in sizes}
    outputs = {size: torch.empty_like(state) for size, state in states.items()}
    gradients = {weight.shape: torch.empty_like(weight) for weight in weights}

    def step() -> None:
        for weight in weights:
            rows, columns = weight.shape
            # Forward
            torch.mm(states[columns], weight.t(), out=outputs[rows])
            # Gradient of the input
            torch.mm(states[rows], weight, out=outputs[columns])
            # Gradient of the weight
            torch.mm(states[rows].t(), states[columns], out=gradients[weight.shape])

    step()
    _synchronise(device)
    steps, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS:
        step()
        _synchronise(device)
        steps += 1
    return 6 * tokens * sum(weight.numel() for weight in weights) * steps / seconds


def _synchronise(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()
