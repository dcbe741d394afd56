"""The folds of a cross-validation: which rows of the train file are tested in which fold."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..errors import InputError
from .splits import split_rows

FOLDS_FILE = "folds.npy"
# All rows: the vocabulary of random weights is the same in every fold
ROWS_FILE = "train_rows.npy"
# rows; scikit-learn's StratifiedGroupKFold needs minutes for a million
GROUPED_UP_TO = 50_000


def build_folds(
    folder: Path,
    deal: Callable[..., np.ndarray],
    labels: np.ndarray,
    hashes: np.ndarray,
    folds: int,
    seed: int,
) -> None:
    """Write the fold of each row, (num_rows,), into `folder`; `deal` is `LabelForm.folds` of the labels."""
    np.save(folder / FOLDS_FILE, deal(labels, np.asarray(hashes), folds, seed).astype(np.int32))
    np.save(folder / ROWS_FILE, np.arange(len(labels)))


def folds_of_classes(labels: np.ndarray, hashes: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row, (num_rows,) from 0, of class ids; of many rows, each text is dealt as the
    class of its first row. Raises InputError for more folds than texts, or rows of any class."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    options = {"shuffle": True, "random_state": seed % (1 << 32)}
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    is_small = len(labels) <= GROUPED_UP_TO
    targets = labels if is_small else labels[first]
    if int(np.bincount(targets).max()) < folds or len(first) < folds:
        raise InputError(
            "--folds must be at most the number of different texts and of rows of the largest class; "
            f"found {folds} folds for {len(first):,} texts and {int(np.bincount(targets).max()):,} rows of "
            "that class"
        )
    fold = np.empty(len(targets), np.int64)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is in some folds only
        warnings.simplefilter("ignore")
        splitter = StratifiedGroupKFold(folds, **options) if is_small else StratifiedKFold(folds, **options)
        for number, (_, tested) in enumerate(splitter.split(targets, targets, group if is_small else None)):
            fold[tested] = number
    return fold if is_small else fold[group]


def split_of_fold(
    in_fold: np.ndarray,
    labels: np.ndarray,
    hashes: np.ndarray,
    split: str,
    dev_size: float,
    seed: int,
    names: list[str],
    stratify: Callable[..., dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Return the row ids of train, dev and test, the rows that are `in_fold`, (num_rows,) bool. Dev is taken
    from the others by `split_rows`, so the checkpoint is chosen without the fold."""
    rest = np.flatnonzero(~in_fold)
    rows = split_rows(labels[rest], hashes[rest], split, dev_size, 0, seed, names, stratify)
    return {"train": rest[rows["train"]], "dev": rest[rows["dev"]], "test": np.flatnonzero(in_fold)}
