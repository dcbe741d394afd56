"""How much a second reader counts: the fit, and whether it is used at all."""

from functools import partial

import numpy as np
import pytest

from app.report.blend import MACRO_BALANCE, choose_blend, fit_blend
from app.tasks.probabilities import log_softmax

SHARES = np.array([0.7, 0.2, 0.1])


def rows_of_two_readers(num_rows: int, strength: float, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return labels, the logits of an encoder, those of n-grams that know the label with a `strength`, and
    hashes."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(3, num_rows, p=SHARES)
    truth = np.eye(3)[labels]
    encoder = 2 * truth + generator.normal(size=(num_rows, 3))
    ngrams = strength * truth + generator.normal(size=(num_rows, 3))
    return labels, encoder, ngrams, generator.integers(0, 1 << 63, num_rows)


def accuracy(labels: np.ndarray, logits: np.ndarray) -> float:
    return float((logits.argmax(axis=1) == labels).mean())


def negative_loss(labels: np.ndarray, logits: np.ndarray) -> float:
    return float(log_softmax(logits)[np.arange(len(labels)), labels].mean())


def test_the_weights_are_those_of_bayes():
    """Both are normal with the same spread, so their best weights are 2 and 1, and the shift is the logarithm
    of the shares, which the balance takes away again in part."""
    labels, encoder, ngrams, _hashes = rows_of_two_readers(60_000, strength=1.0)
    blend = fit_blend(labels, encoder, ngrams, SHARES, balance=1.0)
    assert blend.scale == pytest.approx(2, rel=0.05)
    assert blend.weight == pytest.approx(0.5, rel=0.1)
    assert np.abs(blend.shift - blend.shift.mean()).max() < 0.05
    unbalanced = fit_blend(labels, encoder, ngrams, SHARES, balance=0.0)
    assert not unbalanced.shift.any()
    halfway = fit_blend(labels, encoder, ngrams, SHARES, balance=0.5)
    expected = 0.5 * np.log(SHARES)
    assert np.allclose(2 * halfway.shift, expected - expected.mean(), atol=0.1)


@pytest.mark.parametrize("metric", [accuracy, negative_loss])
def test_a_second_reader_is_used_where_it_helps_on_new_rows(metric):
    choose = partial(choose_blend, shares=SHARES, balance=0.0, metric=metric)
    blend = choose(*rows_of_two_readers(600, strength=1.5))
    assert blend.weight > 0.3
    assert choose(*rows_of_two_readers(99, strength=1.5)) is None
    # Noise beside the encoder helps nobody, on most draws
    used = [choose(*rows_of_two_readers(300, strength=0.0, seed=seed)) is not None for seed in range(12)]
    assert sum(used) <= 5


def test_equal_texts_are_in_one_part():
    """Copies with labels of chance look better where some of them were fitted on."""
    labels, encoder, ngrams, hashes = rows_of_two_readers(400, strength=1.0)
    twice = [np.concatenate([values, values]) for values in (labels, encoder, ngrams, hashes)]
    first = choose_blend(labels, encoder, ngrams, hashes, SHARES, MACRO_BALANCE, accuracy)
    copies = choose_blend(*twice, SHARES, MACRO_BALANCE, accuracy)
    assert copies.weight == pytest.approx(first.weight, rel=1e-3)
