"""Rows of one table -> the row ids of train, dev and test, or of folds; what the splits have; and which texts
of dev and test are nearly a training text: on them a model looks better than it is."""

import random
from array import array
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import numpy as np

from ..errors import InputError, shorten
from ..words import _

SPLITS = ("train", "dev", "test")
RARE_SHARE = 0.1  # share of all texts that may be of classes with fewer texts than splits
MAX_TEXT = 512  # characters of a text that are compared
MAX_BYTES = 15_000_000  # of the texts of train and one other split; takes 20 s and 300 MB at most
CANDIDATE, NEAR = 0.5, 0.8  # cosine of a candidate, and share of equal characters of a near copy
# A pair of characters that more training texts have says little: at least so many, or this share
COMMON_ROWS, COMMON_SHARE = 1000, 0.01
BATCH_ROWS = 128  # compared with all training texts at once
# It returns the different hashes, the first row of each, the place of each row in these, and their counts
unique_texts = partial(np.unique, return_index=True, return_inverse=True, return_counts=True)


def split_rows(
    form: Any, labels: np.ndarray, hashes: np.ndarray, config: Any, sizes: list[float], names: list[str]
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev and test of one file, (num_rows,) int64 each, as `data.split` says.

    `labels` (num_rows, ...) are of the `form`, with `names` for messages, `hashes` (num_rows,) of the texts,
    and `sizes` are dev_size and test_size. A stratified split keeps proportions of labels, and all rows of a
    text are in one split. Raises InputError where no rows are left to train on, and for many classes with
    fewer texts than splits: another column was probably taken for the label.
    """
    num_rows, (dev_size, test_size) = len(labels), sizes
    # A fraction is at least one row
    dev, test = (int(n) if n >= 1 or n == 0 else max(1, round(num_rows * n)) for n in sizes)
    if dev + test >= num_rows:
        said = _(
            "the train file must keep rows to train on: it has {rows:,}, and dev_size {dev:g} and "
            "test_size {test:g} take {taken:,}; make them smaller"
        )
        raise InputError(said.format(rows=num_rows, dev=dev_size, test=test_size, taken=dev + test))
    if not dev + test:
        return {"train": np.arange(num_rows), "dev": np.arange(0), "test": np.arange(0)}
    if config.split == "random":
        rows = array("q", range(num_rows))
        random.Random(config.split_seed).shuffle(rows)
        parts = np.split(np.array(rows, np.int64), [num_rows - dev - test, num_rows - test])
        return dict(zip(SPLITS, parts, strict=True))
    unique = unique_texts(hashes)
    if form.has_several:
        # Texts are dealt only to splits that have rows
        numbers = np.flatnonzero([num_rows - dev - test, dev, test])
        shares = np.array([num_rows - dev - test, dev, test])[numbers] / num_rows
        part = numbers[deal_label_lists(labels, unique, shares, config.split_seed)]
        return {name: np.flatnonzero(part == number) for number, name in enumerate(SPLITS)}
    shares = {part: size / num_rows for part, size in ((2, test), (1, dev)) if size}
    groups = form.groups(labels)
    texts = np.bincount(groups[unique[1]])
    rare = np.flatnonzero((texts > 0) & (texts <= len(shares)))
    num_rare, num_texts = texts[rare].sum(), texts.sum()
    if num_rare > max(len(shares), RARE_SHARE * num_texts) or num_rare == num_texts:
        # Texts without labels, and ranges of numbers, have no names
        name = names[rare[0]] if len(names) > 1 else f"group {rare[0] + 1}"
        raise InputError(
            f"a stratified split needs {len(shares) + 1} different texts of each class, one for each split; "
            f"{len(rare):,} of {len(texts):,} classes have fewer, the first is '{shorten(name)}' with "
            f"{texts[rare[0]]}; add rows, set --data.split random, give separate files, or set "
            "--data.label_column if this is no class"
        )
    part = deal_texts(groups, unique, shares, config.split_seed)
    return {name: np.flatnonzero(part == number) for number, name in enumerate(SPLITS)}


def deal_texts(groups: np.ndarray, unique: tuple, shares: dict[int, float], seed: int) -> np.ndarray:
    """Return the part of each row, (num_rows,). Each part of `shares` has its share of the rows of each group
    (num_rows,), and a text of it; part 0 has the others. Where a group has fewer texts than there are parts,
    part 0 has the first one, the first of `shares` the second. All rows of a text, of those that are
    `unique`, are in one part."""
    _hashes, first, text_of_row, sizes = unique
    of_text = groups[first]
    of_group = np.split(np.argsort(of_text, kind="stable"), np.cumsum(np.bincount(of_text))[:-1])
    parts, generator = np.zeros(len(first), np.int16), np.random.default_rng(seed)
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
    return parts[text_of_row]


def deal_label_lists(labels: np.ndarray, unique: tuple, shares: np.ndarray, seed: int) -> np.ndarray:
    """Return the part of each row, (num_rows,) from 0. `labels` (num_rows, num_labels) are 0 and 1; `shares`
    (num_parts,) says which share of the rows each part gets.

    Texts are dealt out one by one, those of rare label sets and rare labels first. A text goes to the part
    that lacks most rows of its set; a text of a set with too few texts for all parts goes to the part that
    lacks most rows of its rarest label (iterative stratification, Sechidis et al. 2011).
    """
    _hashes, first, text_of_row, sizes = unique
    of_text = labels[first].astype(np.int64)
    sets = np.unique(np.packbits(labels[first], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    num_sets = int(sets.max()) + 1
    set_need = np.bincount(sets, sizes, num_sets)[:, None] * shares
    label_need = (of_text * sizes[:, None]).sum(axis=0)[:, None] * shares
    need = len(labels) * shares
    label_rows = of_text.sum(axis=0)
    rarest = np.where(of_text, label_rows, np.iinfo(np.int64).max).argmin(axis=1)
    rarest[~of_text.any(axis=1)] = -1
    is_rare = np.bincount(sets, minlength=num_sets)[sets] <= len(shares)
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
        label_need[of_text[text].astype(bool), part] -= sizes[text]
        need[part] -= sizes[text]
    return chosen[text_of_row]


def fold_of_rows(form: Any, labels: np.ndarray, hashes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, (num_rows,) from 0. Labels of the `form` keep their proportions; all rows
    of a text are in one fold. Raises InputError for too many folds."""
    groups, unique = form.groups(labels), unique_texts(hashes)
    if (largest := np.bincount(groups[unique[1]]).max()) < folds:
        raise InputError(
            "--folds must be at most the number of different texts of the largest class; found "
            f"{folds} folds for {len(unique[1]):,} texts and {largest:,} of that class"
        )
    if form.has_several:
        return deal_label_lists(labels, unique, np.full(folds, 1 / folds), seed)
    return deal_texts(groups, unique, dict.fromkeys(range(1, folds), 1 / folds), seed)


def part_of_rows(rows: np.ndarray, groups: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return a `share` of the row ids `rows` (num_rows,), sorted: the same share of each of the `groups`
    (num_rows,), at least one row. A larger share has all rows of a smaller one."""
    order = np.random.default_rng(seed).permutation(len(rows))
    kept = []
    for one in np.unique(groups):
        of_group = order[groups[order] == one]
        kept.append(of_group[: max(1, round(share * len(of_group)))])
    return np.sort(rows[np.concatenate(kept)])


def dataset_statistics(
    form: Any, labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], label_names: list[str]
) -> dict:
    """Return for each split with rows `rows`, `LabelForm.statistics`, `repeated` (rows with the text of an
    earlier row of the split), `conflicting` (texts with more than one label) and `also_in` (for each earlier
    split, the rows whose text is in it too)."""
    statistics, known = {}, {}
    for name, of_split in labels.items():
        if not len(of_split):
            continue
        texts, first, text_of_row, sizes = unique_texts(hashes[name])
        repeated = np.flatnonzero(sizes[text_of_row] > 1)
        of_first = of_split[first[text_of_row[repeated]]]
        is_other = (of_split[repeated] != of_first).any(axis=tuple(range(1, of_split.ndim)))
        statistics[name] = {
            "rows": len(of_split),
            **form.statistics(of_split, label_names),
            "repeated": len(of_split) - len(texts),
            "conflicting": len(np.unique(text_of_row[repeated[is_other]])),
            "also_in": {},
        }
        for other, others in known.items():
            at = np.minimum(np.searchsorted(others, texts), len(others) - 1)
            statistics[name]["also_in"][other] = int(sizes[others[at] == texts].sum())
        known[name] = texts
    return statistics


def are_few(*sizes: np.ndarray) -> bool:
    """Return whether texts of so many bytes, (num_rows,) of each split, are few enough to be compared."""
    return sum(int(np.minimum(of_split, 3 * MAX_TEXT).sum()) for of_split in sizes) <= MAX_BYTES


def near_copies(train: list[str], texts: list[str]) -> np.ndarray:
    """Return for each of `texts` the position in `train` of a text that is nearly or exactly the same, -1
    where there is none, (num_texts,) int64. Only their beginnings are compared; four of five characters are
    the same, in the same order."""
    from scipy.sparse import diags
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.preprocessing import normalize
    from sklearn.utils import gen_batches

    train, texts = ([text[:MAX_TEXT] for text in of_split] for of_split in (train, texts))
    vectorizer = HashingVectorizer(
        analyzer="char", ngram_range=(2, 3), alternate_sign=False, norm=None, dtype=np.float32
    )
    known, new = vectorizer.transform(train), vectorizer.transform(texts)
    counts = np.bincount(known.indices, minlength=known.shape[1])
    is_common = counts > max(COMMON_ROWS, COMMON_SHARE * len(train))
    weights = np.where(is_common, 0, np.log((1 + len(train)) / (1 + counts)) + 1).astype(np.float32)
    known, new = (normalize(matrix @ diags(weights)) for matrix in (known, new))
    known.eliminate_zeros()
    copies, transposed = np.full(len(texts), -1), known.T.tocsr()
    for batch in gen_batches(len(texts), BATCH_ROWS):
        cosines = new[batch] @ transposed
        nearest = np.asarray(cosines.argmax(axis=1)).ravel()
        for at in np.flatnonzero(cosines.max(axis=1).toarray().ravel() >= CANDIDATE):
            pair = train[nearest[at]], texts[batch.start + at]
            matcher = SequenceMatcher(None, *pair, autojunk=False)
            # The first two are quick, and never lower
            ratios = matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio
            if all(ratio() >= NEAR for ratio in ratios):
                copies[batch.start + at] = nearest[at]
    return copies
