"""The data files of a configuration -> a dataset: tables, label names, rows of train, dev and test."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..config.schema import DataConfig
from ..config.shipped import SAMPLE_FOLDER
from ..errors import InputError, listed
from .cache import build_once, content_key
from .labels import label_form
from .near_copies import are_few, near_copies
from .read import ReadOptions
from .relabel import Fixes, apply_fixes, read_fixes
from .splits import SPLITS, dataset_statistics, fold_of_rows, part_of_rows, split_rows
from .table import Table, open_table

VERSION = 4
MAX_EXAMPLES = 3  # near copies of the data report
# All rows that are not test in some fold: the vocabulary of random weights is the same in every fold
ALL_ROWS_FILE = "all_rows.npy"
SAMPLE_LABELS = ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]
# The settings on which the rows of the splits depend, beside the tables
SPLIT_SETTINGS = ("task", "split", "split_seed", "dev_size", "test_size")


@dataclass(frozen=True)
class Split:
    """The rows of one split: `rows` (num_rows,) int64 ids into the table, `labels` (num_rows, ...) as their
    form has them. `copies` (num_rows,) int64 is the row of train of which a row is a near copy, else -1; None
    of train, and where there are too many texts to look."""

    name: str
    table: Table
    rows: np.ndarray
    labels: np.ndarray
    copies: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Dataset:
    """The splits that have rows, the class names in the order of their ids, statistics for the data report.

    `files` has the table of each configured file, by split. `vocabulary_rows` is a file with the ids of the
    rows from which a vocabulary is made, the same for all folds of a cross-validation. `relabelled` says what
    the corrected labels of data.relabel did, if there are any; `fixes_content` is a digest of them.
    """

    splits: dict[str, Split]
    label_names: list[str]
    statistics: dict
    folder: Path
    files: dict[str, Table]
    vocabulary_rows: Path
    relabelled: dict | None = None
    fixes_content: str | None = None

    @property
    def assumed(self) -> dict[str, int | str]:
        """The settings of `data` that follow from the values in the train file."""
        return self.files["train"].assumed

    @property
    def tables(self) -> list[Table]:
        """The different tables of the splits, that of train first."""
        tables = {(split.table.key, split.table.source): split.table for split in self.splits.values()}
        return list(tables.values())


def open_dataset(config: DataConfig) -> Dataset:
    """Return the dataset of a configuration, memory-mapped; writes to the cache what is not there yet.
    Several processes may call this at the same time. Raises InputError for bad input."""
    config = with_sample(config)
    if config.test and not config.verb.use_test:
        config = replace(config, test_size=0)
    if config.verb.folds or not config.verb.use_test:
        # It is not read
        config = replace(config, test=None)
    tables, label_names = _open_tables(config)
    fixes = read_fixes(config.relabel, ReadOptions.of(config)) if config.relabel else None
    fixes_content = content_key(fixes.hashes.tolist(), fixes.labels, fixes.lines) if fixes else None
    settings = [getattr(config, name) for name in SPLIT_SETTINGS]
    settings += [config.verb.folds, config.verb.fold, config.verb.train_share]
    keys = {name: table.key for name, table in tables.items()}
    key = content_key("dataset", VERSION, label_names, settings, keys, fixes_content)
    folder = Path(config.cache_dir) / f"dataset-{key}"
    # Another process would load scikit-learn again where it is loaded, and here it would stay
    is_here = "sklearn" in sys.modules or not label_names
    num_bytes = sum(table.num_bytes for table in tables.values()) if is_here else None
    build_once(folder, build_dataset, tables, label_names, config, fixes, num_bytes=num_bytes)
    known = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    statistics, splits = known["statistics"], {}
    for name in SPLITS:
        rows, labels = (np.load(folder / f"{name}_{what}.npy", mmap_mode="r") for what in ("rows", "labels"))
        if len(rows) and (name != "test" or config.verb.use_test):
            copies, table = folder / "copies" / f"{name}.npy", tables.get(name, tables["train"])
            copies = np.load(copies, mmap_mode="r") if copies.exists() else None
            splits[name] = Split(name, table, rows, labels, copies)
        else:
            statistics.pop(name, None)
    for name, split in splits.items():
        if (originals := split.copies) is not None:
            table, train = split.table, tables["train"]
            changed = table.hashes[split.rows] != train.hashes[originals]
            near = np.flatnonzero((originals >= 0) & changed)
            examples = [[table.where(split.rows[n]), train.where(originals[n])] for n in near[:MAX_EXAMPLES]]
            statistics[name]["near_copies"] = {"rows": len(near), "examples": examples}
    relabelled = known["relabelled"] and known["relabelled"] | {"source": fixes.source}
    vocabulary_rows = folder / (ALL_ROWS_FILE if config.verb.folds else "train_rows.npy")
    return Dataset(
        splits, label_names, statistics, folder, tables, vocabulary_rows, relabelled, fixes_content
    )


def _open_tables(config: DataConfig) -> tuple[dict[str, Table], list[str]]:
    """Return the table of each file, by split, and the names of the labels."""
    form, options = label_form(config.task), ReadOptions.of(config)
    rules = {"skip_bad_rows": config.on_bad_row == "skip", "need_label": form.has_labels}
    rules["cache_dir"] = config.cache_dir
    train = open_table(config.train, options, label_names=config.labels, **rules)
    if config.long != "cut" and "text_pair_column" in train.assumed:
        raise InputError(
            f"{train.source}: data.long {config.long} reads single texts, found pairs ({train.columns}); "
            "leave data.long out, or set --data.text_column for single texts"
        )
    tables, label_names, separator = {"train": train}, form.names(config, train), config.label_hierarchy
    if separator and not any(separator in name for name in label_names):
        rule = f"labels must have two or more levels, with '{separator}' between them"
        found = f"found {listed(map(repr, label_names))}; set --data.label_hierarchy"
        raise InputError(f"{train.source}: {rule}, {found}")
    # Other files are read as the train file was: a few rows may not show which columns are which. Ids have no
    # meaning if the labels come from the train file.
    options = replace(options, limit=None, **train.assumed)
    known, accept_ids = label_names if form.has_labels else None, config.labels is not None
    for name in ("dev", "test"):
        if (value := getattr(config, name)) is not None:
            tables[name] = open_table(value, options, label_names=known, accept_ids=accept_ids, **rules)
    return tables, label_names


def with_sample(config: DataConfig) -> DataConfig:
    """Return the configuration, with the files and labels of the sample set if it has no train
    file."""
    if config.train is not None:
        return config
    files = {name: str(SAMPLE_FOLDER / f"{name}.tsv") for name in SPLITS}
    labels = config.labels or SAMPLE_LABELS if label_form(config.task).has_labels else None
    return replace(config, **files, labels=labels)


def build_dataset(
    folder: Path, tables: dict[str, Table], label_names: list[str], config: DataConfig, fixes: Fixes | None
) -> None:
    """Write the row ids and class ids of each split, and the statistics of the data report, into `folder`.
    Which rows are in which split does not depend on `fixes`: what was found before stays comparable."""
    form, train, verb = label_form(config.task), tables["train"], config.verb
    ids = {name: form.of_rows(table, label_names) for name, table in tables.items()}
    text_hashes = {name: table.hashes for name, table in tables.items()}
    sizes = [0 if name in tables else getattr(config, f"{name}_size") for name in ("dev", "test")]
    labels, hashes = ids["train"], text_hashes["train"]
    if verb.folds:
        fold = fold_of_rows(form, labels, hashes, verb.folds, config.split_seed)
        rest = np.flatnonzero(fold != verb.fold)
        labels, hashes = labels[rest], hashes[rest]
        # The checkpoint is chosen without the fold
        sizes[1] = 0
        np.save(folder / ALL_ROWS_FILE, np.arange(train.num_rows))
    rows = split_rows(form, labels, hashes, config, sizes, label_names)
    if verb.folds:
        rows = {name: rest[chosen] for name, chosen in rows.items()}
        rows["test"] = np.flatnonzero(fold == verb.fold)
    rows |= {name: np.arange(tables[name].num_rows) for name in ("dev", "test") if name in tables}
    if verb.train_share < 1:
        groups = form.groups(ids["train"][rows["train"]])
        rows["train"] = part_of_rows(rows["train"], groups, verb.train_share, config.split_seed)
    relabelled = None
    if fixes:
        ids, relabelled = apply_fixes(ids, text_hashes, fixes, label_names)
    labels = {name: ids.get(name, ids["train"])[rows[name]] for name in SPLITS}
    hashes = {name: text_hashes.get(name, text_hashes["train"])[rows[name]] for name in SPLITS}
    form.check(labels, rows, tables, label_names)
    for name in SPLITS:
        np.save(folder / f"{name}_rows.npy", rows[name].astype(np.int64))
        np.save(folder / f"{name}_labels.npy", labels[name])
    if label_names:
        _write_copies(
            folder, {name: (tables.get(name, train), rows[name]) for name in SPLITS if len(rows[name])}
        )
    statistics = dataset_statistics(form, labels, hashes, label_names)
    known = {"statistics": statistics, "relabelled": relabelled}
    (folder / "dataset.json").write_text(json.dumps(known, ensure_ascii=False, indent=1), encoding="utf-8")


def _write_copies(folder: Path, splits: dict[str, tuple[Table, np.ndarray]]) -> None:
    """Write for each split but train the row of train that each row is a copy of, exactly or nearly, else -1;
    for no split with too many texts."""
    (table, train), texts = splits["train"], None
    # Not in the digest of the folder, which ranks compare: processors may round in other ways
    (folder / "copies").mkdir()
    for name in splits.keys() - {"train"}:
        other, rows = splits[name]
        if are_few(table.sizes[train], other.sizes[rows]):
            texts = texts or table.joined_texts(train)
            nearest = near_copies(texts, other.joined_texts(rows))
            np.save(folder / "copies" / f"{name}.npy", np.where(nearest < 0, -1, train[nearest]))
