"""A trained model from Python, compared with transformers: python -m pytest tests/api/test_load.py"""

import pickle

import numpy as np
import pandas as pd
import pytest

from app.errors import InputError
from app.prediction.torch_runtime import load_checkpoint
from chinese_text_classifier import load
from tests.saved_classifier import LABELS, of_pipeline, random_texts, save_checkpoint

TEXTS = random_texts(20)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(save_checkpoint(tmp_path_factory.mktemp("model")), device="cpu")


def test_probabilities_and_labels_are_those_of_transformers(model):
    expected = of_pipeline(model.folder, TEXTS)
    assert model.label_names == LABELS
    np.testing.assert_allclose(model.predict_proba(TEXTS), expected, atol=1e-5)
    assert model.predict(TEXTS).tolist() == [LABELS[label] for label in expected.argmax(axis=1)]


def test_a_table_has_the_columns_of_predict_and_a_reason_for_an_invalid_text(model):
    table = model.predict_table([*TEXTS, " ", None])
    assert table.column_names == ["label", "probability", *(f"p_{name}" for name in LABELS), "reason"]
    rows = table.to_pylist()
    assert [row["label"] for row in rows] == [*model.predict(TEXTS), None, None]
    found = [[row[f"p_{name}"] for name in LABELS] for row in rows[:-2]]
    np.testing.assert_allclose(found, model.predict_proba(TEXTS), atol=1e-6)
    reasons = [row["reason"] for row in rows]
    assert reasons[:-2] == [None] * len(TEXTS)
    assert reasons[-2].startswith("text 21: the text is empty")
    assert model.predict_table([]).schema == table.schema


def test_every_kind_of_sequence_is_taken(model):
    expected = model.predict(TEXTS).tolist()
    for texts in (
        tuple(TEXTS),
        np.array(TEXTS),
        pd.Series(TEXTS),
        pd.DataFrame({"text": TEXTS}),
        iter(TEXTS),
        dict.fromkeys(TEXTS).keys(),
    ):
        assert model.predict(texts).tolist() == expected
    pairs = [("好", text) for text in TEXTS]
    assert model.predict_proba(pairs).tolist() == model.predict_proba(np.array(pairs)).tolist()
    assert (model.predict_proba(pairs) != model.predict_proba(TEXTS)).any()
    assert model.predict_proba([]).shape == (0, 3)
    assert model.predict([]).tolist() == []


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ("今天", r"found one string: '今天'; write \[text\]"),
        (None, "^texts must be a list, found null$"),
        (3, "^texts must be a list, found 3$"),
        ({"好": 1}, "^texts must be a list, found {"),
        ({"好", "坏"}, "texts must have an order, found a set; give a list"),
        (frozenset(["好"]), "found a frozenset"),
        (["好", ""], r"^texts\[1\]: the text is empty"),
        (["好", None], r"^texts\[1\]: the text is empty, found null"),
        (["好", 3.5], r"^texts\[1\]: the text must be a string, found 3.5"),
        (["好", ("好", "坏")], r"found both: texts\[1\] is a pair"),
        ([("好", "坏", "气")], r"at texts\[0\]"),
        (np.array([["好", "坏", "气"]]), r"at texts\[0\]"),
        (["好\ud800"], r"^texts\[0\]: unpaired surrogate"),
    ],
)
def test_what_is_no_text_is_an_error_with_its_index(model, texts, problem):
    with pytest.raises(InputError, match=problem):
        model.predict(texts)


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(InputError, match="there is no such folder"):
        load(tmp_path / "nothing")


def test_pickled_and_saved_it_is_the_same(model, tmp_path):
    expected = model.predict_proba(TEXTS)
    copied = pickle.loads(pickle.dumps(model))
    assert copied.folder != model.folder
    assert (copied.predict_proba(TEXTS) == expected).all()
    place = copied.folder
    del copied
    assert not place.exists()
    saved = model.save(tmp_path / "new" / "model")
    assert (load(saved, device="cpu").predict_proba(TEXTS) == expected).all()
    assert load_checkpoint(saved)
    with pytest.raises(InputError, match="found something in"):
        model.save(saved)
