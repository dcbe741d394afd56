"""Two models on the same rows: which is better, and how sure is that?"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from .logits_file import SplitLogits
from .measures.intervals import Interval


@dataclass(frozen=True)
class Comparison:
    """B against A on the same rows. `won` and `lost` are positions of rows, increasing: B is right and A
    wrong, and the reverse.

    `differences` are those of the figures, B - A, with their 95 % paired bootstrap intervals; `p_value` is of
    McNemar's exact test.
    """

    one: Any
    other: Any
    won: np.ndarray
    lost: np.ndarray
    differences: dict[str, tuple[float, Interval]]

    @property
    def p_value(self) -> float:
        """How probable such a difference of won and lost is where both are equally good; two-sided."""
        return mcnemar(len(self.won), len(self.lost))


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: won and lost rows as tosses of a fair coin."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(won, lost), won + lost, 0.5))) if won + lost else 1.0


def check_same_rows(one: SplitLogits, other: SplitLogits) -> None:
    """Raise InputError unless two runs were evaluated on the same texts and labels, in the same order."""
    remedy = "compare runs with the same data, split settings and data.split_seed"
    if len(one) != len(other):
        raise InputError(
            f"the runs must have the same test rows, found {len(one):,} and {len(other):,} rows; {remedy}"
        )
    for name, what in (("hashes", "texts"), ("labels", "labels")):
        first, second = (np.asarray(getattr(split, name)).reshape(len(split), -1) for split in (one, other))
        different = int((first != second).any(axis=1).sum())
        if different:
            raise InputError(
                f"the runs must have the same test rows, found other {what} in {different:,} of "
                f"{len(one):,}; {remedy}"
            )


def won_and_lost(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of rows right only in `other`, and only in `one`, both (num_rows,) bool."""
    return np.flatnonzero(other & ~one), np.flatnonzero(one & ~other)
