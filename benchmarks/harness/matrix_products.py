"""The machine's rate of matrix products on the shapes of an encoder's training step: the limit of what a step
can do.

A step needs, for each weight of a linear layer and each token, a multiplication and an addition in the
forward pass and two of each in the backward pass: 6 operations. All else (attention, norms, dropout, the
optimizer) comes on top.
"""

import time
from dataclasses import dataclass

import torch

from .meter import Meter, Sizes, synchronise

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SECONDS = 0.4  # that each rate is measured for
LARGER = 8  # the rate is also taken with so many times the tokens of a batch, and the higher one counts


@dataclass(frozen=True)
class Shapes:
    """Output and input size of the linear layers of an encoder, `weights`; `tokens` is the mean number of
    real tokens in a global batch."""

    weights: list[tuple[int, int]]
    tokens: int
    precisions: list[str]
    device: str


def main(job: Shapes, meter: Meter) -> None:
    """Serve the measurement; the outcome of a step is the rate in operations per second by precision."""
    meter.start(lambda steps: Sizes(0, 0, 0))
    while True:
        rates = {}
        for name in job.precisions:
            sizes = (job.tokens, LARGER * job.tokens)
            rates[name] = max(products_per_second(job, DTYPES[name], tokens) for tokens in sizes)
        meter.step_done(rates)


def products_per_second(shapes: Shapes, dtype: torch.dtype, tokens: int) -> float:
    """Return operations per second of a step's matrix products with so many tokens."""
    weights = [torch.randn(*size, device=shapes.device, dtype=dtype) for size in shapes.weights]
    sizes = {size for weight in weights for size in weight.shape}
    states = {size: torch.randn(tokens, size, device=shapes.device, dtype=dtype) for size in sizes}
    outputs = {size: torch.empty_like(state) for size, state in states.items()}
    gradients = {weight.shape: torch.empty_like(weight) for weight in weights}
    # The first step, which is not counted, warms up
    steps, seconds, started = -1, 0.0, time.perf_counter()
    while seconds < SECONDS:
        for weight in weights:
            rows, columns = weight.shape
            # Forward, then the gradients of the input and of the weight
            torch.mm(states[columns], weight.t(), out=outputs[rows])
            torch.mm(states[rows], weight, out=outputs[columns])
            torch.mm(states[rows].t(), states[columns], out=gradients[weight.shape])
        synchronise(shapes.device)
        steps += 1
        if steps == 0:
            started = time.perf_counter()
        seconds = time.perf_counter() - started
    return 6 * tokens * sum(weight.numel() for weight in weights) * steps / seconds
