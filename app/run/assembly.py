"""Configuration -> the parts of a job: data, tokenizer, model, loaders, batch plan, loss."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from app.batching.collate import Layout
from app.batching.loader import Loader
from app.batching.plan import BatchPlan
from app.config.schema import Config, TrainConfig
from app.data.dataset import Dataset, open_dataset
from app.data.tokenizer import load_tokenizer
from app.data.tokens import TokenStore, open_store
from app.errors import InputError
from app.model.classifier import Classifier, check_padding
from app.model.pretrained import build_model
from app.strategies.strategy import Strategy
from app.tasks.single_label import RowLoss
from app.training.loop import planned_steps
from app.training.optimizer import build_optimizer


@dataclass(frozen=True)
class Parts:
    """What a job is made of; `stores` and `loaders` by split; `layout` is that of batches to train on."""

    dataset: Dataset
    tokenizer: object
    stores: dict[str, TokenStore]
    model: Classifier
    layout: Layout
    loaders: dict[str, Loader]
    plan: BatchPlan
    row_loss: RowLoss


def assemble(config: Config, strategy: Strategy) -> Parts:
    """Open the data and build the model with the configured seed; every rank calls it and gets the same.

    Raises InputError for bad input.
    """
    data, settings = config.data, config.train
    make_deterministic(settings.deterministic)
    dataset = open_dataset(data)
    tokenizer = load_tokenizer(config.model, dataset, data.max_length, data.cache_dir)
    stores = open_stores(dataset, tokenizer, data.max_length, data.cache_dir)
    torch.manual_seed(settings.seed)
    model = build_model(config.model, tokenizer, dataset.label_names, data.max_length)
    packed = choose_packed(settings.collate, model, strategy)
    if not model.can_pack:
        check_padding(model, *(tokenizer.backend_tokenizer.encode(text).ids for text in ("好", "好" * 3)))
    layout = model.layout(packed, choose_varlen(settings.attention, model, packed, strategy.device))
    training = replace(layout, filled=choose_recorded(settings.cuda_graphs, layout, strategy))
    loaders = {
        name: Loader(split, stores[name], training if name == "train" else layout)
        for name, split in dataset.splits.items()
    }
    plan = BatchPlan(len(loaders["train"]), settings.batch_size, settings.seed)
    weights = class_weights(settings.class_weights, dataset)
    row_loss = RowLoss(None if weights is None else weights.to(strategy.device), settings.label_smoothing)
    return Parts(dataset, tokenizer, stores, model, training, loaders, plan, row_loss)


def set_up(strategy: Strategy, parts: Parts, settings: TrainConfig) -> None:
    """Give the model to the strategy, with its optimizer; every rank calls it."""
    num_layers = getattr(parts.model.model.config, "num_hidden_layers", 0)
    strategy.setup(parts.model, lambda module: build_optimizer(module, settings, num_layers))


def open_stores(dataset: Dataset, tokenizer, max_length: int, cache_dir: str) -> dict[str, TokenStore]:
    """Return the token store of each split; splits of one file share one."""
    stores = {table.folder: open_store(table, tokenizer, max_length, cache_dir) for table in dataset.tables}
    return {name: stores[split.table.folder] for name, split in dataset.splits.items()}


def choose_packed(collate: str, model: Classifier, strategy: Strategy) -> bool:
    """Return whether batches are packed: as asked for, or where the model and the mode can."""
    if collate == "packed" and not strategy.accepts_packed:
        raise InputError(
            "train.collate packed does not work in this mode, which cuts batches by rows; set it to auto or padded"
        )
    return collate == "packed" or (collate == "auto" and model.can_pack and strategy.accepts_packed)


def choose_varlen(attention: str, model: Classifier, packed: bool, device: torch.device) -> bool:
    """Return whether packed batches get variable-length attention: as asked for, or where that is fast."""
    has_kernels = packed and model.has_varlen_kernels(device)
    if attention == "varlen" and not (has_kernels or (packed and device.type == "cpu")):
        raise InputError(
            "train.attention varlen works with packed batches, on CUDA devices of compute capability 8.0 and above and heads "
            "of a multiple of 8 numbers (on the CPU too, slowly); set it to auto"
        )
    return attention == "varlen" or (attention == "auto" and has_kernels)


def choose_recorded(cuda_graphs: bool | None, layout: Layout, strategy: Strategy) -> bool:
    """Return whether training passes are recorded as CUDA graphs: as asked for, or where that is possible."""
    is_possible = layout.varlen and strategy.recorder_class is not None
    if cuda_graphs and not is_possible:
        raise InputError(
            "train.cuda_graphs true works in run_single.py, on a CUDA device, with train.attention varlen; leave it out"
        )
    return is_possible and cuda_graphs is not False


def class_weights(wanted: str | list[float], dataset: Dataset) -> torch.Tensor | None:
    """Return the factor on the loss of each class, (num_labels,) float32, or None where all count the same."""
    names = dataset.label_names
    if wanted == "none":
        return None
    if wanted == "balanced":
        counts = np.bincount(dataset.splits["train"].labels, minlength=len(names))
        return torch.tensor(counts.sum() / (len(names) * counts), dtype=torch.float32)
    if len(wanted) != len(names) or min(wanted) < 0:
        raise InputError(
            f"train.class_weights must be {len(names)} numbers from 0, one for each of {', '.join(names)}; found {wanted}"
        )
    return torch.tensor(wanted, dtype=torch.float32)


def make_deterministic(deterministic: bool) -> None:
    """Ask torch for deterministic kernels only; an operation that has none then raises RuntimeError."""
    torch.use_deterministic_algorithms(deterministic)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False


def describe(
    model: Classifier, strategy: Strategy, layout: Layout, plan: BatchPlan, settings: TrainConfig, folder: Path
) -> str:
    """Return the lines that say what is about to be trained, and where it goes."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    config = model.model.config
    size = f"{getattr(config, 'num_hidden_layers', '?')} layers, {getattr(config, 'hidden_size', '?')} wide"
    return (
        f"Model\n  {config.model_type}, {size}, {parameters / 1e6:.1f} million parameters, {settings.precision}, "
        f"{describe_layout(layout)}\n  {strategy.group.world_size} process(es), {strategy.device}, "
        f"{torch.get_num_threads()} threads; {planned_steps(plan, settings):,} steps of {plan.batch_size} rows\n  run folder {folder}"
    )


def describe_layout(layout: Layout) -> str:
    """Return what batches to train on are, and how they are worked on."""
    attention = ", attention over rows of any length" if layout.varlen else ""
    return f"{'packed' if layout.packed else 'padded'} batches{attention}{', CUDA graphs' if layout.filled else ''}"
