"""Tables -> the folder of a dataset in the cache: row ids and labels of each split, and their statistics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ..config.schema import DataConfig
from .cache import save_array
from .labels import LabelForm, label_form, label_ids
from .near_copies import MAX_BYTES, compared_bytes, find_near_copies
from .relabel import apply_fixes
from .split_statistics import split_statistics
from .splits import SPLITS, fold_of_rows, part_of_rows, split_rows
from .table import Table


def build_dataset(
    folder: Path, tables: dict[str, Table], label_names: list[str], config: DataConfig, fixes: dict[int, str]
) -> None:
    """Write the row ids and labels of each split, and the statistics of the data report, into `folder`.

    `tables` has the table of each configured file. The train table also has the rows of splits without a
    file. Which rows are in which split does not depend on `fixes`, so that runs before and after them can be
    compared. Raises InputError for labels that nothing can be learnt from and splits that cannot be made.
    """
    form = label_form(config.task)
    table_texts = _number_texts(tables)
    table_labels = {}
    for name, table in tables.items():
        table_labels[name] = _labels_of_table(form, table, label_names)
    rows = _rows_of_splits(form, tables, table_labels, table_texts, config, label_names)
    relabelled = None
    table_shares = tables["train"].shares(label_ids(tuple(label_names)), len(label_names))
    if config.relabel:
        table_shares = _without_fixed(table_shares, tables["train"], fixes)
        table_labels, relabelled = apply_fixes(fixes, form, label_names, tables, table_labels)

    split_tables = {}
    labels = {}
    texts = {}
    for name in SPLITS:
        table_name = "train"
        if name in tables:
            table_name = name
        split_tables[name] = tables[table_name]
        labels[name] = table_labels[table_name][rows[name]]
        texts[name] = table_texts[table_name][rows[name]]
    targets = targets_of_split(form, labels["train"], rows["train"], table_shares, len(label_names))
    mass = None
    if targets is not None:
        save_array(folder / "train_targets.npy", targets)
        mass = targets.sum(axis=0, dtype=np.float64)
    form.check(labels["train"], tables["train"].source, label_names, mass)
    statistics = split_statistics(form, labels, texts, label_names)

    for name in SPLITS:
        save_array(folder / f"{name}_rows.npy", rows[name].astype(np.int64))
        save_array(folder / f"{name}_labels.npy", labels[name])
    if config.verb.folds:
        # The vocabulary of random weights is the same in every fold: it is made of the rows of all folds
        save_array(folder / "all_rows.npy", np.arange(tables["train"].num_rows))
    copies = {}
    if label_names:
        copies = _near_copies_of_splits(split_tables, rows)
    # They are not in the digest of the folder, which ranks compare: processors may round in other ways
    (folder / "copies").mkdir()
    for name, train_position in copies.items():
        is_copy = train_position >= 0
        save_array(folder / "copies" / f"{name}.npy", np.where(is_copy, rows["train"][train_position], -1))
        is_same_text = texts[name] == texts["train"][train_position]
        statistics[name]["near_copies"] = int((is_copy & ~is_same_text).sum())
    (folder / "dataset.json").write_text(json.dumps([statistics, relabelled], indent=1))


def _without_fixed(
    shares: tuple[np.ndarray, np.ndarray], table: Table, fixes: dict[int, str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distributions of rows of a table whose text has no corrected label."""
    rows, values = shares
    is_fixed = np.isin(table.hashes[rows], np.array(list(fixes), np.uint64))
    return rows[~is_fixed], values[~is_fixed]


def targets_of_split(
    form: LabelForm,
    labels: np.ndarray,
    rows: np.ndarray,
    shares: tuple[np.ndarray, np.ndarray],
    num_labels: int,
) -> np.ndarray | None:
    """Return what the rows of a split are trained on, (num_rows, num_labels) float32: the distribution of
    labels, else 1 for the label or labels of the row; None where no row has a distribution. `shares` are
    those of the table, and `rows` (num_rows,) the row ids of the split."""
    rows_with_shares, values = shares
    has_shares = np.isin(rows, rows_with_shares)
    if not has_shares.any():
        return None
    # The rows with a distribution are in rising order
    places = np.searchsorted(rows_with_shares, rows)
    if form.has_several:
        targets = labels.astype(np.float32)
    else:
        targets = np.zeros((len(rows), num_labels), np.float32)
        targets[np.arange(len(rows)), labels] = 1
    targets[has_shares] = values[places[has_shares]]
    return targets


