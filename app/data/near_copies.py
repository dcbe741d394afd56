"""Texts of dev and test that are nearly a training text: on them a model looks better than it is. TF-IDF of
pairs and triples of characters finds candidates; difflib decides."""

from difflib import SequenceMatcher

import numpy as np

MAX_TEXT = 512  # characters of a text that are compared
MAX_BYTES = 15_000_000  # of the texts of train and one other split; takes 20 s and 300 MB at most
CANDIDATE, NEAR = 0.5, 0.8  # cosine of a candidate, and share of equal characters of a near copy
# A pair of characters that more training texts have says little: at least so many, or this share
COMMON_ROWS, COMMON_SHARE = 1000, 0.01
BATCH_ROWS = 128  # compared with all training texts at once


def are_few(*sizes: np.ndarray) -> bool:
    """Return whether texts of so many bytes, (num_rows,) of each split, are few enough to be compared."""
    return sum(int(np.minimum(of_split, 3 * MAX_TEXT).sum()) for of_split in sizes) <= MAX_BYTES


def near_copies(train: list[str], texts: list[str]) -> np.ndarray:
    """Return for each of `texts` the position in `train` of a text that is nearly or exactly the same, -1
    where there is none, (num_texts,) int64. Only their beginnings are compared."""
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
            if is_near_copy(train[nearest[at]], texts[batch.start + at]):
                copies[batch.start + at] = nearest[at]
    return copies


def is_near_copy(one: str, other: str) -> bool:
    """Return whether two texts have at least four of five characters in common, in the same order."""
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.real_quick_ratio() >= NEAR and matcher.quick_ratio() >= NEAR and matcher.ratio() >= NEAR
