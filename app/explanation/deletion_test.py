"""The test of an explanation: what it marks is deleted, and the answer must change more than by chance."""

import numpy as np

from .explained_model import ExplainedModel
from .tokenised_text import TokenisedText

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)  # shares of the units that are deleted
DRAWS = 50  # random orders of deletion
MIN_UNITS = 5  # with fewer, random deletion is the same deletion too often
# A p-value up to this passes. A smaller limit would fail texts in which a single unit decides: of as many
# random orders as there are units, about one begins with that unit too.
MAX_P_VALUE = 0.1
ROUNDING = 1e-9  # a difference of numbers that are the same


def deletion_test(
    model: ExplainedModel, text: TokenisedText, values: np.ndarray, label: int, draws: int
) -> float | None:
    """Return the p-value of `values`, (num_units,), or None for a text too short to be tested.

    Our order of deletion takes the units with the highest values first. The p-value is the share of orders,
    of ours and `draws` random ones, that lower the log-odds at least as much as ours, on average over
    `SHARES`.
    """
    num_units = len(text.units)
    if num_units < MIN_UNITS:
        return None
    counts = np.ceil(np.array(SHARES) * num_units - ROUNDING).astype(int)
    counts = np.unique([1, *counts])
    generator = np.random.default_rng(0)
    orders = [np.argsort(-values, kind="stable")]
    for _ in range(draws):
        orders.append(generator.permutation(num_units))
    shorter_rows = []
    shorter_texts = []
    for order in orders:
        for count in counts:
            shorter_rows.append(without_units(text, order[:count]))
            shorter_texts.append(text_without_units(text, order[:count]))
    added = None
    if model.second_reader is not None:
        added = model.second_reader.added(shorter_texts)
    log_odds = model.log_odds_of_rows(shorter_rows, label, added)
    mean_log_odds = log_odds.reshape(len(orders), len(counts)).mean(axis=1)
    is_as_low = mean_log_odds[1:] <= mean_log_odds[0] + ROUNDING
    return float((1 + is_as_low.sum()) / (1 + draws))


def text_without_units(text: TokenisedText, units: np.ndarray) -> str:
    """Return the characters of the first text without those of `units`, indices."""
    characters = list(text.texts[0])
    for index in units:
        unit = text.units[index]
        if unit.part == 0:
            characters[unit.start : unit.end] = [""] * (unit.end - unit.start)
    return "".join(characters)


def without_units(text: TokenisedText, units: np.ndarray) -> np.ndarray:
    """Return the tokens of a text, (2, num_tokens), without those of `units`, indices. Special tokens
    stay."""
    positions: list[int] = []
    for unit in units:
        positions += text.units[unit].tokens
    return np.delete(text.tokens, positions, axis=1)
