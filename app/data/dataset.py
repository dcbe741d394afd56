"""The data files of a configuration -> one dataset: tables, label names, and the rows of train, dev and test."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from app.config.schema import DataConfig
from app.config.shipped import SAMPLE_FOLDER
from app.data.cache import build_once, content_key
from app.data.labels import resolve_label, sort_labels
from app.data.readers import ReadOptions
from app.data.splits import random_split, split_sizes, stratified_split
from app.data.statistics import dataset_statistics
from app.data.table import Table, open_table
from app.errors import InputError

VERSION = 1
STATISTICS_FILE = "figures.json"  # its name in caches that were written before
SPLITS = ("train", "dev", "test")
SAMPLE_LABELS = ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]


@dataclass(frozen=True)
class Split:
    """The rows of one split: `rows` (num_rows,) int64 ids into the table, `labels` (num_rows,) int64 class ids."""

    name: str
    table: Table
    rows: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Dataset:
    """The splits that have rows, the class names in the order of their ids, and statistics for the data report."""

    splits: dict[str, Split]
    label_names: list[str]
    statistics: dict
    folder: Path

    @property
    def tables(self) -> list[Table]:
        """The different tables of the splits, that of train first."""
        return list({split.table.folder: split.table for split in self.splits.values()}.values())


def open_dataset(config: DataConfig) -> Dataset:
    """Return the dataset of a configuration; writes to the cache what is not there yet.

    Several processes may call this at the same time. Arrays are memory-mapped: a process holds only what it reads of
    them. Raises InputError for bad input.
    """
    config = with_sample(config)
    options = {name: _read_options(config, name) for name in SPLITS if getattr(config, name)}
    skip = config.on_bad_row == "skip"
    tables = {"train": open_table(config.train, options["train"], skip, config.cache_dir, config.labels)}
    label_names = config.labels or sort_labels(tables["train"].label_values)
    for name in ("dev", "test"):
        if getattr(config, name):
            given = config.labels is not None  # ids have no meaning if the labels come from the train file
            tables[name] = open_table(getattr(config, name), options[name], skip, config.cache_dir, label_names, given)
    split_settings = [config.split, config.split_seed, float(config.dev_size), float(config.test_size)]
    key = content_key(
        "dataset", VERSION, label_names, split_settings, {name: table.folder.name for name, table in tables.items()}
    )
    folders = {name: table.folder for name, table in tables.items()}
    folder = build_once(Path(config.cache_dir) / f"dataset-{key}", build_dataset, folders, label_names, *split_settings)
    statistics = json.loads((folder / STATISTICS_FILE).read_text(encoding="utf-8"))
    splits = {}
    for name in SPLITS:
        rows, labels = (np.load(folder / f"{name}_{what}.npy", mmap_mode="r") for what in ("rows", "labels"))
        if len(rows):
            splits[name] = Split(name, tables.get(name, tables["train"]), rows, labels)
    return Dataset(splits, label_names, statistics, folder)


def with_sample(config: DataConfig) -> DataConfig:
    """Return the configuration, with the files and labels of the sample set if it has no train file."""
    if config.train is not None:
        return config
    files = {name: str(SAMPLE_FOLDER / f"{name}.tsv") for name in SPLITS}
    return replace(config, **files, labels=config.labels or SAMPLE_LABELS)


def _read_options(config: DataConfig, name: str) -> ReadOptions:
    options = ReadOptions(**{field.name: getattr(config, field.name) for field in fields(ReadOptions)})
    return options if name == "train" else replace(options, limit=None)


def build_dataset(
    folder: Path,
    tables: dict[str, Path],
    label_names: list[str],
    split: str,
    seed: int,
    dev_size: float,
    test_size: float,
) -> None:
    """Write the row ids and class ids of each split, and the statistics of the data report, into `folder`."""
    opened = {name: Table(path) for name, path in tables.items()}
    ids = {name: _class_ids(table, label_names) for name, table in opened.items()}
    train = opened["train"]
    dev, test = split_sizes(train.num_rows, 0 if "dev" in opened else dev_size, 0 if "test" in opened else test_size)
    if split == "stratified" and dev + test:
        rows = stratified_split(ids["train"], train.array("hashes"), dev, test, seed, label_names)
    elif dev + test:
        rows = random_split(train.num_rows, dev, test, seed)
    else:
        rows = {"train": np.arange(train.num_rows), "dev": np.empty(0, np.int64), "test": np.empty(0, np.int64)}
    rows |= {name: np.arange(opened[name].num_rows) for name in ("dev", "test") if name in opened}
    labels = {name: ids.get(name, ids["train"])[rows[name]] for name in SPLITS}
    hashes = {name: opened.get(name, train).array("hashes")[rows[name]] for name in SPLITS}
    _check_labels_in_train(labels, rows, opened, label_names)
    for name in SPLITS:
        np.save(folder / f"{name}_rows.npy", rows[name].astype(np.int64))
        np.save(folder / f"{name}_labels.npy", labels[name])
    statistics = dataset_statistics(labels, hashes, label_names)
    (folder / STATISTICS_FILE).write_text(json.dumps(statistics, ensure_ascii=False, indent=1), encoding="utf-8")


def _class_ids(table: Table, label_names: list[str]) -> np.ndarray:
    codes = np.array([resolve_label(value, label_names) for value in table.label_values], dtype=np.int64)
    return codes[table.array("labels")]


def _check_labels_in_train(
    labels: dict[str, np.ndarray], rows: dict[str, np.ndarray], tables: dict[str, Table], label_names: list[str]
) -> None:
    for label in np.flatnonzero(np.bincount(labels["train"], minlength=len(label_names)) == 0):
        raise InputError(
            f"every label needs rows in train; label '{label_names[label]}' is absent from train "
            f"({_first_row_of(label, labels, rows, tables)}); add training rows of it, or remove it from the data and from "
            "data.labels"
        )
    if len(label_names) < 2:
        raise InputError(
            f"{tables['train'].source}: at least two different labels are needed, found {label_names}; "
            "is data.label_column the right column?"
        )


def _first_row_of(
    label: int, labels: dict[str, np.ndarray], rows: dict[str, np.ndarray], tables: dict[str, Table]
) -> str:
    """Return where the first dev or test row of a label is, for a message."""
    for name in ("dev", "test"):
        matches = np.flatnonzero(labels[name] == label)
        if len(matches):
            first_row = int(rows[name][matches[0]])
            where = tables.get(name, tables["train"]).where(first_row)
            return f"the first of its {len(matches):,} {name} rows is {where}"
    return "it has no rows at all"
