"""Settings -> the components of a run: data, tokenizer, task, model, loaders, batch plan."""

from dataclasses import dataclass, replace

import torch

from ..batching.collate import Layout
from ..batching.loader import Loader
from ..batching.plan import BatchPlan
from ..config.schema import Config, DataConfig
from ..data.dataset import Dataset, open_dataset
from ..data.tokens import LongTexts, TokenStore, open_store
from ..errors import InputError
from ..model.checkpoint import checkpoint_place
from ..model.classifier import PackedModel
from ..model.epochs import with_epochs
from ..model.freeze import freeze
from ..model.head_choice import with_head
from ..model.linear_start import check_ends_in_layer
from ..model.lora import add_lora
from ..model.recipe import with_recipe
from ..model.tokenizer import load_tokenizer
from ..model.weight_checks import check_passes
from ..modes.mode import Mode
from ..tasks import open_task
from ..tasks.decision_file import FITTED_ON
from ..tasks.task import Task
from ..tasks.temperature import MIN_ROWS

# AMX multiplies matrices faster when they have a multiple of 32 rows, and kernels of earlier steps fit again
AMX_ROWS = 32
# The model is tried with them before the training
TRIED_TEXTS = ("好", "好好好")


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
    config, dataset = open_data(config)
    data = config.data
    model_config = replace(config.model, name=checkpoint_place(config.model, data.cache_dir))
    if config.model.ngrams == "on":
        check_second_reader(dataset)
    tokenizer = load_tokenizer(model_config, dataset, data.max_length, data.cache_dir)
    task = open_task(data.task, dataset.label_names)
    task.prepare(replace(config, model=model_config), dataset, tokenizer, mode.device)
    stores = open_stores(dataset, tokenizer, data)

    model = build_model(config, task)
    tried_rows = [tokenizer.backend_tokenizer.encode(text).ids for text in TRIED_TEXTS]
    check_passes(model, tried_rows)
    if config.model.head == "linear":
        check_ends_in_layer(model, tried_rows)
    is_packed = model.can_pack and mode.accepts_packed
    layout = choose_layout(model, config, mode.device, is_packed)
    loaders = {}
    for name, split in dataset.splits.items():
        loaders[name] = task.loader(split, stores[name], layout)
    plan = BatchPlan(len(loaders["train"]), config.train.batch_size, config.train.seed)

    return Components(
        config=with_choices(config, model_config.name, dataset, plan),
        dataset=dataset,
        tokenizer=tokenizer,
        stores=stores,
        model=model,
        loaders=loaders,
        plan=plan,
        task=task,
    )


def check_second_reader(dataset: Dataset) -> None:
    """Raise InputError for data with which there can be no second reader, though model.ngrams asks for it."""
    if dataset.splits["train"].table.has_pairs:
        raise InputError("model.ngrams on needs single texts, found pairs; set it to auto or off")
    num_rows = 0
    if FITTED_ON in dataset.splits:
        num_rows = len(dataset.splits[FITTED_ON])
    if num_rows < MIN_ROWS:
        raise InputError(
            f"model.ngrams on needs at least {MIN_ROWS} rows of dev, which say how much these "
            f"n-grams count; found {num_rows:,}. Set data.dev_size, or model.ngrams to auto or off"
        )


def open_data(config: Config) -> tuple[Config, Dataset]:
    """Return the dataset, and the settings with the head that suits the number of its rows."""
    dataset = open_dataset(config.data)
    table = dataset.files["train"]
    with_chosen_head = with_head(config, table.num_rows, len(dataset.label_names), table.has_pairs)
    if with_chosen_head.data != config.data:
        # The head that few rows call for needs no dev rows
        dataset = open_dataset(with_chosen_head.data)
    return with_chosen_head, dataset


def open_stores(dataset: Dataset, tokenizer, data: DataConfig) -> dict[str, TokenStore]:
    """Return the token store of each split; splits of one table share it."""
    long_texts = LongTexts(data.long, data.max_windows)
    stores = {}
    for table in dataset.tables:
        stores[table.key] = open_store(table, tokenizer, data.max_length, data.cache_dir, long_texts)
    return {name: stores[split.table.key] for name, split in dataset.splits.items()}


def build_model(config: Config, task: Task) -> PackedModel:
    """Return the seeded model, with its frozen parts and its adapter. For model.head linear, `start_head`
    comes after it."""
    torch.manual_seed(config.train.seed)
    model = task.build_model()
    if config.model.freeze:
        freeze(model, config.model.freeze)
    if config.model.lora_rank:
        add_lora(model, config.model.lora_rank)
    if config.train.gradient_checkpointing:
        model.checkpoint_layers()
    return model


def choose_layout(model: PackedModel, config: Config, device: torch.device, packed: bool) -> Layout:
    """Return the form of batches, `packed` or padded, that a model takes and that a device is fast with."""
    # There are no kernels of rows of any length for float64.
    has_kernels = packed and torch.get_default_dtype() != torch.float64
    varlen = has_kernels and model.has_varlen_kernels(device)
    layout = model.layout(packed, varlen)
    uses_amx = device.type == "cpu" and config.train.precision == "bf16"
    # With windows, outputs of rows of padding could not be told from others.
    if uses_amx and config.data.long != "windows":
        layout = replace(layout, multiple_of=AMX_ROWS)
    return layout


def with_choices(config: Config, place: str, dataset: Dataset, plan: BatchPlan) -> Config:
    """Return the settings with what follows from the data and from the checkpoint: how files were read,
    epochs, learning rate. `place` is that of `checkpoint_place`."""
    table = dataset.files["train"]
    # The files are to be read in the same way again
    config = replace(config, data=replace(config.data, **table.assumed))
    class_sizes = tuple(dataset.statistics["train"]["classes"].values())
    config = with_epochs(config, plan.steps_per_epoch, class_sizes, table.has_pairs)
    return with_recipe(config, place, plan.steps_per_epoch, table.has_pairs)
