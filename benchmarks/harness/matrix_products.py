"""The machine's rate of matrix products on the shapes of an encoder's training step, the limit of what a step
can do, and its rate of copies.

A step needs, for each weight of a linear layer and each token, a multiplication and an addition in the
forward pass and two of each in the backward pass: 6 operations. All else (attention, norms, dropout, the
optimizer) comes on top, and waits for memory: AdamW reads and writes seven values for each weight.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .meter import Meter, Sizes, synchronise
from .program import COPIES

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
COPY_BYTES = 256 << 20  # more than a cache holds
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
    """Serve the measurement; the outcome of a step is the rate in operations per second by precision, and
    under `COPIES` in bytes per second."""
    meter.start(lambda steps: Sizes(0, 0, 0))
    while True:
        rates = {}
        for name in job.precisions:
            sizes = (job.tokens, LARGER * job.tokens)
            rates[name] = max(products_per_second(job, DTYPES[name], tokens) for tokens in sizes)
        meter.step_done(rates | {COPIES: bytes_per_second(job.device)})


def bytes_per_second(device: str) -> float:
    """Return the bytes that copies of a large tensor read and write per second."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES * times_per_second(lambda: target.copy_(source), device)


def products_per_second(shapes: Shapes, dtype: torch.dtype, tokens: int) -> float:
    """Return operations per second of a step's matrix products with so many tokens."""
    weights = [torch.randn(*size, device=shapes.device, dtype=dtype) for size in shapes.weights]
    sizes = {size for weight in weights for size in weight.shape}
    states = {size: torch.randn(tokens, size, device=shapes.device, dtype=dtype) for size in sizes}
    outputs = {size: torch.empty_like(state) for size, state in states.items()}
    gradients = {weight.shape: torch.empty_like(weight) for weight in weights}

    def multiply() -> None:
        for weight in weights:
            rows, columns = weight.shape
            # Forward, then the gradients of the input and of the weight
            torch.mm(states[columns], weight.t(), out=outputs[rows])
            torch.mm(states[rows], weight, out=outputs[columns])
            torch.mm(states[rows].t(), states[columns], out=gradients[weight.shape])

    operations = 6 * tokens * sum(weight.numel() for weight in weights)
    return operations * times_per_second(multiply, shapes.device)


def times_per_second(work: Callable[[], object], device: str) -> float:
    """Return how many times `work` is done in a second, after once to warm up."""
    work()
    synchronise(device)
    times, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < SECONDS:
        work()
        synchronise(device)
        times += 1
    return times / seconds
