"""The data files of a configuration -> a dataset: tables, names of labels, rows of train, dev and test."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..config.schema import DataConfig
from ..config.shipped import SAMPLE_FOLDER
from ..errors import InputError, excerpt, listed, printable_path
from .build_dataset import build_dataset
from .cache import build_once, content_key
from .folders import splits_in
from .label_shares import PREFIX, PROBABILITIES, VOTES
from .labels import label_form, label_ids
from .read import ReadOptions
from .relabel import read_fixes
from .splits import SPLITS
from .table import Table, open_table

VERSION = 6  # of the folder of a dataset; a change of its content needs another one
SAMPLE_LABELS = ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]


@dataclass(frozen=True)
class Split:
    """The rows of one split.

    `rows` (num_rows,) int64 are ids into the table, `labels` (num_rows, ...) as their form has them. `copies`
    (num_rows,) int64 is the row of train of which a row is a near copy, else -1; it is None for train, and
    where there are too many texts to compare them. `targets` (num_rows, num_labels) float32 is what rows of
    train are trained on where one of them or more has a distribution of labels: it, or 1 for the label of the
    row; else None.
    """

    name: str
    table: Table
    rows: np.ndarray
    labels: np.ndarray
    copies: np.ndarray | None = None
    targets: np.ndarray | None = None

    @property
    def learnt(self) -> np.ndarray:
        """What the rows are trained on: `targets`, else `labels`."""
        if self.targets is not None:
            return self.targets
        return self.labels

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Dataset:
    """The splits that have rows, the class names in the order of their ids, and the statistics of each split.

    `files` has the table of each configured file, by split. `vocabulary_rows` is a file with the ids of the
    rows from which a vocabulary is made, the same for all folds of a cross-validation. `relabelled` says what
    the corrected labels of data.relabel did, with a digest of them as `content`; None without any.
    """

    splits: dict[str, Split]
    label_names: list[str]
    statistics: dict
    folder: Path
    files: dict[str, Table]
    vocabulary_rows: Path
    relabelled: dict | None = None

    @property
    def tables(self) -> list[Table]:
        """The different tables of the splits, that of train first."""
        tables = {}
        for split in self.splits.values():
            tables[split.table.key, split.table.source] = split.table
        return list(tables.values())


def open_dataset(config: DataConfig) -> Dataset:
    """Return the dataset of a configuration, memory-mapped; writes to the cache what is not there yet.
    Several processes may call this at the same time. Raises InputError for bad input."""
    config = _without_unread_test(with_files(config))
    tables, label_names, options = _open_tables(config)
    fixes = {}
    fixes_digest = None
    if config.relabel:
        # Integers are ids of labels only where the user has given them an order
        fixes = read_fixes(config.relabel, options, label_names, accept_ids=config.labels is not None)
        fixes_digest = content_key(list(fixes.items()))
    key = _dataset_key(config, tables, label_names, fixes_digest)
    folder = Path(config.cache_dir) / f"dataset-{key}"
    num_bytes = 0
    for table in tables.values():
        num_bytes += table.num_bytes
    build_once(folder, build_dataset, tables, label_names, config, fixes, num_bytes=num_bytes)

    statistics_of_all, relabelled = json.loads((folder / "dataset.json").read_text())
    splits = {}
    statistics = {}
    for name in SPLITS:
        split = _open_split(folder, name, tables.get(name, tables["train"]))
        is_used = name != "test" or config.verb.use_test
        if len(split) and is_used:
            splits[name] = split
            statistics[name] = statistics_of_all[name]
    vocabulary_rows = "train_rows.npy"
    if config.verb.folds:
        vocabulary_rows = "all_rows.npy"
    if relabelled is not None:
        relabelled["source"] = printable_path(config.relabel)
        relabelled["content"] = fixes_digest
    return Dataset(
        splits=splits,
        label_names=label_names,
        statistics=statistics,
        folder=folder,
        files=tables,
        vocabulary_rows=folder / vocabulary_rows,
        relabelled=relabelled,
    )


def with_files(config: DataConfig) -> DataConfig:
    """Return the configuration with its files: those of the sample set without a train file; else those of a
    folder that has files of splits, unless the configuration names other files for them."""
    if config.train is None:
        files = {}
        for name in SPLITS:
            files[name] = str(SAMPLE_FOLDER / f"{name}.tsv")
        labels = None
        if label_form(config.task).has_labels:
            labels = config.labels or SAMPLE_LABELS
        return replace(config, **files, labels=labels)
    if not isinstance(config.train, str) or not os.path.isdir(config.train):
        return config
    files_of_splits = splits_in(Path(config.train))
    if "train" not in files_of_splits:
        return config
    files = {"train": files_of_splits["train"]}
    for name in ("dev", "test"):
        if name in files_of_splits and getattr(config, name) is None:
            files[name] = files_of_splits[name]
    return replace(config, **files)


def _without_unread_test(config: DataConfig) -> DataConfig:
    """Return the configuration without a test file that its verb does not read. No rows of train take its
    place."""
    is_unread = bool(config.verb.folds) or not config.verb.use_test
    if config.test and is_unread:
        return replace(config, test=None, test_size=0)
    return config


def _open_tables(config: DataConfig) -> tuple[dict[str, Table], list[str], ReadOptions]:
    """Return the table of each configured file, the names of the labels, and how other files of the same data
    are read: as the train file was, because a few rows may not show which column is which."""
    form = label_form(config.task)
    options = ReadOptions.of(config)
    skip_bad_rows = config.on_bad_row == "skip"
    train = open_table(
        config.train,
        options,
        config.cache_dir,
        label_names=config.labels,
        skip_bad_rows=skip_bad_rows,
        need_label=form.has_labels,
    )
    values = list(train.label_values)
    for label in train.share_labels:
        values.append(form.text_of_labels([label]))
    label_names = form.names(config, list(dict.fromkeys(values)), train.source)
    _check_votes(config.votes, train)
    _check_hierarchy(config.label_hierarchy, label_names, train.source)
    known_labels = None
    if form.has_labels:
        known_labels = label_names
    tables = {"train": train}
    options = replace(options, limit=None).for_other_files(train.assumed)
    for name in ("dev", "test"):
        files = getattr(config, name)
        if files is not None:
            tables[name] = open_table(
                files,
                options,
                config.cache_dir,
                skip_bad_rows=skip_bad_rows,
                need_label=form.has_labels,
                label_names=known_labels,
                # Without data.labels the order of labels is that of the train file, which no other file knows
                accept_ids=config.labels is not None,
            )
    for table in tables.values():
        check_share_labels(table, label_names)
    return tables, label_names, options


def check_share_labels(table: Table, label_names: list[str]) -> None:
    """Raise InputError for a file with columns of probabilities of other labels than those of the data."""
    ids = label_ids(tuple(label_names))
    for source, facts in table.share_facts.items():
        if facts.content != PROBABILITIES or not facts.rows:
            continue
        unknown = [label for label in facts.labels if label not in ids]
        if unknown:
            raise InputError(
                f"{source}: a column with probabilities must be that of a label of the data, found "
                f"{listed(PREFIX + label for label in unknown)} (labels: {listed(label_names)}); rename or "
                "remove it, or name the column of the labels with --data.label_column"
            )
        with_column = {ids[label] for label in facts.labels}
        missing = [name for number, name in enumerate(label_names) if number not in with_column]
        if missing:
            raise InputError(
                f"{source}: each label of the data must have a column with its probability, found "
                f"{facts.columns} and none for {listed(missing)}; add it, with 0 where the model does not "
                "know the label, or name the column of the labels with --data.label_column"
            )


def _check_votes(votes: int | str | None, train: Table) -> None:
    """Raise InputError where no file of train has the column of votes that is set."""
    has_votes = any(facts.content == VOTES for facts in train.share_facts.values())
    if votes is not None and not has_votes:
        raise InputError(
            f"{train.source}: data.votes must be a column of a file of data.train, found "
            f"{train.column_facts.in_english()} and no column {excerpt(votes)}; correct it or leave it out"
        )


def _check_hierarchy(separator: str | None, label_names: list[str], source: str) -> None:
    """Raise InputError where labels must have levels and none has."""
    if not separator or any(separator in name for name in label_names):
        return
    names = listed(map(repr, label_names))
    raise InputError(
        f"{source}: labels must have two or more levels, with '{separator}' between them, found {names}; set "
        "--data.label_hierarchy"
    )


def _dataset_key(
    config: DataConfig, tables: dict[str, Table], label_names: list[str], fixes_digest: str | None
) -> str:
    """Return the part of a folder's name that depends on everything the folder is made of."""
    verb = config.verb
    settings = [
        config.task,
        config.split,
        config.split_seed,
        config.dev_size,
        config.test_size,
        verb.folds,
        verb.fold,
        verb.train_share,
    ]
    table_keys = {name: table.key for name, table in tables.items()}
    return content_key("dataset", VERSION, label_names, settings, table_keys, fixes_digest)


def _open_split(folder: Path, name: str, table: Table) -> Split:
    copies = None
    copies_file = folder / "copies" / f"{name}.npy"
    if copies_file.exists():
        copies = np.load(copies_file, mmap_mode="r")
    targets = None
    targets_file = folder / f"{name}_targets.npy"
    if targets_file.exists():
        targets = np.load(targets_file, mmap_mode="r")
    return Split(
        name=name,
        table=table,
        rows=np.load(folder / f"{name}_rows.npy", mmap_mode="r"),
        labels=np.load(folder / f"{name}_labels.npy", mmap_mode="r"),
        copies=copies,
        targets=targets,
    )
