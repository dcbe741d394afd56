"""The lines in which a run says what it will train."""

from __future__ import annotations

from pathlib import Path

import torch

from ..batching.collate import Layout
from ..config.schema import TrainConfig
from ..runtime.devices import is_cuda
from ..strategies.strategy import Strategy
from .assembly import Components
from .device_report import never_passed


def describe(
    components: Components, strategy: Strategy, settings: TrainConfig, total_steps: int, folder: Path
) -> str:
    """Return the lines that say what is trained, on what, and where it is saved."""
    model, batch_size = components.model, components.plan.batch_size
    parameters = sum(parameter.numel() for parameter in model.parameters())
    config = model.model.config
    size = f"{getattr(config, 'num_hidden_layers', '?')} layers, {getattr(config, 'hidden_size', '?')} wide"
    return (
        f"Model\n  {config.model_type}, {size}, {parameters / 1e6:.1f} million parameters, "
        f"{settings.precision}, {describe_layout(components.layout)}{describe_graphs(settings, strategy)}\n  "
        f"{strategy.group.world_size} process(es), {strategy.device}, {torch.get_num_threads()} threads; "
        f"{total_steps:,} steps of {batch_size} rows{components.plan.drawn}\n  run folder {folder}"
        f"{never_passed(strategy.device, components.config.data.cache_dir)}"
    )


def describe_layout(layout: Layout) -> str:
    """Return what the batches to train on are, and how they are computed."""
    attention = ", attention over rows of any length" if layout.varlen else ""
    return f"{'packed' if layout.packed else 'padded'} batches{attention}"


def describe_graphs(settings: TrainConfig, strategy: Strategy) -> str:
    """Return whether steps are replayed as CUDA graphs, on a CUDA device."""
    if not is_cuda(strategy.device):
        return ""
    if settings.cuda_graphs:
        return ", steps as CUDA graphs"
    return ", CUDA graphs off (no GPU has verified train.cuda_graphs yet)"
