"""What DDP sends in a step, and how long it takes: bytes, seconds, and how much of that backward does not
hide.

    torchrun --nproc_per_node=2 -m benchmarks.ddp_communication --steps 6
    torchrun --nproc_per_node=2 -m benchmarks.ddp_communication --config configs/weibo_emotion6.yaml --train.precision bf16

Trains the configured job for a few steps under each gradient compression, in turns with steps that are not
synchronised at all (their weights are thrown away). Any setting of the trainer (--group.key) may follow.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace

import torch
import torch.distributed as dist

from app.config.command_line import load_config
from app.config.schema import Config, DDPConfig
from app.run.assembly import assemble, set_up
from app.runtime.machine import set_up_machine
from app.runtime.processes import leave
from app.strategies.ddp import DDP, HOOKS
from app.training.loop import train
from app.training.progress import RunProgress


class Meter:
    """A communication hook that does what the one under test does, and counts bytes and seconds."""

    def __init__(self, compression: str) -> None:
        self.compress = HOOKS.get(compression)
        self.element_bytes = 2 if self.compress else 4
        self.bytes = 0
        self.seconds = 0.0

    def __call__(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        started = time.perf_counter()
        self.bytes += bucket.buffer().numel() * self.element_bytes
        if self.compress:
            future = self.compress(dist.group.WORLD, bucket)
        else:
            buffer = bucket.buffer().div_(dist.get_world_size())
            work = dist.all_reduce(buffer, async_op=True)
            future = work.get_future().then(lambda done: done.value()[0])

        def stop(done: torch.futures.Future) -> torch.Tensor:
            self.seconds += time.perf_counter() - started
            return done.value()

        return future.then(stop)


class MeteredDDP(DDP):
    """DDP whose all-reduce is counted, or skipped."""

    synchronise = True

    def wrap(self, model, build_optimizer) -> None:
        compression = self.config.ddp.compression
        config, self.config = self.config, replace(self.config, ddp=DDPConfig())
        super().wrap(model, build_optimizer)
        self.config = config
        self.meter = Meter(compression)
        self.module.register_comm_hook(None, lambda state, bucket: self.meter(state, bucket))

    def micro_batch(self, is_last: bool):
        return super().micro_batch(is_last and self.synchronise)


def measure(strategy: MeteredDDP, config: Config, steps: int) -> dict[str, float]:
    """Return seconds a step with and without synchronisation, and bytes and seconds of all-reduce a step."""
    parts = assemble(config, strategy)
    set_up(strategy, parts)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    clock = [time.perf_counter()]

    def after_step(state: RunProgress, log: object) -> None:
        now = time.perf_counter()
        # The first two lay out buckets and memory
        if state.step > 2:
            seconds[strategy.synchronise].append(now - clock[0])
        else:
            strategy.meter.bytes, strategy.meter.seconds = 0, 0.0
        strategy.synchronise = state.step < 2 or not strategy.synchronise
        dist.barrier()
        clock[0] = time.perf_counter()

    settings = replace(parts.config.train, max_steps=2 + 2 * steps, max_grad_norm=0)
    train(
        strategy, parts.loaders["train"], parts.plan, parts.outcome.loss, settings, RunProgress(), after_step
    )
    done = max(1, len(seconds[True]))
    return {
        "step": statistics.median(seconds[True]),
        "step without": statistics.median(seconds[False]),
        "bytes": strategy.meter.bytes / done,
        "all-reduce": strategy.meter.seconds / done,
    }


def main(argv: list[str]) -> int:
    """Measure every compression and print one line for each, on rank 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=6, help="steps with synchronisation, and as many without (default: 6)"
    )
    options, settings = parser.parse_known_args(argv)
    config = load_config(settings, "benchmarks.ddp_communication")
    with MeteredDDP(config) as strategy:
        set_up_machine(config.train, strategy.device, strategy.group.local_world_size)
        if strategy.group.rank == 0:
            print("compression   MB a step   s all-reduce   s step   s step without all-reduce")
        for compression in ("none", *HOOKS):
            strategy.config = replace(config, ddp=DDPConfig(compression))
            strategy.synchronise = True
            costs = measure(strategy, strategy.config, options.steps)
            if strategy.group.rank == 0:
                print(
                    f"{compression:11} {costs['bytes'] / 1e6:11.1f} {costs['all-reduce']:14.3f} "
                    f"{costs['step']:8.3f} {costs['step without']:27.3f}"
                )
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
