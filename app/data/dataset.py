"""The data files of a configuration -> a dataset: tables, label names, rows of train, dev and test. A file of
fixes replaces the labels of texts; no data file changes.

A fix is a row of a table with the column `label`, and `text_hash` as label_issues.csv has it, or `text` (and
`text_pair`). A row without a label is no fix, so a list of label issues may be filled in part by part. With
several labels a row, `label` is the set as the data has them; the list [] is no label. The column `choice`
stands before `label`: Label Studio's export has a decision there, beside the empty `label` of the list.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..config.schema import DataConfig
from ..config.shipped import SAMPLE_FOLDER
from ..errors import InputError, excerpt, listed, printable_path
from .cache import build_once, content_key
from .columns import clean_text, value_of
from .labels import label_form
from .read import FORMATS, BadRow, ReadOptions, read_records, recognised
from .splits import SPLITS, are_few, dataset_statistics, fold_of_rows, near_copies, part_of_rows, split_rows
from .table import Table, open_table, text_hashes

VERSION = 5
SAMPLE_LABELS = ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]
# The settings on which the rows of the splits depend, beside the tables
SPLIT_SETTINGS = ("task", "split", "split_seed", "dev_size", "test_size")
# The letter h keeps spreadsheets from reading a hash as a number
HASH = re.compile(r"h[0-9a-f]{16}")


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
    the corrected labels of data.relabel did, if there are any, and has a digest of them as `content`.
    """

    splits: dict[str, Split]
    label_names: list[str]
    statistics: dict
    folder: Path
    files: dict[str, Table]
    vocabulary_rows: Path
    relabelled: dict | None = None

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
    tables, names = _open_tables(config)
    fixes = read_fixes(config.relabel, ReadOptions.of(config), names) if config.relabel else {}
    content = content_key(sorted(fixes.items())) if config.relabel else None
    settings = [getattr(config, name) for name in SPLIT_SETTINGS]
    settings += [config.verb.folds, config.verb.fold, config.verb.train_share]
    keys = {name: table.key for name, table in tables.items()}
    key = content_key("dataset", VERSION, names, settings, keys, content)
    folder = Path(config.cache_dir) / f"dataset-{key}"
    # Another process would load scikit-learn again where it is loaded, and here it would stay
    is_here = "sklearn" in sys.modules or not names
    num_bytes = sum(table.num_bytes for table in tables.values()) if is_here else None
    build_once(folder, build_dataset, tables, names, config, fixes, num_bytes=num_bytes)
    statistics, relabelled = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    splits = {}
    for name in SPLITS:
        rows, labels = (np.load(folder / f"{name}_{what}.npy", mmap_mode="r") for what in ("rows", "labels"))
        if not len(rows) or (name == "test" and not config.verb.use_test):
            statistics.pop(name, None)
            continue
        table, path = tables.get(name, tables["train"]), folder / "copies" / f"{name}.npy"
        copies = np.load(path, mmap_mode="r") if path.exists() else None
        splits[name] = Split(name, table, rows, labels, copies)
    if relabelled:
        relabelled |= {"source": printable_path(config.relabel), "content": content}
    vocabulary_rows = folder / ("all_rows.npy" if config.verb.folds else "train_rows.npy")
    return Dataset(splits, names, statistics, folder, tables, vocabulary_rows, relabelled)


def _open_tables(config: DataConfig) -> tuple[dict[str, Table], list[str]]:
    """Return the table of each file, by split, and the names of the labels."""
    form, options = label_form(config.task), ReadOptions.of(config)
    rules = {"skip_bad_rows": config.on_bad_row == "skip", "need_label": form.has_labels}
    rules["cache_dir"] = config.cache_dir
    train = open_table(config.train, options, label_names=config.labels, **rules)
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
    """Return the configuration, with the files and labels of the sample set if it has no train file."""
    if config.train is not None:
        return config
    files = {name: str(SAMPLE_FOLDER / f"{name}.tsv") for name in SPLITS}
    labels = config.labels or SAMPLE_LABELS if label_form(config.task).has_labels else None
    return replace(config, **files, labels=labels)


