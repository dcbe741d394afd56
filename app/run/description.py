"""The lines in which a run says what it will train."""

from pathlib import Path

import torch

from ..modes.mode import Mode
from .assembly import Components


def describe(components: Components, mode: Mode, total_steps: int, folder: Path) -> str:
    """Return the lines that say what is trained, on what, and where it is saved."""
    model, layout, batch_size = components.model, components.layout, components.plan.batch_size
    parameters = sum(parameter.numel() for parameter in model.parameters())
    config = model.model.config
    size = f"{getattr(config, 'num_hidden_layers', '?')} layers, {getattr(config, 'hidden_size', '?')} wide"
    return (
        f"Model\n  {config.model_type}, {size}, {parameters / 1e6:.1f} million parameters, "
        f"{components.config.train.precision}, {'packed' if layout.packed else 'padded'} batches"
        f"{', attention over rows of any length' if layout.varlen else ''}\n  "
        f"{mode.group.world_size} process(es), {mode.device}, {torch.get_num_threads()} threads; "
        f"{total_steps:,} steps of {batch_size} rows\n"
        f"  run folder {folder}"
    )
