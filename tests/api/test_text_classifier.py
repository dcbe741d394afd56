"""The estimator, in scikit-learn's own tools: python -m pytest tests/api/test_text_classifier.py"""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from app.checkpoints.run_folder import is_finished
from app.errors import InputError
from chinese_text_classifier import TextClassifier, load
from tests.tiny import LABELS, tiny_lines

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
SMALL = {f"model.config.{key}": value for key, value in SIZES.items()}
SMALL |= {"model.config.initializer_range": 0.1, "train.threads": 1, "train.precision": "fp32"}


def rows(pairs: bool = False) -> tuple[list, list[str]]:
    fields = [line.split("\t") for line in tiny_lines(20, pairs)[1:]]
    return [tuple(row[:-1]) if pairs else row[0] for row in fields], [row[-1] for row in fields]


TEXTS, TARGETS = rows()


def tiny(**parameters) -> TextClassifier:
    defaults = {"epochs": 6, "batch_size": 8, "learning_rate": 5e-3, "max_length": 24, "device": "cpu"}
    return TextClassifier(**{**defaults, "random_state": 1, "settings": SMALL, **parameters})


# The programs that this process starts, while it is a list
STARTED: list | None = None


def count_process(event: str, arguments: tuple) -> None:
    if event == "subprocess.Popen" and STARTED is not None:
        STARTED.append(arguments[0])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> TextClassifier:
    folder = tmp_path_factory.mktemp("here")
    before = torch.random.get_rng_state()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sys.addaudithook(count_process)
        patch.setattr(f"{__name__}.STARTED", started := [])
        classifier = tiny().fit(TEXTS, TARGETS)
    # What code and what machine this is, asked once in a process
    assert set(started) <= {"git", "uname"}, "a few rows need no other process"
    assert list(folder.iterdir()) == [], "nothing is left in the working directory"
    assert torch.equal(before, torch.random.get_rng_state())
    return classifier


def test_it_learns_and_answers_as_a_classifier(fitted, capsys):
    assert is_classifier(fitted)
    assert fitted.classes_.tolist() == sorted(LABELS)
    assert fitted.score(TEXTS, TARGETS) > 0.9
    probabilities = fitted.predict_proba(TEXTS)
    assert probabilities.shape == (60, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (fitted.predict(TEXTS) == fitted.classes_[probabilities.argmax(axis=1)]).all()
    assert capsys.readouterr().out == ""


def test_parameters_are_read_set_and_cloned():
    classifier = tiny()
    assert classifier.get_params()["learning_rate"] == 5e-3
    other = clone(classifier).set_params(learning_rate=1e-3, dev_size=0.2)
    assert other.get_params() == {**classifier.get_params(), "learning_rate": 1e-3, "dev_size": 0.2}
    with pytest.raises(NotFittedError, match="not fitted yet"):
        other.predict(TEXTS)


def test_a_fitted_one_can_be_pickled(fitted):
    copied = pickle.loads(pickle.dumps(fitted))
    assert (copied.predict_proba(TEXTS) == fitted.predict_proba(TEXTS)).all()


TWO = ["好", "坏"]
EPOCHS = r"^settings: train.epochs must be auto or an integer from 1 to 1,000,000,000, found -1"


@pytest.mark.parametrize(
    ("parameters", "texts", "labels", "problem"),
    [
        ({}, TEXTS, TARGETS[1:], r"one label for each text, found shape \(59,\) for 60 texts"),
        ({}, TEXTS, ["好"] * 60, "at least two different labels are needed, found"),
        ({}, set(TEXTS), TARGETS, "texts must have an order, found a set; give a list"),
        ({}, TWO, {"a", "b"}, "labels must have an order, found a set"),
        ({}, TWO, (label for label in (0.5, 1.5)), "all strings or all integers, found 0.5"),
        ({}, dict.fromkeys(TEXTS).keys(), TARGETS[1:], "one label for each text, found shape"),
        ({}, ["好", ""], ["a", "b"], r"texts\[1\]: the text is empty"),
        ({}, TWO, [0.5, 1.5], "labels must be all strings or all integers, found 0.5"),
        ({}, TWO, [1, 0.5], "labels must be all strings or all integers, found 0.5"),
        ({}, TWO, [["a"], ["b"]], r'labels must be all strings or all integers, found \["a"\]'),
        ({}, TWO, np.array(["a", 1], dtype=object), "found both"),
        ({}, TWO, ["a", None], "found null"),
        ({}, TWO, ["a", " a"], "^labels must be names without white space around them, .* ' a'"),
        ({}, TWO, None, "^labels must be a list, found null"),
        ({"epochs": -1}, TWO, ["a", "b"], EPOCHS),
        ({"settings": {"train.epoch": 1}}, TWO, ["a", "b"], "did you mean 'train.epochs'"),
        ({"settings": {"data.train": "x"}}, TWO, ["a", "b"], "data.train follows from what fit is given"),
        ({"settings": {"train.epochs": 2}}, TWO, ["a", "b"], "train.epochs follows from .* a parameter"),
        ({"settings": {"epochs": 2}}, TWO, ["a", "b"], "there is no setting 'epochs'"),
    ],
)
def test_bad_input_is_said_before_anything_is_trained(parameters, texts, labels, problem):
    with pytest.raises(InputError, match=problem):
        tiny(**parameters).fit(texts, labels)


@parametrize_with_checks([TextClassifier()])
def test_scikit_learn_finds_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_cross_validation_pipeline_and_grid_search():
    assert cross_val_score(tiny(), TEXTS, TARGETS, cv=3).min() > 0.7
    strip = FunctionTransformer(lambda texts: [text.rstrip("0123456789") for text in texts])
    pipeline = Pipeline([("strip", strip), ("classify", tiny(epochs=1))])
    search = GridSearchCV(pipeline, {"classify__learning_rate": [1e-6, 5e-3], "classify__epochs": [6]}, cv=2)
    search.fit(TEXTS, TARGETS)
    assert search.best_params_["classify__learning_rate"] == 5e-3
    assert search.best_estimator_.score(TEXTS, TARGETS) > 0.9


@pytest.mark.slow
def test_integer_labels_pairs_and_a_kept_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts, labels = rows(pairs=True)
    numbers = [10 * LABELS.index(label) for label in labels]
    classifier = tiny(output_dir="run", dev_size=0.2).fit(texts, numbers)
    assert classifier.classes_.tolist() == [0, 10, 20]
    assert set(classifier.predict(texts).tolist()) <= {0, 10, 20}
    assert classifier.score(texts, numbers) > 0.8
    assert is_finished(Path("run"))
    assert (load("run", device="cpu").predict_proba(texts) == classifier.predict_proba(texts)).all()
    with pytest.raises(InputError, match="holds a finished run"):
        classifier.fit(texts, numbers)
