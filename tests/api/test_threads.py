"""Training, loading and printing in several threads: python -m pytest tests/api/test_threads.py"""

import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from chinese_text_classifier import TextClassifier, load
from tests.api.test_text_classifier import TARGETS, TEXTS, tiny
from tests.saved_classifier import random_texts, save_checkpoint

ROUNDS = 10


def at_once(*actions: Callable[[], object]) -> list:
    """Return the results of actions that start at the same moment, each in a separate thread."""
    start, results = threading.Barrier(len(actions)), [None] * len(actions)

    def work(index: int) -> None:
        start.wait()
        results[index] = actions[index]()

    threads = [threading.Thread(target=work, args=[index]) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return results


def probabilities(seed: int) -> np.ndarray:
    return tiny(epochs=1, random_state=seed).fit(TEXTS, TARGETS).predict_proba(TEXTS)


@pytest.mark.slow
def test_two_fits_at_once_give_what_each_gives_alone():
    alone = [probabilities(seed) for seed in (1, 2)]
    for _ in range(ROUNDS):
        found = at_once(lambda: probabilities(1), lambda: probabilities(2))
        assert all(map(np.array_equal, found, alone))
    assert np.array_equal(probabilities(1), alone[0]), "later ones are right too"


@pytest.mark.slow
def test_a_fit_beside_threads_that_load_gives_what_it_gives_alone(tmp_path):
    folder, texts = save_checkpoint(tmp_path / "model"), random_texts(4)
    alone, loaded = probabilities(1), load(folder, device="cpu").predict_proba(texts)
    fitted = threading.Event()

    def fit() -> np.ndarray:
        try:
            return probabilities(1)
        finally:
            fitted.set()

    def load_again() -> bool:
        models = []
        while not models or not fitted.is_set():
            models.append(load(folder, device="cpu"))
        return all(np.array_equal(model.predict_proba(texts), loaded) for model in models)

    for _ in range(ROUNDS):
        fitted.clear()
        found, *are_equal = at_once(fit, load_again, load_again)
        assert np.array_equal(found, alone)
        assert are_equal == [True, True]


@pytest.mark.parametrize("verbose", [False, True])
def test_what_other_threads_print_while_one_fits_is_seen(tmp_path, capsys, verbose):
    stream, said, done = sys.stdout, [], threading.Event()

    def speak() -> None:
        while not said or not done.is_set():
            said.append(f"line {len(said)}")
            sys.stdout.write(f"{said[-1]}\n")
            done.wait(0.01)

    thread = threading.Thread(target=speak)
    thread.start()
    try:
        classifier: TextClassifier = tiny(epochs=1, output_dir=tmp_path / "run", verbose=verbose)
        classifier.fit(TEXTS, TARGETS)
    finally:
        done.set()
        thread.join()
    assert sys.stdout is stream
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("line ")] == said
    assert ("Report on train" in "\n".join(lines)) == verbose
    assert verbose or lines == said
