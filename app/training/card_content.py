"""What the model card says of a run, and the settings that people ask about."""

import re
from pathlib import Path
from typing import Any

from ..checkpoints.progress import RunProgress
from ..config.schema import ModelConfig
from ..config.shipped import E5_SMALL
from ..words import N_
from .build import Components

E5_SMALL_ON_HUB = "intfloat/multilingual-e5-small"
HUB_NAME = r"[\w.-]+/[\w.-]+"


def run_settings(components: Components, progress: RunProgress) -> dict[str, Any]:
    """Return the settings that people ask about, by their names. They say what the model is, not how it was
    computed: they are the same in every mode."""
    config = components.config
    dataset = components.dataset
    base_model, _ = base_model_of(config.model)
    settings = {
        N_("model"): base_model or f"{config.model.architecture}, random weights",
        N_("training rows"): f"{len(dataset.splits['train']):,}",
        N_("epochs"): config.train.epochs,
        N_("steps, of them until the best"): f"{progress.step:,}, {progress.best_step:,}",
        N_("rows of a step"): components.plan.batch_size,
        N_("learning rate"): config.train.learning_rate,
        N_("most tokens of a text"): config.data.max_length,
        N_("random seed"): config.train.seed,
    }
    if dataset.relabelled:
        settings[N_("rows with corrected labels")] = dataset.relabelled["changed"]
    return settings


def card_content(
    name: str, components: Components, split: str, metrics: dict, settings: dict
) -> dict[str, Any]:
    """Return the content of the card of a run `name`, whose `metrics` are on the rows of `split`."""
    dataset = components.dataset
    data = components.config.data
    base_model, hub_name = base_model_of(components.config.model)
    splits = {}
    for split_name, rows in dataset.splits.items():
        splits[split_name] = (Path(rows.table.source).name, len(rows), rows.table.content)
    return {
        "name": name,
        "task": components.task,
        "split": split,
        "metrics": metrics,
        "data": dataset.statistics,
        "splits": splits,
        "model_type": components.model.model.config.model_type,
        "base_model": base_model,
        "hub_name": hub_name,
        "max_length": data.max_length,
        "settings": settings,
        "has_pairs": dataset.splits["train"].table.has_pairs,
        "long": data.long,
        "max_windows": data.max_windows,
    }


def base_model_of(model: ModelConfig) -> tuple[str | None, str | None]:
    """Return how the card names the model that was fine-tuned, a folder by its last part, and its name on the
    hub. Each is None where there is none: random weights have neither."""
    if model.has_random_weights:
        return None, None
    if model.name == E5_SMALL:
        return f"{E5_SMALL_ON_HUB} (its tokens for Chinese)", E5_SMALL_ON_HUB
    if Path(model.name).exists():
        return Path(model.name).resolve().name, None
    if re.fullmatch(HUB_NAME, model.name):
        return model.name, model.name
    return model.name, None
