"""Settings -> the components of a run: data, tokenizer, task, model, loaders, batch plan, optimizer."""

from dataclasses import dataclass, replace

import torch

from ..batching.loader import Loader
from ..batching.plan import BatchPlan
from ..config.schema import Config, DataConfig
from ..data.dataset import Dataset, open_dataset
from ..data.tokens import LongTexts, TokenStore, open_store
from ..model.classifier import PackedModel
from ..model.freeze import freeze
from ..model.lora import add_lora
from ..model.pretrained import check_passes, checkpoint_place
from ..model.recipe import with_epochs, with_head, with_recipe
from ..model.tokenizer import load_tokenizer
from ..modes.mode import Mode
from ..tasks import open_task
from ..tasks.task import Task


@dataclass(frozen=True)
class Components:
    """What a run works with; `stores` and `loaders` by split. `config` has every setting, also those that
    follow from the model and the data."""

    config: Config
    dataset: Dataset
    tokenizer: object
    stores: dict[str, TokenStore]
    model: PackedModel
    loaders: dict[str, Loader]
    plan: BatchPlan
    task: Task


def build(config: Config, mode: Mode) -> Components:
    """Open the data and build the seeded model, the same on every rank; raises InputError for bad input."""
    given, train = config.data, config.train
    dataset = open_dataset(given)
    file, has_pairs = dataset.files["train"], dataset.splits["train"].table.has_pairs
    config = with_head(config, file.num_rows, len(dataset.label_names), file.has_pairs)
    data = config.data
    # The head that few rows call for needs no dev rows
    dataset = dataset if data == given else open_dataset(data)
    model_settings = replace(config.model, name=checkpoint_place(config.model, data.cache_dir))
    tokenizer = load_tokenizer(model_settings, dataset, data.max_length, data.cache_dir)
    task = open_task(data.task, dataset.label_names)
    task.prepare(replace(config, model=model_settings), dataset, tokenizer, mode.device)
    stores = open_stores(dataset, tokenizer, data)

    torch.manual_seed(train.seed)
    model = task.build_model(stores)
    if config.model.freeze:
        freeze(model, config.model.freeze)
    if config.model.lora_rank:
        add_lora(model, config.model.lora_rank)
    if train.gradient_checkpointing:
        model.checkpoint_layers()
    check_passes(model, *(tokenizer.backend_tokenizer.encode(text).ids for text in ("好", "好" * 3)))

    packed = model.can_pack and mode.accepts_packed
    # There are no kernels of rows of any length for float64.
    varlen = packed and torch.get_default_dtype() != torch.float64 and model.has_varlen_kernels(mode.device)
    layout = model.layout(packed, varlen)
    # AMX multiplies matrices faster when they have a multiple of 32 rows, and kernels of earlier steps fit
    # again. With windows, outputs of rows of padding could not be told from others.
    if mode.device.type == "cpu" and mode.config.train.precision == "bf16" and data.long != "windows":
        layout = replace(layout, multiple_of=32)
    loaders = {name: task.loader(split, stores[name], layout) for name, split in dataset.splits.items()}
    plan = BatchPlan(len(loaders["train"]), train.batch_size, train.seed)

    # The configuration keeps what was assumed of the files, so that they are read in the same way again.
    config = replace(config, data=replace(data, **file.assumed))
    class_sizes = tuple(dataset.statistics["train"]["classes"].values())
    config = with_epochs(config, plan.steps_per_epoch, class_sizes, has_pairs)
    config = with_recipe(config, plan.steps_per_epoch, has_pairs)
    return Components(config, dataset, tokenizer, stores, model, loaders, plan, task)


def open_stores(dataset: Dataset, tokenizer, data: DataConfig) -> dict[str, TokenStore]:
    settings = data.max_length, data.cache_dir, LongTexts(data.long, data.max_windows)
    stores = {table.key: open_store(table, tokenizer, *settings) for table in dataset.tables}
    return {name: stores[split.table.key] for name, split in dataset.splits.items()}
