"""Texts of dev and test that are nearly a training text: on them a model looks better than it is. TF-IDF of
pairs and triples of characters finds candidates; difflib decides."""

import sys
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from .cache import build_once, content_key
from .table import Table

# Of a split: its table, and ids, (num_rows,)
Rows = tuple[Table, np.ndarray]
VERSION = 2
MAX_TEXT = 512  # characters of a text that are compared
MAX_BYTES = 15_000_000  # of the texts of train and one other split; takes 20 s and 300 MB at most
CANDIDATE, NEAR = 0.5, 0.8  # cosine of a candidate, and share of equal characters of a near copy
# A pair of characters that more training texts have says little: at least so many, or this share
COMMON_ROWS, COMMON_SHARE = 1000, 0.01
BATCH_ROWS = 128  # compared with all training texts at once
MAX_EXAMPLES = 3  # of the data report


def open_copies(splits: dict[str, Rows], statistics: dict, dataset: Path) -> dict[str, np.ndarray]:
    """Return for each split but train the row of train that each row is a copy of, exactly or nearly, else
    -1, (num_rows,) int64; a split with too many texts is left out. Adds `near_copies` to the `statistics` of
    each: `rows` that are nearly a training text, and `examples` of places. `dataset` is its cached folder."""
    # Without a look at the texts of millions of rows in each start
    sizes = {
        name: 3 * len(rows)
        if 3 * len(rows) > MAX_BYTES
        else int(np.minimum(table.sizes[rows], 3 * MAX_TEXT).sum())
        for name, (table, rows) in splits.items()
    }
    others = [name for name in splits if name != "train" and sizes["train"] + sizes[name] <= MAX_BYTES]
    if not others:
        return {}
    looked = {name: splits[name] for name in ("train", *others)}
    folder = dataset.with_name(f"copies-{content_key(VERSION, dataset.name, list(looked))}")
    # Another process would load scikit-learn again where it is loaded, and here it would stay
    num_bytes = sum(sizes[name] for name in looked) if "sklearn" in sys.modules else None
    build_once(folder, build_copies, looked, num_bytes=num_bytes)
    train, copies = splits["train"][0], {}
    for name in others:
        table, rows = looked[name]
        originals = copies[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
        changed = np.flatnonzero((originals >= 0) & (table.hashes[rows] != train.hashes[originals]))
        examples = [[table.where(rows[at]), train.where(originals[at])] for at in changed[:MAX_EXAMPLES]]
        statistics[name]["near_copies"] = {"rows": len(changed), "examples": examples}
    return copies


def build_copies(folder: Path, splits: dict[str, Rows]) -> None:
    """Write the copies of each split but train into `folder`."""
    texts = {
        name: [text[:MAX_TEXT] for text in table.joined_texts(np.asarray(rows))]
        for name, (table, rows) in splits.items()
    }
    train = np.asarray(splits["train"][1])
    for name in splits.keys() - {"train"}:
        nearest = near_copies(texts["train"], texts[name])
        np.save(folder / f"{name}.npy", np.where(nearest < 0, -1, train[nearest]))


def near_copies(train: list[str], texts: list[str]) -> np.ndarray:
    """Return for each of `texts` the position in `train` of a text that is nearly or exactly the same, -1
    where there is none, (num_texts,) int64."""
    from scipy.sparse import diags
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.preprocessing import normalize
    from sklearn.utils import gen_batches

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
            if is_near_copy(train[nearest[at]], texts[batch.start + at]):
                copies[batch.start + at] = nearest[at]
    return copies


def is_near_copy(one: str, other: str) -> bool:
    """Return whether two texts have at least four of five characters in common, in the same order."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.real_quick_ratio() >= NEAR and matcher.quick_ratio() >= NEAR and matcher.ratio() >= NEAR
