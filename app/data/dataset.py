"""The data files of a configuration -> a dataset: tables, label names, rows of train, dev and test."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..config.schema import DataConfig
from ..config.shipped import SAMPLE_FOLDER
from ..errors import InputError
from .cache import build_once, content_key
from .file_encoding import file_encoding
from .file_sets import files_of, open_files
from .folds import FOLDS_FILE, build_folds, split_of_fold
from .formats import unlabelled_format
from .label_forms import label_form
from .near_copies import open_copies
from .readers import ReadOptions
from .relabel import Fixes, apply_fixes, configured_fixes
from .splits import part_of_rows, split_rows
from .statistics import dataset_statistics
from .table import Table

VERSION = 2
RELABELLED_FILE = "relabelled.json"
STATISTICS_FILE = "statistics.json"
SPLITS = ("train", "dev", "test")
SAMPLE_LABELS = ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]


@dataclass(frozen=True)
class Split:
    """The rows of one split: `rows` (num_rows,) int64 ids into the table, `labels` (num_rows, ...) as their
    form has them (app/data/label_form.py).

    `copies` (num_rows,) int64 is the row of train of which a row is a near copy, else -1; None of train, and
    where there are too many texts to look.
    """

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

    `files` has the table of each configured file, by split. `vocabulary_folder` has the ids of the rows from
    which a vocabulary is made, the same for all folds of a cross-validation. `relabelled` says what the
    corrected labels of data.relabel did, if there are any; `fixes_content` is a digest of them.
    """

    splits: dict[str, Split]
    label_names: list[str]
    statistics: dict
    folder: Path
    files: dict[str, Table]
    vocabulary_folder: Path
    relabelled: dict | None = None
    fixes_content: str | None = None

    @property
    def assumed(self) -> dict[str, int | str]:
        """The settings of `data` that follow from the values in the train file."""
        return self.files["train"].assumed

    @property
    def tables(self) -> list[Table]:
        """The different tables of the splits, that of train first."""
        return list(
            {(split.table.folder, split.table.source): split.table for split in self.splits.values()}.values()
        )


def open_dataset(config: DataConfig) -> Dataset:
    """Return the dataset of a configuration, memory-mapped; writes to the cache what is not there yet.
    Several processes may call this at the same time. Raises InputError for bad input."""
    config = _without_unread_test(with_sample(config))
    tables, label_names = _open_tables(config)
    fixes = configured_fixes(config)
    fixes_content = content_key(fixes.hashes.tolist(), fixes.labels) if fixes else None
    folds_folder = _folds_folder(config, tables["train"], label_names) if config.verb.folds else None
    changed = [config.verb.folds, config.verb.fold, fixes_content, fixes and fixes.lines]
    changed = changed if config.verb.folds or fixes else []
    changed += [config.verb.train_share] if config.verb.train_share < 1 else []
    split_settings = [config.split, config.split_seed, float(config.dev_size), float(config.test_size)]
    table_names = {name: table.folder.name for name, table in tables.items()}
    key = content_key("dataset", VERSION, label_names, split_settings, table_names, *changed)
    folder = Path(config.cache_dir) / f"dataset-{key}"
    num_bytes = sum(table.num_bytes for table in tables.values())
    build_once(folder, build_dataset, tables, label_names, config, folds_folder, fixes, num_bytes=num_bytes)
    statistics = json.loads((folder / STATISTICS_FILE).read_text(encoding="utf-8"))
    splits = _open_splits(folder, tables)
    if not config.verb.use_test:
        for what in (splits, statistics):
            what.pop("test", None)
    if label_names:
        rows = {name: (split.table, split.rows) for name, split in splits.items()}
        copies = open_copies(rows, statistics, folder)
        splits = {name: replace(split, copies=copies.get(name)) for name, split in splits.items()}
    for table in tables.values():
        table.keep_open()
    relabelled = json.loads((folder / RELABELLED_FILE).read_text(encoding="utf-8")) if fixes else None
    if relabelled:
        relabelled["source"] = fixes.source
    vocabulary_folder = folds_folder or folder
    return Dataset(
        splits, label_names, statistics, folder, tables, vocabulary_folder, relabelled, fixes_content
    )


def _without_unread_test(config: DataConfig) -> DataConfig:
    """Return the configuration without a test file that is not read, because of folds or use_test."""
    if config.test and not config.verb.use_test:
        config = replace(config, test_size=0)
    return replace(config, test=None) if config.verb.folds or not config.verb.use_test else config


def _open_splits(folder: Path, tables: dict[str, Table]) -> dict[str, Split]:
    """Return the splits that have rows, memory-mapped."""
    splits = {}
    for name in SPLITS:
        rows, labels = (np.load(folder / f"{name}_{what}.npy", mmap_mode="r") for what in ("rows", "labels"))
        if len(rows):
            splits[name] = Split(name, tables.get(name, tables["train"]), rows, labels)
    return splits


