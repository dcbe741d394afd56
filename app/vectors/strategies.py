"""Which of many rows to have labelled next; all names but highest_confidence are those of small-text."""

import numpy as np


def choose_rows(
    strategy: str,
    count: int,
    probabilities: np.ndarray,
    confidence: np.ndarray,
    vectors: np.ndarray,
    seed: int = 0,
) -> np.ndarray:
    """Return the ids of `count` different rows of a pool, the most useful first where the strategy has an
    order. `probabilities` (num_rows, num_labels) and `confidence` (num_rows,) are the model's, `vectors`
    (num_rows, size) those of the rows, for embedding_kmeans only."""
    if strategy == "random":
        return np.random.default_rng(seed).permutation(len(confidence))[:count]
    if strategy == "embedding_kmeans":
        from sklearn.cluster import KMeans

        chosen: dict[int, None] = {}
        for column in KMeans(count, n_init=1, random_state=seed).fit(vectors).transform(vectors).T:
            # The row next to this centre; two centres may have the same one
            chosen[next(int(row) for row in column.argsort() if int(row) not in chosen)] = None
        return np.array([*chosen], dtype=np.int64)
    if strategy == "least_confidence":
        return np.argsort(confidence, kind="stable")[:count]
    if strategy == "breaking_ties":
        first_two = np.sort(probabilities, axis=1)[:, -2:]
        return np.argsort(first_two[:, 1] - first_two[:, 0], kind="stable")[:count]
    # The surest rows of each guess in turn: of the surest of all, nearly all can have one label
    guesses, place = probabilities.argmax(axis=1), np.empty(len(confidence), np.int64)
    for guess in np.unique(guesses):
        rows = np.flatnonzero(guesses == guess)
        place[rows[np.argsort(-confidence[rows], kind="stable")]] = np.arange(len(rows))
    return np.lexsort((-confidence, place))[:count]
