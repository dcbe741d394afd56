"""Two processes and two accumulation steps are the same thing: the same final parameters, to the last bit.

python examples/ddp_equals_accumulation.py --acc_steps 2
torchrun --standalone --nproc_per_node=2 examples/ddp_equals_accumulation.py --distributed

Both print the same parameters and the same fingerprint. Add `--verbose` to see the loss of each step, the
same too. Other ways to divide the same job differ by rounding only (about 1e-16), because floating point sums
depend on their order:

python examples/ddp_equals_accumulation.py
torchrun --standalone --nproc_per_node=2 examples/ddp_equals_accumulation.py --distributed --acc_steps 2

What makes them equal is one rule: *every gradient is that of a sum over rows, divided by the rows of the
global batch.* The mean of each micro-batch, averaged over the micro-batches, is something else as soon as
they differ in size, and here they do: 70 rows in batches of 16 leave a last batch of 6, and four
micro-batches of it have 2, 2, 1 and 1 rows. (`--data_size 65` leaves a last batch of one row: then a process
has an empty shard.)
"""

import argparse
import hashlib
import os
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Fit a small network to generated rows and print its final parameters."""
    args = parse_arguments()
    if args.distributed:
        dist.init_process_group("gloo")
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if args.distributed else (0, 1)

    # The same rows and the same first parameters in every process
    torch.manual_seed(0)
    inputs = torch.randn(args.data_size, 3, dtype=torch.float64)
    targets = inputs.prod(dim=1, keepdim=True)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    trained = DistributedDataParallel(model) if args.distributed else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(args.epochs):
        for step, batch in enumerate(torch.randperm(args.data_size).split(args.batch_size)):
            # The global batch is cut into a shard for each process, a shard into micro-batches. A micro-batch
            # may be empty: its loss is 0, and it still runs, because the other processes wait for its
            # gradients.
            shard = batch.tensor_split(world_size)[rank]
            loss = torch.zeros((), dtype=torch.float64)
            for micro_batch, rows in enumerate(shard.tensor_split(args.acc_steps), start=1):
                # `no_sync` goes around the forward pass too: DDP decides there whether to synchronise.
                with (
                    trained.no_sync() if args.distributed and micro_batch < args.acc_steps else nullcontext()
                ):
                    micro_loss = (trained(inputs[rows]) - targets[rows]).square().sum() / len(batch)
                    # DDP divides by the number of processes: undone here
                    (micro_loss * world_size).backward()
                loss += micro_loss.detach()
            optimizer.step()
            optimizer.zero_grad()
            if args.verbose:
                if args.distributed:
                    dist.all_reduce(loss)
                print_once(rank, f"epoch {epoch} step {step} rows {len(batch):2} loss {loss.item()!r}")

    final = nn.utils.parameters_to_vector(model.parameters()).detach()
    print_once(rank, f"{world_size} process(es), {args.acc_steps} accumulation step(s): final parameters")
    for name, values in model.named_parameters():
        print_once(rank, f"{name} {values.flatten().tolist()}")
    print_once(rank, f"fingerprint {hashlib.sha256(final.numpy().tobytes()).hexdigest()[:16]}")


def print_once(rank: int, line: str) -> None:
    """Print `line` once, not once for each process."""
    if rank == 0:
        print(line)


def parse_arguments() -> argparse.Namespace:
    """Return the command line's values; exit with an error if the processes would not do what they say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--batch_size", type=int, default=16, help="rows of a global batch, over all processes"
    )
    parser.add_argument("--data_size", type=int, default=70, help="rows to generate")
    parser.add_argument(
        "--acc_steps", type=int, default=1, help="micro-batches of each process in a global batch"
    )
    parser.add_argument(
        "--distributed", action="store_true", help="DDP over the processes that torchrun started"
    )
    parser.add_argument("--verbose", action="store_true", help="print the loss of each step")
    args = parser.parse_args()
    for name in ("epochs", "batch_size", "data_size", "acc_steps"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1, found {getattr(args, name)}")
    if args.distributed and "RANK" not in os.environ:
        parser.error(
            "--distributed needs torchrun: torchrun --standalone --nproc_per_node=2 " + " ".join(sys.argv)
        )
    if not args.distributed and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        parser.error("each of these processes would train alone; add --distributed")
    return args


if __name__ == "__main__":
    main()
    # In torch 2.13 gloo's threads may abort or hang Python's own shutdown; all is printed, so leave without
    # it.
    sys.stdout.flush()
    os._exit(0)
