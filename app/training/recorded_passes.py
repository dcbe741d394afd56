"""The forward and the backward pass of a micro-batch as CUDA graphs.

A large GPU computes a batch of short texts several times faster than its thousand kernels are launched one by
one. A graph launches all of them at once, but it has one shape, and it reads and writes the same memory each
time. So two sizes are recorded before the first step: one that most batches of the plan fit, and one for all
of them. A batch gets rows of padding up to the smaller size that fits; their outputs are not used.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import pad

from ..batching.collate import Layout, StepMasks
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


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of the batches that graphs compute."""

    num_rows: int  # with rows of padding, in each of them
    longest: int  # the most tokens of a row
    num_tokens: list[int]  # in a batch of each size, the smallest first

    def fitting(self, rows: int, tokens: int) -> int | None:
        """Return the tokens of the smallest size that a batch of `rows` and `tokens` can be filled up to, or
        None. A row of padding has at least one token, and no more than `longest`."""
        num_padding_rows = self.num_rows - rows
        for size in self.num_tokens:
            if 0 < num_padding_rows <= size - tokens <= num_padding_rows * self.longest:
                return size
        return None


def record_passes(mode: Mode, loader: Loader, steps: list[list[np.ndarray]], copies: int) -> Forward:
    """Return the forward pass of training, recorded where the model allows it and memory suffices.

    `steps` has the rows of the micro-batches of some steps, each row `copies` times in a micro-batch. The
    backward pass is recorded too. It writes each gradient to the same memory, so that a second micro-batch
    would change the gradients of the first: steps with several are not recorded.
    """
    layout = loader.layout
    forward = mode.forward
    is_fixed = layout.packed and layout.varlen and loader.windows() is None
    if not is_fixed or any(len(micro_batches) > 1 for micro_batches in steps):
        return forward
    batches = [np.tile(rows, copies) for [rows] in steps]
    sizes, fullest_batches = choose_sizes(loader, batches)
    first_masks = StepMasks(mode.config.train.seed, step=0)
    examples = [loader.load(rows, mode.device, 0, first_masks).inputs for rows in fullest_batches]
    # Masked words have no fixed number
    if sizes.num_tokens[-1] > MAX_TOKENS or "masked" in examples[0]:
        return forward
    filled = {}
    for size, inputs in zip(sizes.num_tokens, examples, strict=True):
        filled[size] = fill(inputs, sizes.num_rows, size, sizes.longest, layout)
    try:
        recordings = record(mode, filled)
    except RuntimeError as error:
        logger.warning("passes are not recorded as CUDA graphs: %s", first_line(error))
        return forward
    if recordings is None:
        return forward
    listed_sizes = " and ".join(map(str, sizes.num_tokens))
    logger.info("passes are recorded as CUDA graphs of %s tokens", listed_sizes)

    def replay(inputs: dict) -> torch.Tensor:
        num_rows = len(inputs["first_tokens"])
        size = sizes.fitting(num_rows, tokens=inputs["input_ids"].shape[1])
        if size is None:
            return forward(inputs)
        filled_inputs = fill(inputs, sizes.num_rows, size, sizes.longest, layout)
        return recordings[size].forward(filled_inputs)[:num_rows]

    return replay


def choose_sizes(loader: Loader, batches: list[np.ndarray]) -> tuple[GraphSizes, list[np.ndarray]]:
    """Return sizes for batches of these rows, and for each size the batch that fills it most."""
    totals = np.array([loader.lengths(rows).sum() for rows in batches])
    batch_sizes = np.array([len(rows) for rows in batches])
    # Kernels take longer for a higher limit of a row's tokens, also where no row has as many. So rows of
    # padding are no longer than others, and there is room for enough of them.
    longest = int(loader.lengths().max())
    num_rows = int(batch_sizes.max()) + int(totals.max()) // longest + 1
    # A row of padding has at least one token
    needed_tokens = totals + num_rows - batch_sizes
    smaller_size = rounded_up(np.percentile(needed_tokens, PERCENTILE))
    larger_size = rounded_up(needed_tokens.max())
    num_tokens = sorted({smaller_size, larger_size})
    fullest_batches = []
    for size in num_tokens:
        fitting_tokens = np.where(needed_tokens <= size, needed_tokens, 0)
        fullest_batches.append(batches[fitting_tokens.argmax()])
    return GraphSizes(num_rows, longest, num_tokens), fullest_batches


