"""Which texts of dev and test are nearly a training text: on them a model looks better than it is."""

from __future__ import annotations

from difflib import SequenceMatcher

import numpy as np

MAX_CHARACTERS = 512  # of a text that are compared
BYTES_PER_CHARACTER = 3  # of Chinese in UTF-8
MAX_BYTES = 15_000_000  # of the texts of train and one other split; takes 20 s and 300 MB at most
CANDIDATE_COSINE = 0.5  # from which on the characters of two texts are compared
NEAR_SHARE = 0.8  # share of equal characters of a near copy
# A pair of characters says little where so many training texts have it, and this share of them
COMMON_ROWS = 1000
COMMON_SHARE = 0.01
BATCH_ROWS = 128  # compared with all training texts at once


def compared_bytes(sizes: np.ndarray) -> int:
    """Return how many bytes of texts are compared. `sizes` (num_texts,) are the bytes of the texts."""
    return int(np.minimum(sizes, BYTES_PER_CHARACTER * MAX_CHARACTERS).sum())


def find_near_copies(train_texts: list[str], texts: list[str]) -> np.ndarray:
    """Return for each of `texts` the position in `train_texts` of a text that is nearly or exactly the same,
    -1 where there is none, (num_texts,) int64. Only the beginnings of texts are compared; in a near copy four
    of five characters are the same, in the same order."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.utils import gen_batches

    train_texts = [text[:MAX_CHARACTERS] for text in train_texts]
    texts = [text[:MAX_CHARACTERS] for text in texts]
    vectorizer = HashingVectorizer(
        analyzer="char", ngram_range=(2, 3), alternate_sign=False, norm=None, dtype=np.float32
    )
    train_counts = vectorizer.transform(train_texts)
    tfidf = TfidfTransformer().fit(train_counts)
    num_texts_with_pair = np.bincount(train_counts.indices, minlength=train_counts.shape[1])
    is_common = num_texts_with_pair > max(COMMON_ROWS, COMMON_SHARE * len(train_texts))
    tfidf.idf_[is_common] = 0
    train_vectors = tfidf.transform(train_counts)
    train_vectors.eliminate_zeros()
    # It has about as many bytes as the texts, and what follows takes the most memory
    del train_counts
    vectors = tfidf.transform(vectorizer.transform(texts))
    train_columns = train_vectors.T.tocsr()

    copies = np.full(len(texts), -1)
    for batch in gen_batches(len(texts), BATCH_ROWS):
        cosines = vectors[batch] @ train_columns
        nearest = np.asarray(cosines.argmax(axis=1)).ravel()
        highest = cosines.max(axis=1).toarray().ravel()
        for position in np.flatnonzero(highest >= CANDIDATE_COSINE):
            number = batch.start + position
            if _is_near_copy(texts[number], train_texts[nearest[position]]):
                copies[number] = nearest[position]
    return copies


def _is_near_copy(text: str, train_text: str) -> bool:
    if text == train_text:
        return True
    matcher = SequenceMatcher(None, train_text, text, autojunk=False)
    # The first two are quick, and never lower than the third
    return (
        matcher.real_quick_ratio() >= NEAR_SHARE
        and matcher.quick_ratio() >= NEAR_SHARE
        and matcher.ratio() >= NEAR_SHARE
    )
