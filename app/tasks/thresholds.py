"""The probability from which a row has a label: the threshold with the best F1 on the rows of dev."""

import numpy as np

RARE_F1 = "rare_f1"  # the train.best_metric that also chooses a threshold for the rarer of two classes
DEFAULT_THRESHOLD = 0.5  # of the probability of a label
CLOSE = 1e-3  # another runtime or precision may swap logits that are nearer than this


def best_threshold(has_label: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the threshold with the best F1 of one label; both arrays are (num_rows,).

    It is halfway between two neighbouring probabilities that differ, so that small differences of another
    batch or precision change no decision. Of equally good thresholds, those between logits that differ by
    more than `CLOSE` come first, then the nearest to 0.5. A label that no row has gets 0.5.
    """
    num_positive = int(has_label.sum(dtype=np.int64))
    if num_positive == 0:
        return DEFAULT_THRESHOLD
    order = np.argsort(-probabilities, kind="stable")
    falling = np.asarray(probabilities, np.float64)[order]
    below = np.append(falling[1:], 0.0)
    # The F1 where the first 1, 2, ... rows of this order get the label
    num_right = np.cumsum(has_label[order], dtype=np.int64)
    f1 = 2 * num_right / (np.arange(1, len(order) + 1) + num_positive)
    # Rows with the same probability are decided together
    f1[falling == below] = -1
    is_best = f1 == f1.max()
    # CLOSE is a difference of logits; this is the same difference of probabilities
    is_wide = falling - below > CLOSE * falling * (1 - falling)
    if (is_best & is_wide).any():
        is_best &= is_wide
    halfway = (falling + below) / 2
    # Halfway between adjacent floating-point numbers, rounding may give the lower one
    halfway = np.where(halfway > below, halfway, falling)
    candidates = halfway[is_best]
    nearest = np.abs(candidates - DEFAULT_THRESHOLD).argmin()
    return float(candidates[nearest])


def choose_thresholds(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the `best_threshold` of each label, (num_labels,), for arrays (num_rows, num_labels)."""
    num_labels = labels.shape[1]
    thresholds = np.empty(num_labels)
    for label in range(num_labels):
        thresholds[label] = best_threshold(labels[:, label], probabilities[:, label])
    return thresholds
