"""The data files of a configuration -> a dataset: tables, label names, rows of train, dev and test, and which
texts of dev and test are nearly a training text: on them a model looks better than it is.

A file of fixes replaces the labels of texts; no data file changes. A fix is a row with the column `label`,
and `text_hash` as label_issues.csv has it, or `text` (and `text_pair`). A row without a label is no fix, so a
list of label issues may be filled in part by part. With several labels a row, `label` is the set as the data
has them; the list [] is no label. The column `choice` stands before `label`: Label Studio's export has a
decision there, beside the empty `label` of the list."""

from __future__ import annotations

import json
import os
import random
import re
from array import array
from collections import namedtuple
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain, starmap
from pathlib import Path
from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..config.shipped import SAMPLE_FOLDER
from ..errors import InputError, excerpt, listed, printable_path, shorten
from ..words import _
from .bad_row import BadRow, bad_row_message
from .cache import build_once, content_key, save_array
from .cells import clean_text, value_of
from .folders import splits_in
from .labels import LabelForm, label_form, number_of
from .read import FORMATS, ReadOptions, read_blocks, recognised
from .table import Table, open_table, text_hashes

VERSION = 5
SPLITS = ("train", "dev", "test")
SAMPLE_LABELS = ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]
RARE_SHARE = 0.1  # share of all texts that may be of classes with fewer texts than splits
MANY_CLASSES = 20  # more classes that are all numbers are probably a number to be predicted
MAX_TEXT = 512  # characters of a text that are compared
MAX_BYTES = 15_000_000  # of the texts of train and one other split; takes 20 s and 300 MB at most
CANDIDATE, NEAR = 0.5, 0.8  # cosine of a candidate, and share of equal characters of a near copy
# A pair of characters that more training texts have says little: at least so many, or this share
COMMON_ROWS, COMMON_SHARE = 1000, 0.01
BATCH_ROWS = 128  # compared with all training texts at once


