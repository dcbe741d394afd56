"""How texts are dealt to train, dev and test, or to folds, so that each has its proportion of every label.

All rows of a text go to the same part: a model must not be tested on a text it was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DECIMALS = 9  # to which needs of parts are compared: they are sums of fractions


@dataclass(frozen=True)
class UniqueTexts:
    """The different texts of some rows. `first_rows` (num_texts,) int32: the first row of each text;
    `text_of_row` (num_rows,) int32: the text of each row, from 0; `sizes` (num_texts,): how many rows each
    text has."""

    first_rows: np.ndarray
    text_of_row: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.first_rows)


def unique_texts(texts: np.ndarray) -> UniqueTexts:
    """Return the different texts of rows. `texts` (num_rows,) are numbers of texts, which may have gaps; they
    are not sorted, which would take long."""
    num_rows = len(texts)
    sizes = np.bincount(texts)
    is_there = sizes > 0
    first_rows = np.empty(len(sizes), np.int32)
    # Rows are assigned from the last to the first, so the first row of a text remains
    first_rows[texts[::-1]] = np.arange(num_rows - 1, -1, -1, dtype=np.int32)
    text_of_row = (np.cumsum(is_there) - 1).astype(np.int32)[texts]
    return UniqueTexts(first_rows[is_there], text_of_row, sizes[is_there])


def deal_texts(
    groups: np.ndarray, unique: UniqueTexts, proportions: dict[int, float], seed: int
) -> np.ndarray:
    """Return the part of each row, (num_rows,), so that each part has its proportion of every group.

    `groups` (num_rows,) are the groups of rows, and `unique` their texts. Each part that is a key of
    `proportions` gets this proportion of the rows of each group, and at least one text of it; part 0 gets the
    other rows. Where a group has fewer texts than there are parts, its first text goes to part 0, the second
    to the first key of `proportions`, and so on.
    """
    group_of_text = groups[unique.first_rows]
    texts_by_group = np.argsort(group_of_text, kind="stable")
    rows_of_group = np.bincount(groups)
    # A group has no text here if the first rows of its texts are of other groups
    texts_of_group = np.bincount(group_of_text, minlength=len(rows_of_group))
    texts_of_groups = np.split(texts_by_group, np.cumsum(texts_of_group)[:-1])
    generator = np.random.default_rng(seed)
    part_of_text = np.zeros(len(unique), np.int16)
    # How many rows too few a part has from the groups so far; negative: too many. Small groups come first: to
    # be in each part, a group may give it more rows than its proportion, and large groups then give it less.
    owed = dict.fromkeys(proportions, 0.0)
    for group in np.argsort(rows_of_group, kind="stable"):
        texts = generator.permutation(texts_of_groups[group])
        num_rows = int(unique.sizes[texts].sum())
        largest_size = max(1.0, min(proportions.values()) * num_rows)
        texts = _with_large_last(texts, unique.sizes[texts], largest_size)
        num_parts_left = len(proportions)
        for part, proportion in proportions.items():
            target = proportion * num_rows + owed[part]
            num_fitting = int(np.searchsorted(np.cumsum(unique.sizes[texts]), target + 0.5, side="right"))
            # A text is left for each part that follows, and one for part 0 in any case
            num_free = max(min(1, len(texts) - 1), len(texts) - num_parts_left)
            num_dealt = max(0, min(max(1, num_fitting), num_free))
            dealt = texts[:num_dealt]
            texts = texts[num_dealt:]
            part_of_text[dealt] = part
            owed[part] = target - int(unique.sizes[dealt].sum())
            num_parts_left -= 1
    return part_of_text[unique.text_of_row]


def _with_large_last(texts: np.ndarray, sizes: np.ndarray, largest_size: float) -> np.ndarray:
    """Return the texts with those that have too many rows for a part at the end, by their size."""
    return texts[np.argsort(np.where(sizes > largest_size, sizes, 0), kind="stable")]


def deal_label_lists(
    labels: np.ndarray, unique: UniqueTexts, proportions: np.ndarray, seed: int
) -> np.ndarray:
    """Return the part of each row, (num_rows,) from 0, of rows that may have several labels.

    `labels` (num_rows, num_labels) are 0 and 1, `unique` the texts of the rows; `proportions` (num_parts,)
    says which proportion of the rows each part gets. Texts are dealt one by one, those of rare label sets and
    rare labels first. A text goes to the part that lacks most rows of its label set; a text whose set has too
    few texts for all parts goes to the part that lacks most rows of its rarest label (iterative
    stratification, Sechidis et al. 2011).
    """
    num_parts = len(proportions)
    sizes = unique.sizes
    has_label = labels[unique.first_rows].astype(bool)
    packed_sets = np.packbits(has_label, axis=1)
    set_of_text = np.unique(packed_sets, axis=0, return_inverse=True)[1].reshape(-1)
    is_rare = np.bincount(set_of_text)[set_of_text] <= num_parts

    # The rarest label of each text, -1 for a text without labels
    texts_of_label = has_label.sum(axis=0)
    num_texts = np.where(has_label, texts_of_label, np.iinfo(np.int64).max)
    rarest = num_texts.argmin(axis=1)
    rarest[~has_label.any(axis=1)] = -1

    # Rare sets come first: a part that gets too many rows of a label from them gets fewer from the others
    frequency = np.where(rarest >= 0, texts_of_label[rarest], len(labels))
    shuffled = np.random.default_rng(seed).permutation(len(unique))
    order = np.lexsort((set_of_text[shuffled], frequency[shuffled], ~is_rare[shuffled]))

    # How many rows each part lacks: of each label set, of each label, and of all
    rows_of_set = np.bincount(set_of_text, sizes)
    rows_of_label = (has_label * sizes[:, None]).sum(axis=0)
    lacks_of_set = rows_of_set[:, None] * proportions
    lacks_of_label = rows_of_label[:, None] * proportions
    lacks = len(labels) * proportions

    part_of_text = np.empty(len(unique), dtype=np.int64)
    for text in shuffled[order]:
        by_set = np.zeros(num_parts)
        if not is_rare[text]:
            by_set = lacks_of_set[set_of_text[text]]
        by_label = lacks
        if rarest[text] >= 0:
            by_label = lacks_of_label[rarest[text]]
        # The last key of lexsort counts first
        parts = np.lexsort((-lacks, -np.round(by_label, DECIMALS), -np.round(by_set, DECIMALS)))
        part = int(parts[0])
        part_of_text[text] = part
        lacks_of_set[set_of_text[text], part] -= sizes[text]
        lacks_of_label[has_label[text], part] -= sizes[text]
        lacks[part] -= sizes[text]
    return part_of_text[unique.text_of_row]
