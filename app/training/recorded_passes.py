"""The forward and the backward pass of a micro-batch as CUDA graphs.

A large GPU computes a batch of short texts several times faster than its thousand kernels are launched one by
one. A graph launches all of them at once, but it has one shape, and it reads and writes the same memory each
time. So two sizes are recorded before the first step: one that most batches of the plan fit, and one for all
of them. A batch gets rows of padding up to the smaller size that fits; their outputs are not used.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

import logging
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import pad

from ..batching.collate import Layout
from ..batching.loader import Loader
from ..errors import first_line
from ..modes.mode import Mode

logger = logging.getLogger(__name__)
# Percent of the batches that fit the smaller size
PERCENTILE = 85
ROUND_TOKENS_TO = 64
# A GPU needs longer to compute more tokens than this than to launch the kernels
MAX_TOKENS = 16_384

Forward = Callable[[dict], torch.Tensor]


def record_passes(mode: Mode, loader: Loader, steps: list[list[np.ndarray]], copies: int) -> Forward:
    """Return the forward pass of training, recorded where the model allows it and memory suffices.

    `steps` has the rows of the micro-batches of some steps, each row `copies` times in a micro-batch. The
    backward pass is recorded too. It writes each gradient to the same memory, so that a second micro-batch
    would change the gradients of the first: steps with several are not recorded.
    """
    layout, forward = loader.layout, mode.forward
    is_fixed = layout.packed and layout.varlen and loader.windows() is None
    if not is_fixed or any(len(micro_batches) > 1 for micro_batches in steps):
        return forward
    batches = [np.tile(rows, copies) for [rows] in steps]
    totals = np.array([loader.lengths(rows).sum() for rows in batches])
    # Kernels take longer for a higher limit of a row's tokens, also where no row has as many. So rows of
    # padding are no longer than others, and there is room for enough of them.
    longest = int(loader.lengths().max())
    num_rows = max(map(len, batches)) + int(totals.max()) // longest + 1
    # A row of padding has at least one token
    least = totals + [num_rows - len(rows) for rows in batches]
    limits = np.percentile(least, PERCENTILE), least.max()
    sizes = sorted({int(-(-limit // ROUND_TOKENS_TO)) * ROUND_TOKENS_TO for limit in limits})
    fullest = [batches[np.where(least <= size, least, 0).argmax()] for size in sizes]
    examples = [loader.load(rows, mode.device).inputs for rows in fullest]
    # Masked words have no fixed number
    if sizes[-1] > MAX_TOKENS or "masked" in examples[0]:
        return forward
    filled = {
        size: fill(inputs, num_rows, size, longest, layout)
        for size, inputs in zip(sizes, examples, strict=True)
    }
    try:
        # Dropout of the steps must not depend on the recording, nor their stream on a recording that failed
        stream = torch.cuda.stream(torch.cuda.current_stream(mode.device))
        with torch.random.fork_rng([mode.device], device_type="cuda"), stream:
            if not has_memory_for(mode, filled[sizes[-1]]):
                return forward
            pool = torch.cuda.graph_pool_handle()
            how = {"pool": pool, "stream": torch.cuda.Stream(mode.device)}
            recorded = {size: Recording(mode, inputs, how) for size, inputs in filled.items()}
    except RuntimeError as error:
        logger.warning("passes are not recorded as CUDA graphs: %s", first_line(error))
        return forward
    logger.info("passes are recorded as CUDA graphs of %s tokens", " and ".join(map(str, sizes)))

    def replay(inputs: dict) -> torch.Tensor:
        rows, tokens = len(inputs["first_tokens"]), inputs["input_ids"].shape[1]
        more = num_rows - rows
        for size in sizes:
            if 0 < more <= size - tokens <= more * longest:
                return recorded[size].forward(fill(inputs, num_rows, size, longest, layout))[:rows]
        return forward(inputs)

    return replay


def fill(inputs: dict, num_rows: int, num_tokens: int, longest: int, layout: Layout) -> dict:
    """Return a packed batch filled up to these numbers of rows and tokens with rows of padding.

    They have one token each or more, about the same number, which must be at most `longest`. No row of the
    batch may be longer either.
    """
    end, device = inputs["input_ids"].shape[1], inputs["input_ids"].device
    more = num_rows - len(inputs["first_tokens"])
    ends = end + torch.arange(more + 1, device=device) * (num_tokens - end) // more
    values = {"input_ids": layout.pad_id, "position_ids": layout.first_position, "token_type_ids": 0}
    filled = {
        name: pad(inputs[name], (0, num_tokens - end), value=value)
        for name, value in values.items()
        if name in inputs
    }
    for name in ("first_tokens", "last_tokens"):
        if name in inputs:
            filled[name] = torch.cat([inputs[name], ends[:-1]])
    return filled | {"row_offsets": torch.cat([inputs["row_offsets"], ends[1:].int()]), "longest": longest}


def has_memory_for(mode: Mode, inputs: dict) -> bool:
    """Return whether the graphs fit into memory, beside passes that are not recorded and the optimizer's
    state; one pass over `inputs` shows it."""
    device, before = mode.device, torch.cuda.memory_allocated(mode.device)
    torch.cuda.reset_peak_memory_stats(device)
    torch.autograd.grad(mode.forward(inputs).sum(), mode.parameters, allow_unused=True)
    of_a_pass = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    state = 2 * sum(parameter.nbytes for parameter in mode.parameters)
    return torch.cuda.mem_get_info(device)[0] > 2 * of_a_pass + state


class Recording:
    """Both passes on inputs of the shape of `inputs`, as a graph each. The backward pass gives all trained
    parameters their gradients at once: two hundred nodes of autograd, one for each, take the host 3 ms."""

    def __init__(self, mode: Mode, inputs: dict, how: dict) -> None:
        self.inputs, self.parameters = inputs, mode.parameters
        self.passes = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.passes[0], **how):
            outputs = mode.forward(inputs)
        self.outputs, self.gradient = outputs.detach(), torch.empty_like(outputs)
        with torch.cuda.graph(self.passes[1], **how):
            # Not all parameters have a gradient: an unread pooler has none
            self.gradients = torch.autograd.grad(outputs, self.parameters, self.gradient, allow_unused=True)

    def forward(self, inputs: dict) -> torch.Tensor:
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                self.inputs[name].copy_(value)
        self.passes[0].replay()
        outputs = self.outputs.detach().requires_grad_()
        outputs.register_hook(self.backward)
        return outputs

    def backward(self, gradient: torch.Tensor) -> None:
        self.gradient.copy_(gradient)
        self.passes[1].replay()
        for parameter, value in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = value