# Different texts: the first row of each, the text of each row, and how many rows each text has
UniqueTexts = namedtuple("UniqueTexts", "first of_rows sizes")


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
    the corrected labels of data.relabel did, if there are any, and has a digest of them as `content`."""

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
        return list({(one.table.key, one.table.source): one.table for one in self.splits.values()}.values())


def with_files(config: DataConfig) -> DataConfig:
    """Return the configuration, with the files and labels of the sample set if it has no train file, and with
    the splits of a folder that has some, unless the configuration names other files for them."""
    if config.train is not None:
        return replace(config, **_splits_of_folder(config))
    files = {name: str(SAMPLE_FOLDER / f"{name}.tsv") for name in SPLITS}
    labels = config.labels or SAMPLE_LABELS if label_form(config.task).has_labels else None
    return replace(config, **files, labels=labels)


def _splits_of_folder(config: DataConfig) -> dict[str, list[str]]:
    if not isinstance(config.train, str) or not os.path.isdir(config.train):
        return {}
    splits = splits_in(Path(config.train))
    if "train" not in splits:
        return {}
    return {name: files for name, files in splits.items() if name == "train" or getattr(config, name) is None}


def open_dataset(config: DataConfig) -> Dataset:
    """Return the dataset of a configuration, memory-mapped; writes to the cache what is not there yet.
    Several processes may call this at the same time. Raises InputError for bad input."""
    config, verb, form = with_files(config), config.verb, label_form(config.task)
    if config.test and (verb.folds or not verb.use_test):
        # The file is not read, and no rows of train take its place
        config = replace(config, test=None, test_size=0)
    options, separator = ReadOptions.of(config), config.label_hierarchy
    rules = {"skip_bad_rows": config.on_bad_row == "skip", "need_label": form.has_labels}
    train = open_table(config.train, options, config.cache_dir, label_names=config.labels, **rules)
    tables, names = {"train": train}, form.names(config, train)
    if separator and not any(separator in name for name in names):
        rule = f"labels must have two or more levels, with '{separator}' between them"
        found = f"found {listed(map(repr, names))}; set --data.label_hierarchy"
        raise InputError(f"{train.source}: {rule}, {found}")
    # Other files are read as the train file was: a few rows may not show which columns are which. Ids have no
    # meaning if the labels come from the train file.
    options = replace(options, limit=None, **train.assumed)
    rules |= {"label_names": names if form.has_labels else None, "accept_ids": config.labels is not None}
    for name in ("dev", "test"):
        if (value := getattr(config, name)) is not None:
            tables[name] = open_table(value, options, config.cache_dir, **rules)
    fixes = {}
    if config.relabel:
        fixes = read_fixes(config.relabel, options, names, accept_ids=config.labels is not None)
    content = content_key([*fixes.items()]) if config.relabel else None
    settings = [config.task, config.split, config.split_seed, config.dev_size, config.test_size]
    settings += [verb.folds, verb.fold, verb.train_share]
    keys = {name: table.key for name, table in tables.items()}
    key = content_key("dataset", VERSION, names, settings, keys, content)
    folder = Path(config.cache_dir) / f"dataset-{key}"
    num_bytes = sum(table.num_bytes for table in tables.values())
    build_once(folder, build_dataset, tables, names, config, fixes, num_bytes=num_bytes)
    statistics, relabelled = json.loads((folder / "dataset.json").read_text())
    splits = {}
    for name in SPLITS:
        rows, labels = (np.load(folder / f"{name}_{what}.npy", mmap_mode="r") for what in ("rows", "labels"))
        if not len(rows) or (name == "test" and not verb.use_test):
            statistics.pop(name, None)
            continue
        path = folder / "copies" / f"{name}.npy"
        copies = np.load(path, mmap_mode="r") if path.exists() else None
        splits[name] = Split(name, tables.get(name, train), rows, labels, copies)
    if relabelled:
        relabelled |= {"source": printable_path(config.relabel), "content": content}
    vocabulary_rows = folder / ("all_rows.npy" if verb.folds else "train_rows.npy")
    return Dataset(splits, names, statistics, folder, tables, vocabulary_rows, relabelled)


def read_fixes(path: str | Path, data: ReadOptions, names: list[str], accept_ids: bool) -> dict[int, str]:
    """Return the label text of each hash of a text in a file of fixes, sorted; `data` says how texts are
    cleaned and labels read; with `accept_ids`, integers may be ids of labels. Raises InputError, with file
    and line, for rows that are no fixes, for two labels of one text, and for a label that is not one of
    `names`."""
    file, form = Path(path), label_form(data.task)
    options, data = recognised(file, ReadOptions(encoding=data.encoding)), replace(data, label_columns=None)
    unit, columns, fixes = FORMATS[options.format].row_unit, None, {}
    for line, record in chain.from_iterable(starmap(zip, read_blocks(file, options))):
        if columns is None and isinstance(record, list):
            columns = [str(name).strip() for name in record]
            continue
        try:
            if isinstance(record, BadRow):
                raise ValueError(record.problem)
            if isinstance(record, list) and len(record) == len(columns):
                record = dict(zip(columns, record, strict=True))
            known = record.keys() if isinstance(record, dict) else set()
            if not (known & {"label", "choice"} and known & {"text", "text_hash"}):
                rule = "a row needs label (or choice) and text (or text_hash), and the fields of the header"
                raise ValueError(f"{rule}, found {excerpt(record)}; correct it")
            label = record.get("choice") or record.get("label")
            if label is None or (isinstance(label, str) and not label.strip()):
                continue
            label = form.text(value_of(label), data)
            if unknown := form.unknown(label, names, accept_ids):
                remedy = "correct it, or set --data.labels"
                raise ValueError(f"a fix must have a label of the data, found {unknown}; {remedy}")
            if given := str(record.get("text_hash") or "").strip():
                if not re.fullmatch("h[0-9a-f]{16}", given):
                    rule = f"text_hash must be the letter h and 16 hexadecimal digits, found {excerpt(given)}"
                    raise ValueError(f"{rule}; copy it whole, or remove the column and use text")
                key = int(given[1:], 16)
            else:
                text, pair = (record.get(name) for name in ("text", "text_pair"))
                pairs = [clean_text(pair, data.remove_spaces, "second text")] if pair else None
                key = int(text_hashes([clean_text(text, data.remove_spaces, "text")], pairs)[0])
            first, at = fixes.setdefault(key, (label, line))
            if first != label:
                rule = f"all fixes of a text must have the same label, found {excerpt(label)} here"
                raise ValueError(f"{rule} and {excerpt(first)} in {unit} {at}; keep one")
        except ValueError as error:
            raise InputError(bad_row_message(printable_path(str(path)), unit, line, error)) from error
    return {key: label for key, (label, _line) in sorted(fixes.items())}


def build_dataset(
    folder: Path, tables: dict[str, Table], label_names: list[str], config: DataConfig, fixes: dict[int, str]
) -> None:
    """Write the row ids and class ids of each split, and the statistics of the data report, into `folder`.
    Which rows are in which split does not depend on `fixes`: what was found before stays comparable."""
    import pyarrow as pa

    form, train, verb, seed = label_form(config.task), tables["train"], config.verb, config.split_seed
    # A number for each different text, in the order of the hashes, takes less memory than its hash
    encoded = pa.array(np.concatenate([table.hashes for table in tables.values()])).dictionary_encode()
    ranks = np.argsort(np.argsort(encoded.dictionary)).astype(np.int32)
    ends = np.cumsum([table.num_rows for table in tables.values()])[:-1]
    texts = dict(zip(tables, np.split(ranks[encoded.indices], ends), strict=True))
    ids = {}
    for name, table in tables.items():
        of_values = form.encode_labels(table.label_values, label_names)
        ids[name] = of_values[table.labels] if form.has_labels else np.zeros(table.num_rows, np.int64)
    sizes = [0 if name in tables else getattr(config, f"{name}_size") for name in ("dev", "test")]
    labels, of_train = ids["train"], texts["train"]
    if verb.folds:
        # All rows that are not test in some fold: the vocabulary of random weights is the same in every fold
        save_array(folder / "all_rows.npy", np.arange(train.num_rows))
        fold = fold_of_rows(form, labels, of_train, verb.folds, seed)
        # The checkpoint is chosen without the fold
        rest, sizes[1] = np.flatnonzero(fold != verb.fold), 0
        labels, of_train = labels[rest], of_train[rest]
    rows = split_rows(form, labels, of_train, config, sizes, label_names)
    if verb.folds:
        rows = {name: rest[of_split] for name, of_split in rows.items()}
        rows["test"] = np.flatnonzero(fold == verb.fold)
    rows |= {name: np.arange(tables[name].num_rows) for name in ("dev", "test") if name in tables}
    if verb.train_share < 1:
        groups = form.groups(ids["train"][rows["train"]])
        rows["train"] = part_of_rows(rows["train"], groups, verb.train_share, seed)
    relabelled = None
    if config.relabel:
        known, new = np.array(list(fixes), np.uint64), form.encode_labels(list(fixes.values()), label_names)
        uses, changed = np.zeros(len(known), np.int64), 0
        for name, of_file in ids.items():
            hashes = tables[name].hashes
            matches = np.flatnonzero(np.isin(hashes, known))
            fix = np.searchsorted(known, hashes[matches])
            uses += np.bincount(fix, minlength=len(known))
            changed += int((new[fix] != of_file[matches]).any(axis=tuple(range(1, new.ndim))).sum())
            of_file[matches] = new[fix]
        relabelled = {"fixes": len(known), "rows": int(uses.sum()), "changed": changed}
        relabelled["unused"] = int((uses == 0).sum())
    labels = {name: ids.get(name, ids["train"])[rows[name]] for name in SPLITS}
    form.check(labels["train"], train.source, label_names)
    for name in SPLITS:
        save_array(folder / f"{name}_rows.npy", rows[name].astype(np.int64))
        save_array(folder / f"{name}_labels.npy", labels[name])
    of_splits = {name: texts.get(name, texts["train"])[rows[name]] for name in SPLITS}
    statistics, known = dataset_statistics(form, labels, of_splits, label_names), None
    sizes = {name: tables.get(name, train).sizes[rows[name]] for name in SPLITS}
    sizes = {name: np.minimum(of_split, 3 * MAX_TEXT).sum() for name, of_split in sizes.items()}
    # Not in the digest of the folder, which ranks compare: processors may round in other ways
    (folder / "copies").mkdir()
    for name in ("dev", "test") if label_names else ():
        table, of_split = tables.get(name, train), rows[name]
        if len(of_split) and sizes["train"] + sizes[name] <= MAX_BYTES:
            known = known or train.joined_texts(rows["train"])
            nearest = near_copies(known, table.joined_texts(of_split))
            save_array(folder / "copies" / f"{name}.npy", np.where(nearest < 0, -1, rows["train"][nearest]))
            is_near = (nearest >= 0) & (of_splits[name] != of_splits["train"][nearest])
            statistics[name]["near_copies"] = int(is_near.sum())
    (folder / "dataset.json").write_text(json.dumps([statistics, relabelled], indent=1))


def unique_texts(texts: np.ndarray) -> UniqueTexts:
    """Return the different texts of rows, by numbers from 0 (num_rows,), without sorting them."""
    sizes = np.bincount(texts)
    first, is_there = np.empty(len(sizes), np.int32), sizes > 0
    # Rows are assigned from the last to the first, so the first row of a text remains
    first[texts[::-1]] = np.arange(len(texts) - 1, -1, -1, dtype=np.int32)
    of_rows = (np.cumsum(is_there) - 1).astype(np.int32)[texts]
    return UniqueTexts(first[is_there], of_rows, sizes[is_there])


def split_rows(
    form: LabelForm, labels: np.ndarray, texts: np.ndarray, config: DataConfig, sizes: list, names: list[str]
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev and test of one file, (num_rows,) int64 each, as `data.split` says.
    `labels` (num_rows, ...) are of the `form`, with `names` for messages, `texts` (num_rows,) the numbers of
    the texts, and `sizes` are dev_size and test_size. Raises InputError where no rows are left to train on,
    and for many classes with fewer texts than splits: another column was probably taken for the label."""
    num_rows, (dev_size, test_size) = len(labels), sizes
    # A fraction is at least one row
    dev, test = (int(n) if n >= 1 or n == 0 else max(1, round(num_rows * n)) for n in sizes)
    train = num_rows - dev - test
    if train <= 0:
        said = _(
            "the train file must keep rows to train on: it has {rows:,}, and dev_size {dev:g} and "
            "test_size {test:g} take {taken:,}; make them smaller"
        )
        raise InputError(said.format(rows=num_rows, dev=dev_size, test=test_size, taken=dev + test))
    if train == num_rows:
        return {"train": np.arange(num_rows), "dev": np.arange(0), "test": np.arange(0)}
    if config.split == "random":
        rows = array("q", range(num_rows))
        random.Random(config.split_seed).shuffle(rows)
        return dict(zip(SPLITS, np.split(np.array(rows, np.int64), [train, train + dev]), strict=True))
    unique, counts = unique_texts(texts), np.array([train, dev, test])
    if form.has_several:
        # Texts are dealt only to splits that have rows
        numbers = np.flatnonzero(counts)
        part = numbers[deal_label_lists(labels, unique, counts[numbers] / num_rows, config.split_seed)]
    else:
        groups, shares = form.groups(labels), {n: counts[n] / num_rows for n in (2, 1) if counts[n]}
        of_groups = np.bincount(groups[unique.first])
        rare = np.flatnonzero((of_groups > 0) & (of_groups <= len(shares)))
        num_rare, num_texts = of_groups[rare].sum(), of_groups.sum()
        if num_rare > max(len(shares), RARE_SHARE * num_texts) or num_rare == num_texts:
            # Texts without labels, and ranges of numbers, have no names
            name = names[rare[0]] if len(names) > 1 else f"group {rare[0] + 1}"
            rule = f"a stratified split needs {len(shares) + 1} different texts of each class, one a split"
            found = f"{len(rare):,} of {len(of_groups):,} classes have fewer, the first is '{shorten(name)}'"
            remedy = "add rows, set --data.split random, give separate files, or set --data.label_column"
            if len(names) > MANY_CLASSES and all(number_of(name) is not None for name in names):
                remedy = f"to predict a number, set --data.task regression; else {remedy}"
            raise InputError(f"{rule}; {found} with {of_groups[rare[0]]}; {remedy}")
        part = deal_texts(groups, unique, shares, config.split_seed)
    return {name: np.flatnonzero(part == number) for number, name in enumerate(SPLITS)}


