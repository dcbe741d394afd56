"""Do attributions explain anything? Deleting the highest first must hurt more than deleting at random."""

from dataclasses import dataclass

import numpy as np

from .plain_model import PlainModel
from .text_units import TokenisedText

# Of the units that are deleted
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
# With fewer, random deletion is the same deletion too often
MIN_UNITS = 5
# Where a single unit decides, one of as many random orders as there are units begins with it
LEVEL = 0.1


@dataclass(frozen=True)
class Faithfulness:
    """How far log-odds fall when `counts` (num_shares,) units are deleted: `drops` (num_shares,) in the order
    of the attributions, `random_drops` (num_draws, num_shares). Empty below `MIN_UNITS` units."""

    counts: np.ndarray
    drops: np.ndarray
    random_drops: np.ndarray

    @property
    def is_possible(self) -> bool:
        """Whether the text is long enough to be tested."""
        return len(self.counts) > 0

    @property
    def p_value(self) -> float:
        """The share of random orders, ours counted as one, whose mean drop is at least as large."""
        if not self.is_possible:
            return 1.0
        as_good = (self.random_drops.mean(axis=1) >= self.drops.mean() - 1e-9).sum()
        return float((1 + as_good) / (1 + len(self.random_drops)))

    @property
    def holds(self) -> bool:
        """Whether the attributions find what matters to the model better than chance."""
        return self.is_possible and self.p_value <= LEVEL


def delete(text: TokenisedText, deleted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and token types of a text without the units `deleted`; special tokens stay."""
    positions = [position for index in deleted for position in text.units[index].tokens]
    kept = np.setdiff1d(np.arange(len(text.input_ids)), positions)
    return text.input_ids[kept], text.token_types[kept]


def measure_faithfulness(
    model: PlainModel, text: TokenisedText, values: np.ndarray, label: int, draws: int, seed: int
) -> Faithfulness:
    """Return the test of `values`, (num_units,), beside `draws` random orders of the generator of `seed`."""
    num_units = len(text.units)
    if num_units < MIN_UNITS:
        return Faithfulness(np.zeros(0, int), np.zeros(0), np.zeros((draws, 0)))
    counts = np.unique([1, *np.ceil(np.array(SHARES) * num_units - 1e-9).astype(int)])
    generator = np.random.default_rng(seed)
    orders = [np.argsort(-values, kind="stable"), *(generator.permutation(num_units) for _ in range(draws))]
    rows, types = zip(*(delete(text, order[:count]) for order in orders for count in counts), strict=True)
    whole = model.log_odds_of_rows([text.input_ids], [text.token_types], label)[0]
    drops = whole - model.log_odds_of_rows(rows, types, label).reshape(len(orders), len(counts))
    return Faithfulness(counts, drops[0], drops[1:])