def _open_tables(config: DataConfig) -> tuple[dict[str, Table], list[str]]:
    """Return the table of each file, by split, and the names of the labels."""
    options = {name: _read_options(config, name) for name in SPLITS if getattr(config, name) is not None}
    form, workers = label_form(config.task), config.verb.workers
    rules = {"skip_bad_rows": config.on_bad_row == "skip", "need_label": form.has_labels}
    rules["cache_dir"] = config.cache_dir
    tables = {
        "train": open_files(config.train, options["train"], workers, label_names=config.labels, **rules)
    }
    # Other files are read as the train file was: a few rows may not show which columns are which
    assumed = tables["train"].assumed
    options = {name: replace(options[name], **assumed) for name in options}
    if config.long != "cut" and "text_pair_column" in assumed:
        raise InputError(
            f"{tables['train'].source}: data.long {config.long} reads single texts, found pairs "
            f"({tables['train'].columns}); leave data.long out, or set --data.text_column for single texts"
        )
    label_names = form.names(config, tables["train"])
    for name in ("dev", "test"):
        if name in options:
            # Ids have no meaning if the labels come from the train file
            rules["accept_ids"] = config.labels is not None
            known = label_names if form.has_labels else None
            files = getattr(config, name), options[name], workers
            tables[name] = open_files(*files, label_names=known, **rules)
    return tables, label_names


def _folds_folder(config: DataConfig, train: Table, label_names: list[str]) -> Path:
    """Return the cached folder with the fold of each row, which depends on neither the fold nor the fixes."""
    key = content_key("folds", train.folder.name, label_names, config.verb.folds, config.split_seed)
    folder = Path(config.cache_dir) / f"folds-{key}"
    form = label_form(config.task)
    arguments = (
        form.of_rows(train, label_names),
        train.array("hashes"),
        config.verb.folds,
        config.split_seed,
    )
    return build_once(folder, build_folds, form.folds, *arguments, num_bytes=train.num_bytes)


def with_sample(config: DataConfig) -> DataConfig:
    """Return the configuration, with the files and labels of the sample set if it has no train file."""
    if config.train is not None:
        return config
    files = {name: str(SAMPLE_FOLDER / f"{name}.tsv") for name in SPLITS}
    labels = config.labels or SAMPLE_LABELS if label_form(config.task).has_labels else None
    return replace(config, **files, labels=labels)


def _read_options(config: DataConfig, name: str) -> ReadOptions:
    form = label_form(config.task)
    options = ReadOptions.of(config)
    if not form.has_labels and config.format == "auto":
        first = Path(files_of(getattr(config, name), config.cache_dir)[0])
        options = replace(options, format=unlabelled_format(first, file_encoding(first, config.encoding)))
    return options if name == "train" else replace(options, limit=None)


def build_dataset(
    folder: Path,
    tables: dict[str, Table],
    label_names: list[str],
    config: DataConfig,
    folds_folder: Path | None = None,
    fixes: Fixes | None = None,
) -> None:
    """Write the row ids and class ids of each split, and the statistics of the data report, into `folder`.
    Which rows are in which split does not depend on `fixes`: what was found before stays comparable."""
    form = label_form(config.task)
    ids = {name: form.of_rows(table, label_names) for name, table in tables.items()}
    train = tables["train"]
    hashes = train.array("hashes")
    dev_size, test_size = (
        0 if name in tables else getattr(config, f"{name}_size") for name in ("dev", "test")
    )
    split, seed = config.split, config.split_seed
    if folds_folder:
        in_fold = np.load(folds_folder / FOLDS_FILE) == config.verb.fold
        rows = split_of_fold(in_fold, ids["train"], hashes, split, dev_size, seed, label_names, form.split)
    else:
        rows = split_rows(ids["train"], hashes, split, dev_size, test_size, seed, label_names, form.split)
    rows |= {name: np.arange(tables[name].num_rows) for name in ("dev", "test") if name in tables}
    if config.verb.train_share < 1:
        classes = form.classes(ids["train"][rows["train"]])
        rows["train"] = part_of_rows(rows["train"], classes, config.verb.train_share, seed)
    if fixes:
        ids = _relabel(folder, ids, tables, fixes, label_names)
    labels = {name: ids.get(name, ids["train"])[rows[name]] for name in SPLITS}
    hashes = {name: tables.get(name, train).array("hashes")[rows[name]] for name in SPLITS}
    form.check(labels, rows, tables, label_names)
    for name in SPLITS:
        np.save(folder / f"{name}_rows.npy", rows[name].astype(np.int64))
        np.save(folder / f"{name}_labels.npy", labels[name])
    statistics = dataset_statistics(form, labels, hashes, label_names)
    (folder / STATISTICS_FILE).write_text(
        json.dumps(statistics, ensure_ascii=False, indent=1), encoding="utf-8"
    )


def _relabel(
    folder: Path, ids: dict[str, np.ndarray], tables: dict[str, Table], fixes: Fixes, label_names: list[str]
) -> dict[str, np.ndarray]:
    """Return the labels of the rows of each file after the fixes; write what they did into `folder`."""
    new_ids, rows_of_fix = fixes.new_labels(label_names), np.zeros(len(fixes.hashes), np.int64)
    changed, relabelled = 0, {}
    for name, table in tables.items():
        relabelled[name], matched = apply_fixes(ids[name], table.array("hashes"), fixes, new_ids)
        changed += int((relabelled[name] != ids[name]).reshape(table.num_rows, -1).any(axis=1).sum())
        rows_of_fix += matched
    unused = np.flatnonzero(rows_of_fix == 0)
    effect = {
        "fixes": len(new_ids),
        "rows": int(rows_of_fix.sum()),
        "changed": changed,
        "unused": len(unused),
        "first_unused": f"{fixes.unit} {fixes.lines[unused[0]]}" if len(unused) else None,
    }
    (folder / RELABELLED_FILE).write_text(json.dumps(effect), encoding="utf-8")
    return relabelled