def deal_texts(groups: np.ndarray, unique: UniqueTexts, shares: dict[int, float], seed: int) -> np.ndarray:
    """Return the part of each row, (num_rows,). Each part of `shares` has its share of the rows of each group
    (num_rows,), and a text of it; part 0 has the others. Where a group has fewer texts than there are parts,
    part 0 has the first one, the first of `shares` the second. All rows of a text, of those that are
    `unique`, are in one part."""
    of_text, sizes = groups[unique.first], unique.sizes
    of_group = np.split(np.argsort(of_text, kind="stable"), np.cumsum(np.bincount(of_text))[:-1])
    parts, generator = np.zeros(len(of_text), np.int16), np.random.default_rng(seed)
    # `owed` is how many rows too few a part has from the groups so far (negative: too many). Small groups
    # come first: to be in each part, a group may give it more rows than its proportion, and large groups then
    # give it less.
    owed = dict.fromkeys(shares, 0.0)
    for group in np.argsort(np.bincount(groups), kind="stable"):
        left = generator.permutation(of_group[group])
        rows = int(sizes[left].sum())
        # Texts with too many rows for a part come last
        weight = np.where(sizes[left] > max(1.0, min(shares.values()) * rows), sizes[left], 0)
        left = left[np.argsort(weight, kind="stable")]
        for others, (part, share) in zip(range(len(shares), 0, -1), shares.items(), strict=True):
            target = share * rows + owed[part]
            count = int(np.searchsorted(np.cumsum(sizes[left]), target + 0.5, side="right"))
            # A text is left for each part that follows, and one for part 0 in any case
            count = min(max(1, count), max(min(1, len(left) - 1), len(left) - others))
            dealt, left = np.split(left, [max(0, count)])
            parts[dealt] = part
            owed[part] = target - int(sizes[dealt].sum())
    return parts[unique.of_rows]


