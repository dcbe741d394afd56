"""Accelerate's gradient accumulation gives the weight that one large batch gives: 2.04000 both times.

python examples/accelerate_accumulation.py
torchrun --standalone --nproc_per_node=2 examples/accelerate_accumulation.py

One weight, first 0, learns y = 2x from x = 1 ... 8 in a single step of SGD at 0.02. The gradient of the mean
squared error is mean(2x (wx - 2x)) = -4 mean(x^2) = -4 * 25.5 = -102, and so w = 0.02 * 102 = 2.04, a little
more than the right value, 2. Four micro-batches of two rows have gradients -10, -50, -122 and -226; their
mean is -102 as well, because all have the same number of rows. (Where their sizes differ, the mean of means
is wrong: see examples/ddp_equals_accumulation.py.)

Two processes take four micro-batches of one row each: the same eight rows, the same weight. Any CUDA device
is used.

The end of a loader ends an accumulation as well, unless `sync_with_dataloader` is false. Two passes over six
micro-batches (two rows each, x = 1 ... 12, SGD at 0.002), four accumulated:

sync_with_dataloader  a step after micro-batches  what the steps see                               weight
True, the default     4, 6, 10, 12                a pass ends with two micro-batches, still        1.02630
                                                  divided by four: half the gradient of their mean
False                 4, 8, 12                    four micro-batches each; the second step has     1.05570
                                                  the last two of one pass and two of the next

With False, gradients wait from one pass to the next: what is evaluated or saved in between does not have
them, and where the training ends within an accumulation, they are lost.
"""

import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATION_STEPS = 4
LR = 0.02
# (8, 1)
INPUTS = torch.arange(1.0, 9.0).unsqueeze(1)
TARGETS = 2 * INPUTS

# For the two passes: six micro-batches, no multiple of the accumulation steps.
MICRO_BATCHES, PASSES, SMALL_LR = 6, 2, 0.002
# (12, 1)
MORE_INPUTS = torch.arange(1.0, 13.0).unsqueeze(1)


def main() -> None:
    """Print the weight after one step in four micro-batches, after one step in one batch, and after two
    passes, both ways."""
    # Where there is no GPU, each process would train alone without `cpu=True`, and without a warning.
    accelerator = Accelerator(
        gradient_accumulation_steps=ACCUMULATION_STEPS, cpu=not torch.cuda.is_available()
    )
    started = int(os.environ.get("WORLD_SIZE", 1))
    if accelerator.num_processes != started:
        raise RuntimeError(
            f"{started} processes were started, but Accelerate sees {accelerator.num_processes}"
        )
    accumulated = train_accumulated(accelerator)
    accelerator.print(f"with accumulation, {started} process(es): the final weight is {accumulated:.5f}")
    accelerator.print(f"without accumulation: the final weight is {train_at_once():.5f}")
    for syncs in (True, False):
        steps, weight = train_two_passes(syncs)
        accelerator.print(
            f"sync_with_dataloader={syncs}: steps after micro-batches {steps}; the final weight is "
            f"{weight:.5f}"
        )
    accelerator.end_training()


def train_accumulated(accelerator: Accelerator) -> float:
    """Return the weight after one pass over the rows, `ACCUMULATION_STEPS` micro-batches for each process."""
    batch_size, rest = divmod(len(INPUTS), ACCUMULATION_STEPS * accelerator.num_processes)
    if rest or not batch_size:
        raise ValueError(
            f"8 rows make equal micro-batches for 1 or 2 processes, not {accelerator.num_processes}"
        )
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=batch_size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, targets in loader:
        # Around forward, backward and step: only the fourth step is taken
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            # Divides by the accumulation steps
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return accelerator.unwrap_model(model).weight.item()


def train_two_passes(sync_with_dataloader: bool) -> tuple[list[int], float]:
    """Return after which micro-batches a step was taken, counted over both passes, and the final weight."""
    plugin = GradientAccumulationPlugin(
        num_steps=ACCUMULATION_STEPS, sync_with_dataloader=sync_with_dataloader
    )
    accelerator = Accelerator(gradient_accumulation_plugin=plugin, cpu=not torch.cuda.is_available())
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=SMALL_LR)
    batch_size = len(MORE_INPUTS) // (MICRO_BATCHES * accelerator.num_processes)
    loader = DataLoader(TensorDataset(MORE_INPUTS, 2 * MORE_INPUTS), batch_size=batch_size)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps, count = [], 0
    for _ in range(PASSES):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
                count += 1
                # The step was taken, not skipped
                if accelerator.sync_gradients:
                    steps.append(count)
    return steps, accelerator.unwrap_model(model).weight.item()


def train_at_once() -> float:
    """Return the weight after one step on all rows, in plain torch."""
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    nn.functional.mse_loss(model(INPUTS), TARGETS).backward()
    optimizer.step()
    return model.weight.item()


def new_model() -> nn.Linear:
    """Return the model of one weight, 0 at first."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


if __name__ == "__main__":
    main()
    # In torch 2.13 gloo's threads may abort or hang Python's own shutdown; all is printed, so leave without
    # it.
    sys.stdout.flush()
    os._exit(0)
