"""One of the two processes of gradient_sync.py, which starts it: `gradient_sync_worker.py SETTINGS.json
RANK`."""

import copy
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain, islice, repeat
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

PROCESSES = 2
NUM_LABELS = 10
LR = 0.1

Batches = list[tuple[torch.Tensor, torch.Tensor]]


class Column:
    """A way to train: its own copy of the model, and what it does with the micro-batches of one step."""

    def __init__(self, model: nn.Module, hook: Callable | None, accumulation: int) -> None:
        self.model = DistributedDataParallel(copy.deepcopy(model))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR)
        self.accumulation = accumulation
        if hook:
            self.model.register_comm_hook(self, hook)
        # That the hook saw
        self.bytes = 0

    def train(self, batches: Batches) -> None:
        """Add the gradients of `batches`, synchronised when the last is done, and take one step."""
        for number, (input_ids, labels) in enumerate(batches, start=1):
            self.micro_batch(input_ids, labels, is_last=number == len(batches))
        self.optimizer.step()
        self.optimizer.zero_grad()

    def loss(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return this micro-batch's part of the mean over the rows of a step."""
        return self.model(input_ids=input_ids, labels=labels).loss / self.accumulation

    def micro_batch(self, input_ids: torch.Tensor, labels: torch.Tensor, is_last: bool) -> None:
        """Baseline: synchronise every time."""
        self.loss(input_ids, labels).backward()


class BackwardOnly(Column):
    def micro_batch(self, input_ids: torch.Tensor, labels: torch.Tensor, is_last: bool) -> None:
        # The mistake: DDP has decided here, outside `no_sync`
        loss = self.loss(input_ids, labels)
        with nullcontext() if is_last else self.model.no_sync():
            loss.backward()


class NoSync(Column):
    def micro_batch(self, input_ids: torch.Tensor, labels: torch.Tensor, is_last: bool) -> None:
        with nullcontext() if is_last else self.model.no_sync():
            self.loss(input_ids, labels).backward()


class Accumulate(Column):
    """Accelerate's own way: its loader, which knows the last batch, its wrapped model and optimizer."""

    def __init__(
        self, model: nn.Module, hook: Callable | None, accelerator: Accelerator, loader: DataLoader
    ) -> None:
        model = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        self.accelerator = accelerator
        self.model, self.optimizer, loader = accelerator.prepare(model, optimizer, loader)
        # Each pass over the rows ends as Accelerate expects
        self.batches = chain.from_iterable(repeat(loader))
        if hook:
            self.model.register_comm_hook(self, hook)
        self.bytes = 0

    def train(self, batches: Batches) -> None:
        for input_ids, labels in islice(self.batches, len(batches)):
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(self.model(input_ids=input_ids, labels=labels).loss)
                self.optimizer.step()
                self.optimizer.zero_grad()


def main() -> None:
    """Measure all columns; rank 0 writes the result."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    rank = int(sys.argv[2])
    dist.init_process_group(
        "gloo", init_method=f"file://{settings['store']}", rank=rank, world_size=PROCESSES
    )
    torch.set_num_threads(settings["threads"])
    accelerator = Accelerator(gradient_accumulation_steps=settings["accumulation"], cpu=True)
    if accelerator.num_processes != PROCESSES:
        raise RuntimeError(f"Accelerate sees {accelerator.num_processes} processes, not {PROCESSES}")
    model = build_model(settings)
    synchronised = count_synchronised(settings, model, accelerator)
    columns, turns = build_columns(settings, model, accelerator, settings["batches"])
    result = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "columns": measure(columns, turns, settings),
    }
    for name, megabytes in synchronised.items():
        result["columns"][name]["megabytes_per_batch"] = megabytes
    result["weights"] = compare(columns, model)
    if rank == 0:
        Path(settings["result"]).write_text(json.dumps(result))
    # In torch 2.13 gloo's threads may abort or hang Python's own shutdown; all is printed, so leave without
    # it.
    sys.stdout.flush()
    os._exit(0)


def build_model(settings: dict) -> nn.Module:
    """Return a BERT of random weights, the same on every rank; without dropout, so that all columns do the
    same job."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=settings["vocabulary"],
        hidden_size=settings["hidden"],
        num_hidden_layers=settings["layers"],
        num_attention_heads=max(1, settings["hidden"] // 64),
        intermediate_size=4 * settings["hidden"],
        num_labels=NUM_LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config).train()


def build_columns(
    settings: dict, model: nn.Module, accelerator: Accelerator, num_batches: int, hook: Callable | None = None
) -> tuple[dict[str, Column], list[Batches]]:
    """Return the columns and their turns: one of warm-up, then `num_batches` in turns of `accumulation`
    micro-batches."""
    accumulation, rows = settings["accumulation"], settings["batch_size"]
    num_batches += accumulation
    generator = torch.Generator().manual_seed(1)
    total = num_batches * rows * PROCESSES
    input_ids = torch.randint(settings["vocabulary"], (total, settings["tokens"]), generator=generator)
    labels = torch.randint(NUM_LABELS, (total,), generator=generator)
    # Dealt as Accelerate deals: the batches of all rows in turn to rank 0, 1, 0, 1, ...
    mine = list(zip(input_ids.split(rows), labels.split(rows), strict=True))[dist.get_rank() :: PROCESSES]
    turns = [mine[start : start + accumulation] for start in range(0, num_batches, accumulation)]
    loader = DataLoader(TensorDataset(input_ids, labels), batch_size=rows)
    columns = {
        "baseline": Column(model, hook, accumulation),
        "backward only": BackwardOnly(model, hook, accumulation),
        "no_sync": NoSync(model, hook, accumulation),
        "accumulate": Accumulate(model, hook, accelerator, loader),
    }
    return columns, turns


def count_synchronised(settings: dict, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
    """Return the megabytes of gradients that each column hands to all-reduce, for each micro-batch of a whole
    turn.

    This is a separate pass, because a hook in Python slows a step; it also warms up the process.
    """

    def hook(state: Column, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        state.bytes += bucket.buffer().nbytes
        summed = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return summed.then(lambda future: future.value()[0].div_(PROCESSES))

    columns, turns = build_columns(settings, model, accelerator, 0, hook)
    for column in columns.values():
        column.train(turns[0])
    return {name: column.bytes / 1e6 / settings["accumulation"] for name, column in columns.items()}


def measure(columns: dict[str, Column], turns: list[Batches], settings: dict) -> dict[str, dict]:
    """Return the seconds of each timed turn of each column (the slower rank's), and how far its weights were
    from others.

    A turn is `(seconds, micro-batches)`; the difference is the largest absolute one to the baseline after any
    turn.
    """
    names = list(columns)
    timed = {name: [] for name in names}
    differences = dict.fromkeys(names, 0.0)
    for number, batches in enumerate(show_progress(turns * settings["passes"], settings["scene"])):
        # None has the better place always
        first = number % len(names)
        for name in names[first:] + names[:first]:
            dist.barrier()
            start = time.perf_counter()
            columns[name].train(batches)
            seconds = time.perf_counter() - start
            # The first turn of a pass is the warm-up
            if number % len(turns):
                timed[name].append(seconds)
        for name, column in columns.items():
            difference = largest_difference(column.model.module, columns["baseline"].model.module)
            differences[name] = max(differences[name], difference)
    slowest = torch.tensor([timed[name] for name in names], dtype=torch.float64)
    largest = torch.tensor([differences[name] for name in names], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    sizes = [len(batches) for batches in turns[1:]] * settings["passes"]
    return {
        name: {
            "turns": list(zip(slowest[index].tolist(), sizes, strict=True)),
            "max_weight_difference": float(largest[index]),
        }
        for index, name in enumerate(names)
    }


def show_progress(turns: list[Batches], scene: str) -> Iterator[Batches]:
    """Yield the turns; rank 0 counts them on a terminal."""
    watched = dist.get_rank() == 0 and sys.stderr.isatty()
    for number, batches in enumerate(turns):
        if watched:
            print(f"\r{scene}: turn {number + 1} of {len(turns)} ", end="", file=sys.stderr, flush=True)
        yield batches
    if watched:
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)


def compare(columns: dict[str, Column], model: nn.Module) -> dict[str, bool | float]:
    """Return whether both ranks end with the same bits in every column, and how far training moved the
    weights."""
    bits = hashlib.sha256()
    for column in columns.values():
        for parameter in column.model.parameters():
            bits.update(parameter.detach().numpy().tobytes())
    digests: list = [None] * PROCESSES
    dist.all_gather_object(digests, bits.hexdigest())
    return {
        "ranks_equal": len(set(digests)) == 1,
        "moved": largest_difference(columns["baseline"].model.module, model),
    }


def largest_difference(left: nn.Module, right: nn.Module) -> float:
    """Return the largest absolute difference of two models' parameters."""
    with torch.no_grad():
        return max(
            float((a - b).abs().max()) for a, b in zip(left.parameters(), right.parameters(), strict=True)
        )


if __name__ == "__main__":
    main()
