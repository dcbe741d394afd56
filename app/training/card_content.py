"""A finished run -> what its model card says."""

import re
from collections.abc import Mapping
from pathlib import Path

from ..config.schema import Config
from ..config.shipped import E5_SMALL
from ..report.card import CardContent
from .build import Components

E5_SMALL_ON_HUB = "intfloat/multilingual-e5-small"


def card_content(
    name: str, config: Config, components: Components, split: str, metrics: Mapping
) -> CardContent:
    """Return the content of the card of a run `name`, whose `metrics` are on the rows of `split`. It says
    what the model is, not how it was computed: the card is the same in every mode."""
    dataset, settings = components.dataset, config.train
    base_model, hub_name = base_model_of(config.model.name)
    training = {
        "seed": settings.seed,
        "steps": metrics["step"],
        "batch size": settings.batch_size,
        "optimizer": settings.optimizer,
        "best checkpoint by": components.task.best_metric if "dev" in dataset.splits else "none",
    }
    if dataset.relabelled:
        training["rows with corrected labels"] = dataset.relabelled["changed"]
    return CardContent(
        name=name,
        task=components.task,
        split=split,
        metrics=metrics,
        data=dataset.statistics,
        splits={
            key: (Path(of.table.source).name, len(of), of.table.content) for key, of in dataset.splits.items()
        },
        model_type=components.model.model.config.model_type,
        base_model=base_model,
        hub_name=hub_name,
        max_length=config.data.max_length,
        settings=training,
        has_pairs=dataset.splits["train"].table.has_pairs,
        long=config.data.long,
        max_windows=config.data.max_windows,
    )


def base_model_of(name: str | None) -> tuple[str | None, str | None]:
    """Return how the card names `model.name`, of a folder its last part, and the name on the hub."""
    if name is None:
        return None, None
    if name == E5_SMALL:
        return f"{E5_SMALL_ON_HUB} (its tokens for Chinese)", E5_SMALL_ON_HUB
    if Path(name).exists():
        return Path(name).resolve().name, None
    return name, name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) else None
