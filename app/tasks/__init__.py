"""What a task decides: targets, model, loss, metrics and report. The training loop knows no task by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from ..config.schema import Config
    from ..data.dataset import Dataset
    from .task import Task

# Of data.task
TASKS = {
    "single_label": ".single_label:SingleLabel",
    "multi_label": ".multi_label:MultiLabel",
    "masked_words": ".masked_words:MaskedWords",
}


def open_task(config: Config, dataset: Dataset, tokenizer, device: torch.device) -> Task:
    """Return the task of a run; raises InputError for settings that do not fit the data."""
    module, name = TASKS[config.data.task].split(":")
    return getattr(import_module(module, __package__), name)(config, dataset, tokenizer, device)
