"""The lines in which a run says what it will train."""

import math
from pathlib import Path

import numpy as np
import torch

from ..config.language import spoken
from ..config.schema import TrainConfig
from ..data.report import render
from ..model.memory import BYTES, kept_bytes
from ..runtime.precision import Precision
from ..strategies.strategy import Strategy
from .assembly import Components, num_layers
from .device_report import never_passed

# Rows in which activations are measured, of all lengths
MEASURED_ROWS, MEASURED_TOKENS = 4, 2048


def data_report(components: Components, language: str) -> str:
    """Return the data report of a run, in a language of output.language."""
    return render(components.dataset, components.stores, spoken(language))


def describe(
    components: Components, strategy: Strategy, settings: TrainConfig, total_steps: int, folder: Path
) -> str:
    """Return the lines that say what is trained, on what, and where it is saved."""
    model, layout, batch_size = components.model, components.layout, components.plan.batch_size
    parameters = sum(parameter.numel() for parameter in model.parameters())
    config = model.model.config
    size = f"{getattr(config, 'num_hidden_layers', '?')} layers, {getattr(config, 'hidden_size', '?')} wide"
    return (
        f"Model\n  {config.model_type}, {size}, {parameters / 1e6:.1f} million parameters, "
        f"{settings.precision}, {'packed' if layout.packed else 'padded'} batches"
        f"{', attention over rows of any length' if layout.varlen else ''}\n  "
        f"{strategy.group.world_size} process(es), {strategy.device}, {torch.get_num_threads()} threads; "
        f"{total_steps:,} steps of {batch_size} rows{components.plan.drawn}\n"
        f"  {describe_memory(components, strategy, settings)}\n  run folder {folder}"
        f"{never_passed(strategy.device, components.config.data.cache_dir)}"
    )


def describe_memory(components: Components, strategy: Strategy, settings: TrainConfig) -> str:
    """Return about how much memory each process needs in a step, for what, and what would lower it."""
    parts = step_memory(components, strategy, settings)
    largest = max(parts, key=parts.get)
    if largest.startswith("activations"):
        more = f"train.accumulation_steps {2 * settings.accumulation_steps}"
        less = more if settings.gradient_checkpointing else "train.gradient_checkpointing true"
    else:
        less = "run_fsdp.py" if components.config.model.lora.rank else "model.lora.rank 16"
    listed = ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in parts.items())
    return f"a step needs about {sum(parts.values()) / 2**20:,.0f} MiB: {listed}; less with {less}"


def step_memory(components: Components, strategy: Strategy, settings: TrainConfig) -> dict[str, float]:
    """Return about how many bytes each process needs in a step, by what they are for. Activations are
    measured in a pass over a few rows of the first micro-batch, on the CPU."""
    model, loader, world_size = components.model, components.loaders["train"], strategy.group.world_size
    total = BYTES * sum(parameter.numel() for parameter in model.parameters())
    trained = BYTES * sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    moments = {"adamw": 2, "adamw_8bit": 0.5, "sgd": 0}[settings.optimizer]
    parts = {"weights": total, "gradients": trained, "optimizer": moments * trained}
    parts = {name: size / (world_size if name in strategy.sharded else 1) for name, size in parts.items()}
    if settings.precision != "fp32":
        # Their copies in half precision
        parts["weights"] += total / 2
    rows = math.ceil(settings.batch_size / world_size / settings.accumulation_steps)
    if isinstance(settings.micro_batch_size, int):
        rows = min(rows, settings.micro_batch_size)
    positions = components.plan.batch(0)[:rows]
    lengths = loader.lengths(positions)
    few = positions[np.argsort(lengths)][:: max(1, len(positions) // MEASURED_ROWS)]
    # The shortest first
    few = few[: max(1, int((loader.lengths(few).cumsum() <= MEASURED_TOKENS).sum()))]

    def tokens(of: np.ndarray) -> int:
        return int(of.sum() if components.layout.packed else of.max() * len(of))

    cpu = torch.device("cpu")
    inputs = loader.load(few, cpu).inputs
    activations = kept_bytes(model, inputs, Precision(settings.precision, cpu).autocast())
    most = min(tokens(lengths) * (2 if settings.r_drop else 1), settings.micro_batch_tokens or math.inf)
    activations *= most / tokens(loader.lengths(few))
    if settings.gradient_checkpointing:
        layers, width = num_layers(model), getattr(model.model.config, "hidden_size", 0)
        activations = activations / max(1, layers) + BYTES * layers * width * most
    return parts | {f"activations of {len(positions)} rows": activations}