def deal_label_lists(labels: np.ndarray, unique: UniqueTexts, shares: np.ndarray, seed: int) -> np.ndarray:
    """Return the part of each row, (num_rows,) from 0. `labels` (num_rows, num_labels) are 0 and 1; `shares`
    (num_parts,) says which share of the rows each part gets. Texts are dealt out one by one, those of rare
    label sets and rare labels first. A text goes to the part that lacks most rows of its set; a text of a set
    with too few texts for all parts goes to the part that lacks most rows of its rarest label (iterative
    stratification, Sechidis et al. 2011)."""
    first, text_of_row, sizes = unique
    of_text = labels[first].astype(bool)
    sets = np.unique(np.packbits(of_text, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    set_need = np.bincount(sets, sizes)[:, None] * shares
    label_need = (of_text * sizes[:, None]).sum(axis=0)[:, None] * shares
    need = len(labels) * shares
    label_rows = of_text.sum(axis=0)
    rarest = np.where(of_text, label_rows, np.iinfo(np.int64).max).argmin(axis=1)
    rarest[~of_text.any(axis=1)] = -1
    is_rare = np.bincount(sets)[sets] <= len(shares)
    shuffled = np.random.default_rng(seed).permutation(len(first))
    rank = np.where(rarest >= 0, label_rows[rarest], len(labels))
    # Rare sets come first: a part that gets too many rows of a label from them gets fewer from the others
    dealt = shuffled[np.lexsort((sets[shuffled], rank[shuffled], ~is_rare[shuffled]))]
    chosen = np.empty(len(first), dtype=np.int64)
    for text in dealt:
        wants = np.zeros(len(shares)) if is_rare[text] else set_need[sets[text]]
        lacking = label_need[rarest[text]] if rarest[text] >= 0 else need
        part = int(np.lexsort((-need, -np.round(lacking, 9), -np.round(wants, 9)))[0])
        chosen[text] = part
        set_need[sets[text], part] -= sizes[text]
        label_need[of_text[text], part] -= sizes[text]
        need[part] -= sizes[text]
    return chosen[text_of_row]


def fold_of_rows(form: Any, labels: np.ndarray, texts: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, (num_rows,) from 0. Labels of the `form` keep their proportions; all rows
    of a text are in one fold. Raises InputError for too many folds."""
    groups, unique = form.groups(labels), unique_texts(texts)
    num_texts, largest = len(unique.first), np.bincount(groups[unique.first]).max()
    if largest < folds:
        rule = "--folds must be at most the number of different texts of the largest class"
        found = f"found {folds} folds for {num_texts:,} texts and {largest:,} of that class"
        raise InputError(f"{rule}; {found}")
    if form.has_several:
        return deal_label_lists(labels, unique, np.full(folds, 1 / folds), seed)
    return deal_texts(groups, unique, dict.fromkeys(range(1, folds), 1 / folds), seed)


def part_of_rows(rows: np.ndarray, groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a `share` of the row ids `rows` (num_rows,), sorted: the same share of each of the `groups`
    (num_rows,), at least one row. A larger share has all rows of a smaller one."""
    order = np.random.default_rng(seed).permutation(len(rows))
    parts = (order[groups[order] == group] for group in np.unique(groups))
    kept = [part[: max(1, round(share * len(part)))] for part in parts]
    return np.sort(rows[np.concatenate(kept)])


def dataset_statistics(
    form: LabelForm, labels: dict[str, np.ndarray], texts: dict[str, np.ndarray], label_names: list[str]
) -> dict:
    """Return for each split with rows `rows`, `LabelForm.statistics`, `repeated` (rows with the text of an
    earlier row of the split), `conflicting` (texts with more than one label) and `also_in` (for each earlier
    split, the rows whose text is in it too). `texts` are the numbers of the rows' texts."""
    # `unique_texts` would count the same, but for 10,000,000 rows it would take 50 MB more
    num_texts = 1 + max(int(of_split.max(initial=0)) for of_split in texts.values())
    statistics, known = {}, {}
    for name, of_split in labels.items():
        if not len(of_split):
            continue
        text_of_row, row_of_text = texts[name], np.empty(num_texts, np.int32)
        row_of_text[text_of_row] = np.arange(len(of_split), dtype=np.int32)
        sizes = np.bincount(text_of_row, minlength=num_texts)
        repeated = np.flatnonzero(sizes[text_of_row] > 1)
        is_other = of_split[repeated] != of_split[row_of_text[text_of_row[repeated]]]
        is_other = is_other.any(axis=tuple(range(1, of_split.ndim)))
        statistics[name] = {
            "rows": len(of_split),
            **form.statistics(of_split, label_names),
            "repeated": len(of_split) - int(np.count_nonzero(sizes)),
            "conflicting": len(np.unique(text_of_row[repeated[is_other]])),
            "also_in": {other: int(sizes[known[other]].sum()) for other in known},
        }
        known[name] = sizes > 0
    return statistics


def near_copies(train: list[str], texts: list[str]) -> np.ndarray:
    """Return for each of `texts` the position in `train` of a text that is nearly or exactly the same, -1
    where there is none, (num_texts,) int64. Only their beginnings are compared; four of five characters are
    the same, in the same order."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.utils import gen_batches

    train, texts = ([text[:MAX_TEXT] for text in of_split] for of_split in (train, texts))
    vectorizer = HashingVectorizer(
        analyzer="char", ngram_range=(2, 3), alternate_sign=False, norm=None, dtype=np.float32
    )
    known, new = vectorizer.transform(train), vectorizer.transform(texts)
    weights, counts = TfidfTransformer().fit(known), np.bincount(known.indices, minlength=known.shape[1])
    weights.idf_[counts > max(COMMON_ROWS, COMMON_SHARE * len(train))] = 0
    known, new = weights.transform(known), weights.transform(new)
    known.eliminate_zeros()
    copies, transposed = np.full(len(texts), -1), known.T.tocsr()
    for batch in gen_batches(len(texts), BATCH_ROWS):
        cosines = new[batch] @ transposed
        nearest = np.asarray(cosines.argmax(axis=1)).ravel()
        for at in np.flatnonzero(cosines.max(axis=1).toarray().ravel() >= CANDIDATE):
            one, other = train[nearest[at]], texts[batch.start + at]
            matcher = SequenceMatcher(None, one, other, autojunk=False)
            # The first two are quick, and never lower
            ratios = matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio
            if one == other or all(ratio() >= NEAR for ratio in ratios):
                copies[batch.start + at] = nearest[at]
    return copies