def rounded_up(num_tokens: float) -> int:
    return int(-(-num_tokens // ROUND_TOKENS_TO)) * ROUND_TOKENS_TO


def fill(inputs: dict, num_rows: int, num_tokens: int, longest: int, layout: Layout) -> dict:
    """Return a packed batch filled up to these numbers of rows and tokens with rows of padding.

    They have one token each or more, about the same number, which must be at most `longest`. No row of the
    batch may be longer either.
    """
    device = inputs["input_ids"].device
    end = inputs["input_ids"].shape[1]
    num_padding_tokens = num_tokens - end
    num_padding_rows = num_rows - len(inputs["first_tokens"])
    # Where the rows of padding begin, and where the last one ends
    offsets = end + torch.arange(num_padding_rows + 1, device=device) * num_padding_tokens // num_padding_rows
    padding_values = {
        "input_ids": layout.pad_id,
        "position_ids": layout.first_position,
        "token_type_ids": 0,
        "dropout_keys": 0,
    }
    filled = {}
    for name, value in padding_values.items():
        if name in inputs:
            filled[name] = pad(inputs[name], (0, num_padding_tokens), value=value)
    for name in ("first_tokens", "last_tokens"):
        if name in inputs:
            filled[name] = torch.cat([inputs[name], offsets[:-1]])
    filled["row_offsets"] = torch.cat([inputs["row_offsets"], offsets[1:].int()])
    filled["longest"] = longest
    return filled


def record(mode: Mode, filled: dict[int, dict]) -> dict[int, "Recording"] | None:
    """Return recordings on inputs of each size, or None where memory does not suffice. Raises RuntimeError
    where the model cannot be recorded."""
    # The stream of the steps must not depend on a recording that failed
    with torch.cuda.stream(torch.cuda.current_stream(mode.device)):
        if not has_memory_for(mode, filled[max(filled)]):
            return None
        pool = torch.cuda.graph_pool_handle()
        recording_stream = torch.cuda.Stream(mode.device)
        recordings = {}
        for size, inputs in filled.items():
            recordings[size] = Recording(mode, inputs, pool, recording_stream)
        return recordings


def has_memory_for(mode: Mode, inputs: dict) -> bool:
    """Return whether the graphs fit into memory, beside passes that are not recorded and the optimizer's
    state; one pass over `inputs` shows it."""
    device = mode.device
    bytes_before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    torch.autograd.grad(mode.forward(inputs).sum(), mode.parameters, allow_unused=True)
    bytes_of_pass = torch.cuda.max_memory_allocated(device) - bytes_before
    torch.cuda.empty_cache()
    bytes_of_state = 2 * sum(parameter.nbytes for parameter in mode.parameters)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return free_bytes > 2 * bytes_of_pass + bytes_of_state


class Recording:
    """Both passes on inputs of the shape of `inputs`, as a graph each. The backward pass gives all trained
    parameters their gradients at once: two hundred nodes of autograd, one for each, take the host 3 ms."""

    def __init__(self, mode: Mode, inputs: dict, pool: tuple, stream: torch.cuda.Stream) -> None:
        self.inputs = inputs
        self.parameters = mode.parameters
        self.forward_graph = torch.cuda.CUDAGraph()
        self.backward_graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.forward_graph, pool=pool, stream=stream):
            outputs = mode.forward(inputs)
        self.outputs = outputs.detach()
        self.gradient = torch.empty_like(outputs)
        with torch.cuda.graph(self.backward_graph, pool=pool, stream=stream):
            # Not all parameters have a gradient: an unread pooler has none
            self.gradients = torch.autograd.grad(outputs, self.parameters, self.gradient, allow_unused=True)

    def forward(self, inputs: dict) -> torch.Tensor:
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                self.inputs[name].copy_(value)
        self.forward_graph.replay()
        outputs = self.outputs.detach().requires_grad_()
        outputs.register_hook(self.backward)
        return outputs

    def backward(self, gradient: torch.Tensor) -> None:
        self.gradient.copy_(gradient)
        self.backward_graph.replay()
        for parameter, value in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = value
