"""Which of many rows without a label to have labelled next; the names are those of the library small-text,
but highest_confidence."""

import numpy as np


def choose_rows(
    strategy: str,
    count: int,
    probabilities: np.ndarray,
    confidence: np.ndarray,
    vectors: np.ndarray,
    labelled: np.ndarray,
    seed: int = 0,
) -> np.ndarray:
    """Return the ids of `count` different rows of a pool, the most useful first where the strategy has an
    order.

    `probabilities` (num_rows, num_labels) and `confidence` (num_rows,) are the model's, `vectors`
    (num_rows, size) those of the rows, `labelled` (num_labelled, size) those of the rows that have labels.
    """
    random = np.random.default_rng(seed)
    if strategy == "random":
        return random.permutation(len(vectors))[:count]
    if strategy == "embedding_kmeans":
        return _centres(vectors, count, seed)
    if strategy == "greedy_coreset":
        return _far_away(vectors, labelled, count)
    if strategy == "highest_confidence":
        return _surest_of_each(probabilities.argmax(axis=1), confidence)[:count]
    if strategy == "least_confidence":
        certainty = confidence
    elif strategy == "breaking_ties":
        first_two = np.sort(probabilities, axis=1)[:, -2:]
        certainty = first_two[:, 1] - first_two[:, 0]
    else:
        certainty = (probabilities * np.log(np.maximum(probabilities, 1e-12))).sum(axis=1)
    return np.argsort(certainty, kind="stable")[:count]


def _centres(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the row next to each centre of k-means."""
    from sklearn.cluster import KMeans

    distances = KMeans(count, n_init=1, random_state=seed).fit(vectors).transform(vectors)
    chosen: dict[int, None] = {}
    for column in distances.T:
        # Two centres may have the same nearest row
        chosen[next(int(row) for row in column.argsort() if int(row) not in chosen)] = None
    return np.array([*chosen], dtype=np.int64)


def _surest_of_each(guesses: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Return all rows, the surest first, those of each guess in turn: of the surest rows of all guesses,
    nearly all can have one label."""
    place = np.empty(len(guesses), np.int64)
    for guess in np.unique(guesses):
        rows = np.flatnonzero(guesses == guess)
        place[rows[np.argsort(-confidence[rows], kind="stable")]] = np.arange(len(rows))
    return np.lexsort((-confidence, place))


def _far_away(vectors: np.ndarray, labelled: np.ndarray, count: int) -> np.ndarray:
    """Return rows of which each is the one farthest from all labelled and chosen ones."""
    # Of vectors of length 1: the nearest is the one with the largest cosine
    nearest = (vectors @ labelled.T).max(axis=1) if len(labelled) else np.full(len(vectors), -1.0)
    chosen: list[int] = []
    for _ in range(count):
        row = int(nearest.argmin())
        chosen.append(row)
        nearest = np.maximum(nearest, vectors @ vectors[row])
        nearest[row] = np.inf
    return np.array(chosen)
