"""Classes whose share in a split differs from that in train by more than chance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

FALSE_ALARMS = 0.001  # the chance that two samples of the same rows are told apart, over all classes
MIN_ROWS = 5  # expected of a class in each of the two samples; with fewer, the test below does not hold


@dataclass(frozen=True)
class ShareChange:
    """A class with its share of the rows of train and of another split."""

    label: str
    train_share: float
    share: float


def share_changes(train: Mapping, split: Mapping) -> list[ShareChange]:
    """Return the classes whose shares differ by more than chance, the largest change first: a test of two
    proportions for each class, at the level `FALSE_ALARMS` for all of them together. `train` and `split` are
    statistics of `split_statistics`."""
    num_train = train["rows"]
    num_rows = split["rows"]
    counts = split["classes"]
    changes = []
    if not counts:
        return changes
    limit = NormalDist().inv_cdf(1 - FALSE_ALARMS / (2 * len(counts)))
    for label, count in counts.items():
        train_count = train["classes"].get(label, 0)
        pooled = (count + train_count) / (num_rows + num_train)
        if min(pooled, 1 - pooled) * min(num_rows, num_train) < MIN_ROWS:
            continue
        change = ShareChange(label, train_count / num_train, count / num_rows)
        deviation = math.sqrt(pooled * (1 - pooled) * (1 / num_rows + 1 / num_train))
        if abs(change.share - change.train_share) > limit * deviation:
            changes.append(change)
    return sorted(changes, key=lambda change: -abs(change.share - change.train_share))
