"""The forward and the backward pass of a micro-batch as CUDA graphs.

A large GPU computes a batch of short texts several times faster than its thousand kernels are launched one by
one. A graph launches all of them at once, but it has one shape, and it reads and writes the same memory each
time. So two sizes are recorded before the first step: one that most batches of the plan fit, and one for all
of them. The host fills a batch up with rows of padding to the smaller size that fits; their outputs are not
used.

Of several processes each has graphs of the bare model. The gradients are in one buffer, and one all-reduce
adds them up. What follows, from their norm to the update, is the same as in other steps.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch.func import functional_call

from ..batching.collate import FilledSize, StepMasks
from ..batching.joined_tensors import joined, places_of, views_of
from ..batching.loader import Batch, Loader
from ..batching.masking import MaskedLoader
from ..errors import first_line
from ..modes.mode import Mode, trained_parameters
from ..runtime.cuda_graphs import CudaGraphs

logger = logging.getLogger(__name__)
# Percent of the batches that fit the smaller size
PERCENTILE = 85
ROUND_TOKENS_TO = 64
# A GPU needs longer to compute more tokens than this than to launch the kernels
MAX_TOKENS = 16_384

# The micro-batches of each rank, as row positions
Shards = list[list[np.ndarray]]


@dataclass(frozen=True)
class GraphSizes:
    """The sizes of the batches that graphs compute."""

    num_rows: int  # with rows of padding, in each of them
    longest: int  # the most tokens of a row
    num_tokens: list[int]  # in a batch of each size, the smallest first

    def fitting(self, rows: int, tokens: int) -> FilledSize | None:
        """Return the smallest size that a batch of `rows` and `tokens` can be filled up to, or None. A row of
        padding has at least one token, and no more than `longest`."""
        num_padding_rows = self.num_rows - rows
        for size in self.num_tokens:
            if 0 < num_padding_rows <= size - tokens <= num_padding_rows * self.longest:
                return FilledSize(self.num_rows, size, self.longest)
        return None


def record_passes(
    mode: Mode, loader: Loader, recorder: CudaGraphs, steps: list[Shards]
) -> "RecordedPasses | None":
    """Return the passes of training, recorded where the model allows it and memory suffices; every rank calls
    it, and all record them or none.

    `steps` has the micro-batches of all ranks in some steps. Each gradient is written to the same memory, so
    that a second micro-batch would change the gradients of the first: steps with several are not recorded.
    """
    reason = why_launched(mode, loader, steps)
    if reason:
        logger.info("Kernels are launched one by one: %s.", reason)
        return None
    batches = []
    for shards in steps:
        for [rows] in shards:
            batches.append(rows)
    sizes, fullest_batches = choose_sizes(loader, batches)
    if sizes.num_tokens[-1] > MAX_TOKENS:
        logger.info("Kernels are launched one by one: a batch has more than %d tokens.", MAX_TOKENS)
        return None
    first_masks = StepMasks(mode.config.train.seed, step=0)
    examples = []
    for rows in fullest_batches:
        size = sizes.fitting(num_rows_of(rows), num_tokens_of(loader, rows))
        if size is None:
            logger.info("Kernels are launched one by one: batches have too few tokens.")
            return None
        examples.append(loader.host_batch(rows, draw=0, masks=first_masks, size=size))
    recorded = None
    try:
        recorded = RecordedPasses(mode, loader, recorder, sizes, examples)
    except RuntimeError as error:
        logger.warning("passes are not recorded as CUDA graphs: %s", first_line(error))
    was_recorded = torch.tensor(float(recorded is not None), device=mode.device)
    if float(mode.group.reduce_sum(was_recorded)) < mode.group.world_size:
        if recorded is not None:
            logger.warning("passes are not recorded as CUDA graphs: another rank could not record them")
        return None
    listed_sizes = " and ".join(map(str, sizes.num_tokens))
    logger.info("passes are recorded as CUDA graphs of %s tokens", listed_sizes)
    return recorded


def why_launched(mode: Mode, loader: Loader, steps: list[Shards]) -> str:
    """Return why the passes cannot be recorded, empty where they may be."""
    if mode.config.train.gradient_checkpointing:
        return "train.gradient_checkpointing computes layers again in the backward pass"
    if not loader.layout.varlen:
        return "attention of this model has no kernel for rows of any length on this device"
    if loader.windows() is not None:
        return "with data.long windows batches have no fixed number of rows"
    if isinstance(loader, MaskedLoader):
        return "batches have no fixed number of masked tokens"
    if any(len(micro_batches) > 1 for shards in steps for micro_batches in shards):
        return "steps have several micro-batches"
    return ""


def choose_sizes(loader: Loader, batches: list[np.ndarray]) -> tuple[GraphSizes, list[np.ndarray]]:
    """Return sizes for batches of these rows, and for each size the batch that fills it most."""
    totals = np.array([num_tokens_of(loader, rows) for rows in batches])
    batch_sizes = np.array([num_rows_of(rows) for rows in batches])
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


def num_rows_of(rows: np.ndarray) -> int:
    """Return the rows of a micro-batch; where it is empty a stand-in row is computed."""
    return max(1, len(rows))


def num_tokens_of(loader: Loader, rows: np.ndarray) -> int:
    """Return the tokens of a micro-batch."""
    if not len(rows):
        return int(loader.lengths(np.zeros(1, np.int64)).sum())
    return int(loader.lengths(rows).sum())


class RecordedPasses:
    """The passes of micro-batches that can be filled up to one of two sizes. Call `load`, `forward` and
    `backward` for a micro-batch, in this order."""

    def __init__(
        self,
        mode: Mode,
        loader: Loader,
        recorder: CudaGraphs,
        sizes: GraphSizes,
        examples: list[Batch],
    ) -> None:
        self.mode = mode
        self.loader = loader
        self.sizes = sizes
        self.parameters = mode.parameters
        model = BareModel(mode)
        # Also without graphs the first passes of a process are others: libraries are loaded, kernels chosen
        largest = PassesOfOneSize(model, examples[-1])
        # The state of the optimizer has two numbers for each parameter, and the buffer below one
        other_bytes = 3 * sum(parameter.nbytes for parameter in self.parameters)
        if not recorder.has_memory_for(largest.compute, other_bytes):
            raise RuntimeError("there is too little memory for them")
        self.buffer = None
        if mode.group.world_size > 1:
            self.buffer = GradientBuffer(self.parameters, largest.has_gradient)
        largest = None
        self.passes_of_size = {}
        for num_tokens, example in zip(sizes.num_tokens, examples, strict=True):
            passes = PassesOfOneSize(model, example, self.buffer)
            passes.record(recorder)
            self.passes_of_size[num_tokens] = passes

    def size_of(self, rows: np.ndarray) -> FilledSize | None:
        """Return the size that a micro-batch is filled up to, None where it fits none."""
        return self.sizes.fitting(num_rows_of(rows), num_tokens_of(self.loader, rows))

    def can_compute(self, shards: Shards) -> bool:
        """Return whether the micro-batches of every rank fit, because all exchange gradients in one way."""
        for micro_batches in shards:
            if len(micro_batches) > 1 or self.size_of(micro_batches[0]) is None:
                return False
        return True

    @property
    def place_of_gradients(self) -> int:
        """Return which memory has the gradients of this step: each size has its own, but for the buffer."""
        if self.buffer is not None:
            return 0
        return self.current.num_tokens

    def load(self, rows: np.ndarray, step: int, masks: StepMasks) -> Batch:
        """Return the batch of the rows, filled up, where the graphs of its size read it."""
        size = self.size_of(rows)
        self.current = self.passes_of_size[size.num_tokens]
        return self.current.load(self.loader.host_batch(rows, step, masks, size))

    def forward(self, inputs: dict) -> torch.Tensor:
        """Return the outputs for the inputs that were loaded last."""
        self.current.replay_forward()
        self.outputs = self.current.outputs.detach().requires_grad_()
        return self.outputs

    def backward(self, loss: torch.Tensor) -> None:
        """Give all trained parameters their gradients at once, summed over the ranks: two hundred nodes of
        autograd, one for each, take the host 3 ms."""
        self.mode.scaler.scale(loss).backward()
        self.current.output_gradient.copy_(self.outputs.grad)
        self.current.replay_backward()
        gradients = self.current.gradients
        if self.buffer is not None:
            self.mode.group.add_up(self.buffer.values)
            gradients = self.buffer.gradients
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient


class BareModel:
    """The model of a mode without its wrapper. Its weights are tensors that share the memory of the trained
    parameters.

    DDP keeps a node of autograd for each parameter. With the parameters themselves these nodes would be part
    of the passes, and would tie a recording to the stream on which DDP was made.
    """

    def __init__(self, mode: Mode) -> None:
        self.module = mode.unwrapped_module()
        self.parameters = {}
        for name, parameter in trained_parameters(self.module).items():
            self.parameters[name] = parameter.detach().requires_grad_()

    def outputs(self, inputs: dict) -> torch.Tensor:
        return functional_call(self.module, self.parameters, kwargs=inputs)


class GradientBuffer:
    """The gradients of all parameters in one buffer: `values`, and of each parameter the view in `gradients`,
    None where it has no gradient."""

    def __init__(self, parameters: list[torch.nn.Parameter], has_gradient: list[bool]) -> None:
        sizes = []
        for parameter, is_trained in zip(parameters, has_gradient, strict=True):
            sizes.append(parameter.numel() if is_trained else 0)
        self.values = parameters[0].new_zeros(sum(sizes))
        self.gradients: list[torch.Tensor | None] = []
        for parameter, part in zip(parameters, self.values.split(sizes), strict=True):
            self.gradients.append(part.view_as(parameter) if len(part) else None)

    def take(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        """Copy the gradients of one rank into the buffer."""
        targets = []
        sources = []
        for target, source in zip(self.gradients, gradients, strict=True):
            if target is not None:
                targets.append(target)
                sources.append(source)
        torch._foreach_copy_(targets, sources)


class PassesOfOneSize:
    """Both passes of batches of one size. The memory of the batch, of the outputs, of their gradient
    `output_gradient`, and of the gradients of the parameters stays the same."""

    def __init__(self, model: BareModel, example: Batch, buffer: GradientBuffer | None = None) -> None:
        self.model = model
        self.buffer = buffer
        self.num_tokens = example.inputs["input_ids"].shape[1]
        device = next(iter(model.parameters.values())).device
        self.is_pinned = device.type == "cuda"
        tensors = example.tensors()
        self.places = places_of(tensors)
        # The labels are last, and other batches may have more of them
        num_rows = len(tensors["first_tokens"])
        bytes_of_label = tensors["labels"].nbytes // max(1, len(tensors["labels"]))
        num_bytes = self.places["labels"].start + num_rows * bytes_of_label
        self.device_bytes = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
        self.inputs = self.load(example).inputs
        self.outputs: torch.Tensor | None = None
        self.output_gradient: torch.Tensor | None = None
        # Not all parameters have a gradient: an unread pooler has none
        self.gradients: tuple[torch.Tensor | None, ...] = ()
        self.has_gradient: list[bool] = []

    def load(self, batch: Batch) -> Batch:
        """Return a batch of the host on the device, by one copy to where the passes read it."""
        tensors = batch.tensors()
        places = places_of(tensors)
        assert all(places[name] == self.places[name] for name in places if name != "labels")
        host_bytes = joined(tensors, places, self.is_pinned)
        self.device_bytes[: len(host_bytes)].copy_(host_bytes, non_blocking=True)
        return batch.with_tensors(views_of(self.device_bytes, places))

    def compute_forward(self) -> None:
        self.outputs = self.model.outputs(self.inputs)

    def compute_backward(self) -> None:
        parameters = list(self.model.parameters.values())
        gradients = torch.autograd.grad(self.outputs, parameters, self.output_gradient, allow_unused=True)
        if self.buffer is None:
            self.gradients = gradients
        else:
            self.buffer.take(gradients)

    def compute(self) -> None:
        """Compute both passes for any gradient of the outputs."""
        self.compute_forward()
        self.output_gradient = torch.zeros_like(self.outputs)
        self.compute_backward()
        self.has_gradient = [gradient is not None for gradient in self.gradients]
        # No node of autograd may be left: it would belong to another stream than that of a recording
        self.outputs = None
        self.gradients = ()

    def record(self, recorder: CudaGraphs) -> None:
        self.replay_forward = recorder.record(self.compute_forward)
        self.output_gradient = torch.zeros_like(self.outputs)
        self.replay_backward = recorder.record(self.compute_backward)
        self.outputs = self.outputs.detach()