def build_dataset(
    folder: Path, tables: dict[str, Table], label_names: list[str], config: DataConfig, fixes: dict[int, str]
) -> None:
    """Write the row ids and class ids of each split, and the statistics of the data report, into `folder`.
    Which rows are in which split does not depend on `fixes`: what was found before stays comparable."""
    form, train, verb = label_form(config.task), tables["train"], config.verb
    ids = {}
    for name, table in tables.items():
        of_values = form.of_texts(table.label_values, label_names)
        ids[name] = of_values[table.labels] if form.has_labels else np.zeros(table.num_rows, np.int64)
    hashes = {name: table.hashes for name, table in tables.items()}
    sizes = [0 if name in tables else getattr(config, f"{name}_size") for name in ("dev", "test")]
    labels, text_hashes = ids["train"], hashes["train"]
    if verb.folds:
        # All rows that are not test in some fold: the vocabulary of random weights is the same in every fold
        np.save(folder / "all_rows.npy", np.arange(train.num_rows))
        fold = fold_of_rows(form, labels, text_hashes, verb.folds, config.split_seed)
        rest = np.flatnonzero(fold != verb.fold)
        labels, text_hashes = labels[rest], text_hashes[rest]
        # The checkpoint is chosen without the fold
        sizes[1] = 0
    rows = split_rows(form, labels, text_hashes, config, sizes, label_names)
    if verb.folds:
        rows = {name: rest[of_split] for name, of_split in rows.items()}
        rows["test"] = np.flatnonzero(fold == verb.fold)
    rows |= {name: np.arange(tables[name].num_rows) for name in ("dev", "test") if name in tables}
    if verb.train_share < 1:
        groups = form.groups(ids["train"][rows["train"]])
        rows["train"] = part_of_rows(rows["train"], groups, verb.train_share, config.split_seed)
    relabelled = None
    if config.relabel:
        ids, relabelled = apply_fixes(ids, hashes, fixes, form.of_texts(list(fixes.values()), label_names))
    labels = {name: ids.get(name, ids["train"])[rows[name]] for name in SPLITS}
    form.check(labels["train"], train.source, label_names)
    for name in SPLITS:
        np.save(folder / f"{name}_rows.npy", rows[name].astype(np.int64))
        np.save(folder / f"{name}_labels.npy", labels[name])
    of_splits = {name: hashes.get(name, hashes["train"])[rows[name]] for name in SPLITS}
    statistics, texts = dataset_statistics(form, labels, of_splits, label_names), None
    # Not in the digest of the folder, which ranks compare: processors may round in other ways
    (folder / "copies").mkdir()
    for name in ("dev", "test") if label_names else ():
        table, of_split = tables.get(name, train), rows[name]
        if len(of_split) and are_few(train.sizes[rows["train"]], table.sizes[of_split]):
            texts = texts or train.joined_texts(rows["train"])
            nearest = near_copies(texts, table.joined_texts(of_split))
            np.save(folder / "copies" / f"{name}.npy", np.where(nearest < 0, -1, rows["train"][nearest]))
            is_near = (nearest >= 0) & (of_splits[name] != of_splits["train"][nearest])
            statistics[name]["near_copies"] = int(is_near.sum())
    text = json.dumps([statistics, relabelled], ensure_ascii=False, indent=1)
    (folder / "dataset.json").write_text(text, encoding="utf-8")


def written_hash(value: int) -> str:
    """Return the hash of a text as files have it: the letter h and 16 hexadecimal digits."""
    return f"h{value:016x}"


def read_fixes(path: str | Path, data: ReadOptions, names: list[str]) -> dict[int, str]:
    """Return the label text of each hash of a text in a file of fixes; texts are cleaned, and labels written,
    as those of `data` are. Raises InputError, with file and line, for rows that are no fixes, for two labels
    of one text, and for a label that is not one of `names`."""
    file, form = Path(path), label_form(data.task)
    options, data = recognised(file, ReadOptions()), replace(data, label_columns=None)
    columns, fixes, lines = None, {}, {}
    for line, record in read_records(file, options):
        if columns is None and isinstance(record, list):
            columns = [str(name).strip() for name in record]
            continue
        try:
            if isinstance(record, list) and len(record) == len(columns):
                record = dict(zip(columns, record, strict=True))
            known = record.keys() if isinstance(record, dict) else set()
            if not (known & {"label", "choice"} and known & {"text", "text_hash"}):
                rule = "a row needs label (or choice) and text (or text_hash), and the fields of the header"
                is_bad = isinstance(record, BadRow)
                raise ValueError(record.problem if is_bad else f"{rule}, found {excerpt(record)}; correct it")
            label = record.get("choice") or record.get("label")
            if label is None or (isinstance(label, str) and not label.strip()):
                continue
            label = form.text(value_of(label), data)
            if unknown := form.unknown(label, names):
                remedy = "correct it, or set --data.labels"
                raise ValueError(f"a fix must have a label of the data, found {unknown}; {remedy}")
            if given := str(record.get("text_hash") or "").strip():
                if not HASH.fullmatch(given):
                    rule = f"text_hash must be the letter h and 16 hexadecimal digits, found {excerpt(given)}"
                    raise ValueError(f"{rule}; copy it whole, or remove the column and use text")
                key = int(given[1:], 16)
            else:
                text, pair = (record.get(name) for name in ("text", "text_pair"))
                pairs = [clean_text(pair, data.remove_spaces, "second text")] if pair else None
                key = int(text_hashes([clean_text(text, data.remove_spaces, "text")], pairs)[0])
            if fixes.setdefault(key, label) != label:
                raise ValueError(
                    f"all fixes of a text must have the same label, found {excerpt(label)} here and "
                    f"{excerpt(fixes[key])} in {FORMATS[options.format].row_unit} {lines[key]}; keep one"
                )
            lines.setdefault(key, line)
        except ValueError as error:
            where = f"{printable_path(str(path))}, {FORMATS[options.format].row_unit} {line}"
            raise InputError(f"{where}: {error}") from error
    return fixes


def apply_fixes(
    labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], fixes: dict[int, str], new: np.ndarray
) -> tuple[dict[str, np.ndarray], dict]:
    """Return the labels of the rows of each file after the fixes, and what these did. `labels` are of their
    form, (num_rows, ...), `hashes` (num_rows,), `new` the labels of the fixes, (num_fixes, ...)."""
    known = np.array(list(fixes), np.uint64)
    order = np.argsort(known)
    after, changed, uses = {}, 0, np.zeros(len(known), np.int64)
    for name, before in labels.items():
        matches = np.flatnonzero(np.isin(hashes[name], known))
        fix = order[np.searchsorted(known, hashes[name][matches], sorter=order)]
        uses += np.bincount(fix, minlength=len(uses))
        after[name] = np.array(before)
        after[name][matches] = new[fix]
        changed += int((new[fix] != before[matches]).any(axis=tuple(range(1, before.ndim))).sum())
    unused = int((uses == 0).sum())
    return after, {"fixes": len(known), "rows": int(uses.sum()), "changed": changed, "unused": unused}
