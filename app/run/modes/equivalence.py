"""Verifying that all modes do the same job: each trains the same steps, and its results are compared with one
process.

`probe` runs in each mode's own processes, started by `start`; `compare` reads what rank 0 of each wrote.
"""

from __future__ import annotations

import math
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from ...config.schema import Config
from ...config.shipped import MODULE
from ...runtime.precision import DTYPES
from ...strategies import load_strategy, open_strategy
from ...strategies.strategy import Strategy
from ...training.evaluate import evaluate
from ...training.loop import train
from ...training.progress import RunProgress
from ...training.step import StepResult
from ..assembly import Components, assemble, set_up
from .environment import module_environment

WEIGHT_TOLERANCE = {"sgd": 1e-6, "adamw": 1e-5}
TOLERANCE = {"losses": 1e-5, "gradients": 1e-5, "logits": 1e-4}
ROUNDING_FACTOR = (
    # Two results in low precision may each differ from fp32, and what differs most is the largest of many
    3.0
)
COMPUTES_IN = {"fp32": torch.float32} | DTYPES


@dataclass(frozen=True)
class Outcome:
    """One row of the table: largest absolute differences to one process, and the rows that the report
    counted."""

    mode: str
    processes: int | None = None
    losses: float | None = None
    gradients: float | None = None
    weights: float | None = None
    logits: float | None = None
    rows: int | None = None
    expected_rows: int | None = None
    verdict: str = "FAIL"
    reason: str = ""


def comparable(config: Config, steps: int, precision: str) -> Config:
    """Return the configuration in a precision, with what makes modes differ by design, dropout, turned off.

    Recorded steps would leave no gradients to compare.
    """
    train_settings = replace(
        config.train,
        max_steps=steps,
        precision=precision,
        log_every=1,
        early_stopping=None,
        cuda_graphs=False,
    )
    return replace(config, model=replace(config.model, dropout=0.0), train=train_settings)


def probe(config: Config, mode: str, result: str) -> int:
    """Train the steps in this process, one rank of `mode`; rank 0 writes losses, last gradients, weights and
    logits."""
    with open_strategy(mode, config) as strategy:
        components = assemble(strategy.config, strategy)
        set_up(strategy, components)
        config = components.config
        dtypes = watch_dtypes(strategy.unwrapped_module())
        losses: list[float] = []
        gradients: dict[str, torch.Tensor] = {}

        def before_update() -> None:
            gradients.update(strategy.full_state.gradients())

        def after_step(state: RunProgress, step: StepResult) -> None:
            losses.append(float(strategy.group.reduce_sum(step.loss_sum)) / step.divisor)

        loader, plan, loss = components.loaders["train"], components.plan, components.outcome.loss
        train(strategy, loader, plan, loss, config.train, RunProgress(), after_step, before_update)
        tensors = {"losses": torch.tensor(losses, dtype=torch.float64)}
        tensors |= {f"gradients/{name}": value.contiguous() for name, value in gradients.items()}
        write_result(strategy, components, config.train.eval_batch_size, tensors, dtypes, result)
    return 0


def watch_dtypes(model: nn.Module) -> set[str]:
    """Return a set that receives the dtype of what the model's first linear layer computes."""
    dtypes: set[str] = set()
    layer = next(module for module in model.modules() if isinstance(module, nn.Linear))
    layer.register_forward_hook(lambda module, inputs, output: dtypes.add(str(output.dtype)))
    return dtypes


def write_result(
    strategy: Strategy,
    components: Components,
    batch_size: int,
    tensors: dict[str, torch.Tensor],
    dtypes: set[str],
    result: str,
) -> None:
    """Evaluate on test (else dev, else train) and write what is compared, `tensors` too; every rank calls it,
    rank 0 writes."""
    split = next(name for name in ("test", "dev", "train") if name in components.loaders)
    loader = components.loaders[split]
    results = evaluate(strategy, loader, batch_size, row_results=components.outcome.row_results)
    logits = torch.from_numpy(results.copy())
    weights = strategy.full_state.weights()
    if strategy.group.rank != 0:
        return
    tensors |= {"logits": logits} | {f"weights/{name}": value.contiguous() for name, value in weights.items()}
    counts = {"rows": len(logits), "expected_rows": len(loader), "processes": strategy.group.world_size}
    metadata = {name: str(count) for name, count in counts.items()} | {"dtypes": ", ".join(sorted(dtypes))}
    save_file(tensors, result, metadata=metadata)


def start(mode: str, processes: int, arguments: list[str], timeout: float) -> str | None:
    """Run `python -m app verify` with `arguments` in the mode's own launcher; return why it failed, or None."""
    command = load_strategy(mode).launcher.command(["-m", MODULE, "verify", *arguments], processes)
    try:
        done = subprocess.run(
            command,
            env=module_environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {timeout:.0f} seconds"
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "Error" in line or line.startswith("error")]
        return said[-1].strip() if said else f"it ended with status {done.returncode}: {done.stderr[-300:]}"
    return None


def tolerances(optimizer: str, single: Path | None = None, exact: Path | None = None) -> dict[str, float]:
    """Return how far losses, gradients, weights and logits may differ from those of one process.

    For low precision: `single` is the result of one process in it, `exact` in fp32. Modes group rows
    differently, and low precision rounds differently then; that may move a result about as far as low
    precision itself moves it from fp32.
    """
    limits = TOLERANCE | {"weights": WEIGHT_TOLERANCE[optimizer]}
    if exact is None:
        return limits
    moved = largest_differences(load_file(exact), load_file(single))
    return {group: max(limit, ROUNDING_FACTOR * moved[group]) for group, limit in limits.items()}


def compare(
    mode: str, single: Path, other: Path, limits: dict[str, float], precision: str = "fp32"
) -> Outcome:
    """Return the largest differences between two results; PASS where each is in its limit, and both have the
    precision."""
    one, two = load_file(single), load_file(other)
    with safe_open(other, framework="pt") as file:
        counts = file.metadata()
    if set(one) != set(two):
        return Outcome(mode, int(counts["processes"]), reason="the names of the parameters differ")
    differences = largest_differences(one, two)
    rows, expected = int(counts["rows"]), int(counts["expected_rows"])
    reasons = [
        f"{group} differ by more than {limits[group]:.2g}"
        for group, difference in differences.items()
        if not (difference <= limits[group] and math.isfinite(difference))
    ]
    if counts["dtypes"] != str(COMPUTES_IN[precision]):
        reasons.append(f"it computed in {counts['dtypes']}, and {COMPUTES_IN[precision]} was asked for")
    reasons += ["not every row was counted once"] if rows != expected else []
    return Outcome(
        mode,
        int(counts["processes"]),
        **differences,
        rows=rows,
        expected_rows=expected,
        verdict="FAIL" if reasons else "PASS",
        reason="; ".join(reasons),
    )


def largest_differences(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the largest absolute differences of losses, gradients, weights and logits; `one` and `two` have
    the same names."""
    differences: dict[str, float] = {}
    for name, value in one.items():
        group = name.split("/")[0]
        difference = float((value - two[name]).abs().max()) if value.shape == two[name].shape else math.inf
        # Not-a-number is a difference too; max() would lose it.
        differences[group] = max(
            differences.get(group, 0.0), math.inf if math.isnan(difference) else difference
        )
    return differences