def _number_texts(tables: dict[str, Table]) -> dict[str, np.ndarray]:
    """Return for each table the number of the text of each row, (num_rows,) int32. Equal texts have the same
    number in all tables. A number takes less memory than the hash of a text."""
    import pyarrow as pa

    num_rows = [table.num_rows for table in tables.values()]
    # Nothing keeps the hashes, which are 8 bytes a row, once they have numbers
    encoded = pa.array(_joined_hashes(tables)).dictionary_encode()
    # The numbers are in the order of the hashes, and do not depend on the order of rows
    numbers = np.argsort(np.argsort(encoded.dictionary)).astype(np.int32)
    ends = np.cumsum(num_rows)
    parts = np.split(numbers[encoded.indices], ends[:-1])
    return dict(zip(tables, parts, strict=True))


def _joined_hashes(tables: dict[str, Table]) -> np.ndarray:
    """Return the hashes of the texts of all tables, end to end."""
    return np.concatenate([table.hashes for table in tables.values()])


def _labels_of_table(form: LabelForm, table: Table, label_names: list[str]) -> np.ndarray:
    """Return the labels of all rows of a table, (num_rows, ...) as their form has them."""
    if not form.has_labels:
        return np.zeros(table.num_rows, np.int64)
    labels_of_values = form.encode_labels(table.label_values, label_names)
    return labels_of_values[table.labels]


def _rows_of_splits(
    form: LabelForm,
    tables: dict[str, Table],
    labels: dict[str, np.ndarray],
    texts: dict[str, np.ndarray],
    config: DataConfig,
    label_names: list[str],
) -> dict[str, np.ndarray]:
    """Return the row ids of each split in its table, (num_rows,)."""
    verb = config.verb
    train_labels = labels["train"]
    train_texts = texts["train"]
    dev_size = config.dev_size
    test_size = config.test_size
    if "dev" in tables:
        dev_size = 0
    if "test" in tables:
        test_size = 0
    if verb.folds:
        fold = fold_of_rows(form, train_labels, train_texts, verb.folds, config.split_seed)
        # The checkpoint is chosen without the rows of the fold
        outside = np.flatnonzero(fold != verb.fold)
        positions = split_rows(
            form,
            train_labels[outside],
            train_texts[outside],
            config,
            dev_size=dev_size,
            test_size=0,
            label_names=label_names,
        )
        rows = {"train": outside[positions["train"]], "dev": outside[positions["dev"]]}
        rows["test"] = np.flatnonzero(fold == verb.fold)
    else:
        rows = split_rows(
            form,
            train_labels,
            train_texts,
            config,
            dev_size=dev_size,
            test_size=test_size,
            label_names=label_names,
        )
    for name in ("dev", "test"):
        if name in tables:
            rows[name] = np.arange(tables[name].num_rows)
    if verb.train_share < 1:
        groups = form.groups(train_labels[rows["train"]])
        rows["train"] = part_of_rows(rows["train"], groups, verb.train_share, config.split_seed)
    return rows


def _near_copies_of_splits(tables: dict[str, Table], rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return for dev and test the position among the train rows of which each row is a near copy, else -1,
    (num_rows,) int64; nothing for a split that has no rows, or too many to compare them."""
    num_train_bytes = compared_bytes(tables["train"].sizes[rows["train"]])
    train_texts = None
    copies = {}
    for name in ("dev", "test"):
        num_bytes = num_train_bytes + compared_bytes(tables[name].sizes[rows[name]])
        if not len(rows[name]) or num_bytes > MAX_BYTES:
            continue
        if train_texts is None:
            train_texts = tables["train"].joined_texts(rows["train"])
        copies[name] = find_near_copies(train_texts, tables[name].joined_texts(rows[name]))
    return copies
