"""Configuration -> the components of a run: data, tokenizer, task, model, loaders, batch plan."""

import logging
from dataclasses import dataclass, replace

import torch

from ..batching.collate import Layout
from ..batching.loader import Loader
from ..batching.plan import BatchPlan
from ..config.schema import Config, DataConfig
from ..data.cache import content_key, folder_digest
from ..data.dataset import Dataset, open_dataset
from ..data.long_texts import long_texts
from ..data.tokenizer import load_tokenizer
from ..data.tokens import TokenStore, open_store
from ..errors import InputError
from ..model.classifier import check_passes
from ..model.freezing import freeze
from ..model.head_choice import with_head
from ..model.lora import add_lora
from ..model.packed_model import PackedModel
from ..model.recipe import with_epochs, with_recipe
from ..model.source import checkpoint_place
from ..modes.mode import Mode
from ..tasks import prepare_task
from ..tasks.task import Objective
from ..training.optimizer import build_optimizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Components:
    """What a run works with; `stores` and `loaders` by split, `layout` of the batches to train on. `config`
    has every setting, also those that follow from the model and the data."""

    config: Config
    dataset: Dataset
    tokenizer: object
    stores: dict[str, TokenStore]
    model: PackedModel
    layout: Layout
    loaders: dict[str, Loader]
    plan: BatchPlan
    task: Objective


def assemble(config: Config, mode: Mode) -> Components:
    """Open the data and build the seeded model, the same on every rank; raises InputError for bad input."""
    config, dataset = open_data(config)
    data, settings = config.data, config.train
    model_settings = replace(config.model, name=checkpoint_place(config.model, data.cache_dir))
    tokenizer = load_tokenizer(model_settings, dataset, data.max_length, data.cache_dir)
    task = prepare_task(replace(config, model=model_settings), dataset, tokenizer, mode.device)
    stores = open_stores(dataset, tokenizer, data)
    torch.manual_seed(settings.seed)
    model = task.build_model(stores)
    freeze(model, config.model.freeze, num_layers(model))
    add_lora(model, config.model.lora_rank)
    if settings.gradient_checkpointing:
        model.checkpoint_layers()
    packed = choose_packed(model, mode)
    check_passes(model, *(tokenizer.backend_tokenizer.encode(text).ids for text in ("好", "好" * 3)))
    layout = model.layout(packed, choose_varlen(model, packed, mode.device))
    if settings.optimizer == "adamw_8bit" and not mode.has_whole_optimizer:
        raise InputError(
            "train.optimizer adamw_8bit needs the whole optimizer state in each process, and this mode has "
            "parts of it, which also saves memory; set it to adamw, or use run_ddp.py"
        )
    loaders = {name: task.loader(split, stores[name], layout) for name, split in dataset.splits.items()}
    plan = BatchPlan(len(loaders["train"]), settings.batch_size, settings.seed)
    has_pairs = dataset.splits["train"].table.has_pairs
    class_sizes = tuple(dataset.statistics["train"]["classes"].values())
    # So that the run's files are read in the same way again
    config = replace(config, data=replace(data, **dataset.assumed))
    config = with_epochs(config, plan.steps_per_epoch, class_sizes, has_pairs)
    config = with_recipe(config, plan.steps_per_epoch, has_pairs)
    return Components(config, dataset, tokenizer, stores, model, layout, loaders, plan, task)


def open_data(config: Config) -> tuple[Config, Dataset]:
    """Return the dataset, and the configuration with the head that its rows call for."""
    dataset = open_dataset(config.data)
    train = dataset.files["train"]
    chosen = with_head(config, train.num_rows, len(dataset.label_names), train.has_pairs)
    return chosen, dataset if chosen.data == config.data else open_dataset(chosen.data)


def set_up(mode: Mode, components: Components) -> None:
    """Wrap the model for the mode of the mode and build its optimizer; every rank calls it."""
    layers = num_layers(components.model)
    mode.config = components.config
    mode.setup(components.model, lambda module: build_optimizer(module, mode.config.train, layers))


def num_layers(model: PackedModel) -> int:
    """Return the number of layers of the encoder, 0 where its configuration does not say."""
    return getattr(model.model.config, "num_hidden_layers", 0)


def open_stores(dataset: Dataset, tokenizer, data: DataConfig) -> dict[str, TokenStore]:
    """Return the token store of each split; splits of one file share one."""
    settings = data.max_length, data.cache_dir, long_texts(data), data.verb.workers
    stores = {table.key: open_store(table, tokenizer, *settings) for table in dataset.tables}
    return {name: stores[split.table.key] for name, split in dataset.splits.items()}


def cache_content(components: Components) -> str:
    """Return a digest of what a run reads from the cache: rows, splits and tokens. Reads them once."""
    dataset = components.dataset
    folders = [dataset.folder, *(folder for table in dataset.tables for folder in table.folders)]
    stores = dict.fromkeys(store.folder for store in components.stores.values())
    return content_key(*map(folder_digest, [*folders, *stores]))


def choose_packed(model: PackedModel, mode: Mode) -> bool:
    """Return whether batches are packed: if the model and the mode can."""
    if not model.can_pack:
        logger.info("Batches are padded: %s.", model.why_padded)
    return model.can_pack and mode.accepts_packed


def choose_varlen(model: PackedModel, packed: bool, device: torch.device) -> bool:
    """Return whether attention is varlen: if the device has kernels, which there are none of for float64."""
    return packed and torch.get_default_dtype() != torch.float64 and model.has_varlen_kernels(device)
