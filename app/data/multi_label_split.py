"""Multi-label rows are dealt to splits or folds: sets and labels keep their proportions."""

import numpy as np

from .splits import parts_of_rows, text_groups


def label_list_ids(labels: np.ndarray) -> np.ndarray:
    """Return a number for each row, (num_rows,) int64, the same for equal labels (num_rows, num_labels)."""
    return np.unique(np.packbits(labels, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def split_multi_label(
    labels: np.ndarray, hashes: np.ndarray, dev: int, test: int, seed: int
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev, test by `deal_multi_label`; the only text of a label is in train."""
    names = [name for name, size in (("train", 1), ("dev", dev), ("test", test)) if size]
    shares = np.array(
        [{"dev": dev, "test": test}.get(name, len(labels) - dev - test) for name in names]
    ) / len(labels)
    part = deal_multi_label(labels, hashes, shares, seed)
    rows = {name: np.flatnonzero(part == number) for number, name in enumerate(names)}
    return {name: rows.get(name, np.empty(0, np.int64)) for name in ("train", "dev", "test")}


def deal_multi_label(labels: np.ndarray, hashes: np.ndarray, shares: np.ndarray, seed: int) -> np.ndarray:
    """Return the part of each row, (num_rows,) from 0; `shares` (num_parts,) of the rows are for each.

    `labels` (num_rows, num_labels) are 0 and 1, `hashes` (num_rows,) hashes of the texts; a text with
    conflicting labels counts as its first row. Texts are dealt out one by one, in random order within sets,
    those of rare sets and of rare labels first. A text goes to the part that lacks most rows of its set; of a
    set with too few texts for all parts, to the one that lacks most rows of its rarest label (iterative
    stratification, Sechidis et al. 2011).
    """
    first, order, sizes = text_groups(hashes)
    of_text, sets = labels[first].astype(np.int64), label_list_ids(labels[first])
    num_sets = int(sets.max()) + 1
    set_need = np.bincount(sets, sizes, num_sets)[:, None] * shares
    label_need = (of_text * sizes[:, None]).sum(axis=0)[:, None] * shares
    need = len(labels) * shares
    label_rows = of_text.sum(axis=0)
    rarest = np.where(
        of_text.any(axis=1), np.where(of_text, label_rows, np.iinfo(np.int64).max).argmin(axis=1), -1
    )
    is_rare = np.bincount(sets, minlength=num_sets)[sets] <= len(shares)
    shuffled = np.random.default_rng(seed).permutation(len(first))
    rank = np.where(rarest >= 0, label_rows[rarest], len(labels))
    # Rare sets first: what they take too much of a label, the frequent sets give less.
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
    return parts_of_rows(chosen, order, sizes)
