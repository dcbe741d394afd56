"""Packed or padded, random batches or rows of similar length together: the same rows trained in each of the
four ways.

    python -m benchmarks.batching --config configs/weibo_emotion6.yaml --train.precision bf16 --steps 8 --rounds 3

Packing removes all padding and leaves the batches as the plan draws them. Rows of similar length need little
padding, but they change which rows share a batch. Every way trains the same rows in as many steps; the ways
take turns. Any setting of the trainer (--group.key) may follow.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from app.batching.loader import Loader
from app.config.command_line import load_config
from app.run.assembly import Components, assemble, set_up
from app.strategies import open_strategy
from app.strategies.strategy import Strategy
from app.training.step import TrainingStep
from benchmarks.harness.command import command_parser, run_benchmark


def ways(parts: Components, steps: int) -> dict[str, tuple[Loader, list[np.ndarray]]]:
    """Return for each way its loader and its batches: positions of the rows of the first `steps` global
    batches."""
    split, store = parts.loaders["train"].split, parts.loaders["train"].store
    layouts = {"packed": parts.model.layout(True), "padded": parts.model.layout(False)}
    if parts.layout.varlen:
        layouts["packed, varlen"] = parts.model.layout(True, varlen=True)
    loaders = {name: Loader(split, store, layout) for name, layout in layouts.items()}
    drawn = [parts.plan.batch(step) for step in range(steps)]
    rows = np.concatenate(drawn)
    by_length = rows[np.argsort(loaders["packed"].lengths(rows), kind="stable")]
    alike = np.split(by_length, np.cumsum([len(batch) for batch in drawn])[:-1])
    orders = {"random batches": drawn, "rows of similar length": alike}
    return {
        f"{order}, {name}": (loader, orders[order]) for order in orders for name, loader in loaders.items()
    }


def stepper(strategy: Strategy, parts: Components) -> Callable[[Loader, np.ndarray], tuple[int, int]]:
    """Return a function that trains one batch; it returns how many tokens went through the model, and how
    many were real."""

    def step(loader: Loader, positions: np.ndarray) -> tuple[int, int]:
        batch = loader.load(positions, strategy.device)
        training_step = TrainingStep(strategy, loader, parts.outcome.loss, strategy.config.train)
        training_step.forward_backward(batch, len(positions))
        training_step.update()
        if strategy.device.type == "cuda":
            torch.cuda.synchronize()
        return batch.inputs["input_ids"].numel(), int(loader.lengths(positions).sum())

    return step


def measure(strategy: Strategy, parts: Components, steps: int, rounds: int) -> list[dict]:
    """Return one line for each way; the ratio is to the packed random batches of the same round."""
    strategy.module.train()
    step, batches_of = stepper(strategy, parts), ways(parts, steps)
    seconds: dict[str, list[float]] = {name: [] for name in batches_of}
    tokens = {}
    for way, (loader, batches) in batches_of.items():
        # The largest: memory is laid out
        step(loader, batches[-1])
        tokens[way] = [0, 0]
    for _ in range(rounds):
        for way, (loader, batches) in batches_of.items():
            started = time.perf_counter()
            counts = [step(loader, positions) for positions in batches]
            seconds[way].append(time.perf_counter() - started)
            tokens[way] = np.sum(counts, axis=0).tolist()
    rows = sum(len(batch) for batch in next(iter(batches_of.values()))[1])
    reference = seconds["random batches, packed"]
    lines = []
    for way, rounds_of_way in seconds.items():
        ratios = sorted(theirs / ours for ours, theirs in zip(reference, rounds_of_way, strict=True))
        in_model, real = tokens[way]
        lines.append(
            {
                "way": way,
                "rows_per_second": rows * rounds / sum(rounds_of_way),
                "padding": 1 - real / in_model,
                "time_to_packed": statistics.median(ratios),
                "lowest": ratios[0],
                "highest": ratios[-1],
            }
        )
    return lines


def main(argv: list[str] | None = None) -> int:
    """Measure and print one line for each way; return the exit status."""
    parser = command_parser("batching", __doc__)
    parser.add_argument("--steps", type=int, default=8, help="global batches in a round (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="times that each way trains them (default: 3)")
    options, settings = parser.parse_known_args(argv)

    def work(folder: Path, report: dict) -> bool:
        config = load_config(settings, "benchmarks.batching")
        with open_strategy("single", config) as strategy:
            parts = assemble(strategy.config, strategy)
            set_up(strategy, parts)
            report["lines"] = measure(strategy, parts, options.steps, options.rounds)
        print(f"{'way':36} rows/s  padding  time, as a multiple of packed random batches")
        for line in report["lines"]:
            spread = f"{line['time_to_packed']:.2f} ({line['lowest']:.2f} to {line['highest']:.2f})"
            print(f"{line['way']:36} {line['rows_per_second']:6.1f}  {line['padding']:7.1%}  {spread}")
        return True

    return run_benchmark("batching", argv, work, options.output)


if __name__ == "__main__":
    sys.exit(main())
