"""A trained model and the estimator from Python, in scikit-learn's tools, in threads, and installed."""

import copy
import json
import pickle
import re
import shutil
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.sparse import csr_array
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from app import TextClassifier, TextRegressor, load
from app.api.errors import message_for_python
from app.checkpoints.run_files import is_finished
from app.errors import InputError, TrainingError
from app.prediction.load_checkpoint import load_checkpoint
from tests.processes import finish, full_disk
from tests.ranks import SMALL as SIZES
from tests.saved_classifier import LABELS, of_pipeline, random_texts, save_checkpoint, several_labels
from tests.tiny import LABELS as TINY_LABELS
from tests.tiny import tiny_lines

TEXTS = random_texts(20)


@pytest.fixture(scope="module")
def model(checkpoint):
    return load(checkpoint, device="cpu")


def test_answers_are_those_of_transformers_and_a_table_has_the_columns_of_predict(model):
    expected = of_pipeline(model.folder, TEXTS)
    assert model.label_names == LABELS
    np.testing.assert_allclose(model.predict_proba(TEXTS), expected, atol=1e-5)
    assert model.predict(TEXTS).tolist() == [LABELS[label] for label in expected.argmax(axis=1)]
    table = model.predict_table([*TEXTS, " ", None])
    assert table.column_names == ["label", "probability", *(f"p_{name}" for name in LABELS), "reason"]
    rows = table.to_pylist()
    assert [row["label"] for row in rows] == [*model.predict(TEXTS), None, None]
    probabilities = [[row[f"p_{name}"] for name in LABELS] for row in rows[:-2]]
    np.testing.assert_allclose(probabilities, model.predict_proba(TEXTS), atol=1e-6)
    reasons = [row["reason"] for row in rows]
    assert reasons[:-2] == [None] * len(TEXTS)
    assert reasons[-2].startswith("text 21: the text is empty")
    assert model.predict_table([]).schema == table.schema


def test_every_kind_of_sequence_is_taken(model):
    expected = model.predict(TEXTS).tolist()
    sequences = [tuple(TEXTS), np.array(TEXTS), pd.Series(TEXTS), pd.DataFrame({"text": TEXTS}), iter(TEXTS)]
    for texts in (*sequences, dict.fromkeys(TEXTS).keys()):
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
        (3, "^texts must be a list, found 3$"),
        ({"好": 1}, "^texts must be a list, found {"),
        (frozenset(["好"]), "texts must have an order, found a frozenset; give a list"),
        (["好", ""], r"^texts\[1\]: the text is empty"),
        (["好", None], r"^texts\[1\]: the text is empty, found null"),
        (["好", 3.5], r"^texts\[1\]: the text must be a string, found 3.5$"),
        (["好", ("好", "坏")], r"found both: texts\[1\] is a pair"),
        ([("好", "坏", "气")], r"at texts\[0\]"),
        (np.array([["好", "坏", "气"]]), r"at texts\[0\]"),
        (["好\ud800"], r"^texts\[0\]: unpaired surrogate"),
    ],
)
def test_what_is_no_text_is_an_error_with_its_index(model, texts, problem):
    with pytest.raises(InputError, match=problem):
        model.predict(texts)


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
    with pytest.raises(InputError, match="there is no such folder"):
        load(tmp_path / "nothing")
    with pytest.raises(InputError, match="the precision must be fp32 or bf16, found 'int8'"):
        load(saved, precision="int8")


SMALL = {f"model.config.{key}": value for key, value in SIZES.items()}
SMALL |= {
    "model.name": "random",
    "model.config.initializer_range": 0.1,
    "train.threads": 1,
    "train.precision": "fp32",
}


def rows(pairs: bool = False) -> tuple[list, list[str]]:
    fields = [line.split("\t") for line in tiny_lines(20, pairs)[1:]]
    return [tuple(row[:-1]) if pairs else row[0] for row in fields], [row[-1] for row in fields]


TRAIN, TARGETS = rows()


USUAL = {"epochs": 6, "batch_size": 8, "learning_rate": 5e-3, "max_length": 24, "device": "cpu"}
USUAL |= {"random_state": 1, "settings": SMALL}


def tiny(**parameters) -> TextClassifier:
    return TextClassifier(**{**USUAL, **parameters})


def test_it_learns_and_answers_as_a_classifier_also_when_it_was_pickled(tmp_path, monkeypatch, capsys):
    started = []
    before = torch.random.get_rng_state()
    sys.addaudithook(lambda event, words: started.append(words[0]) if event == "subprocess.Popen" else None)
    monkeypatch.chdir(tmp_path)
    fitted = tiny().fit(TRAIN, TARGETS)
    # What code and what machine this is, asked once in a process
    assert set(started) <= {"git", "uname"}, "a few rows need no other process"
    assert list(tmp_path.iterdir()) == [], "nothing is left in the working directory"
    assert torch.equal(before, torch.random.get_rng_state())
    assert is_classifier(fitted)
    assert fitted.classes_.tolist() == sorted(TINY_LABELS)
    assert fitted.score(TRAIN, TARGETS) > 0.9
    probabilities = fitted.predict_proba(TRAIN)
    assert probabilities.shape == (60, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert (fitted.predict(TRAIN) == fitted.classes_[probabilities.argmax(axis=1)]).all()
    assert (pickle.loads(pickle.dumps(fitted)).predict_proba(TRAIN) == probabilities).all()
    assert capsys.readouterr().out == ""


TWO = ["好", "坏"]
EPOCHS = "epochs must be auto or an integer from 1 to 1,000,000,000, found -1"


@pytest.mark.parametrize(
    ("parameters", "texts", "labels", "problem"),
    [
        ({}, TRAIN, TARGETS[1:], r"one label for each text, found shape \(59,\) for 60 texts"),
        ({}, TRAIN, ["好"] * 60, "at least two different labels are needed, found"),
        ({}, TWO, {"a", "b"}, "labels must have an order, found a set"),
        (
            {},
            TWO,
            (label for label in (0.5, 1.5)),
            r"labels\[0\] must be a class, found the number 0.5; TextReg",
        ),
        ({}, ["好", ""], ["a", "b"], r"texts\[1\]: the text is empty"),
        ({}, TWO, [["a"], "b"], r"labels\[1\] must be a list of labels as in other rows, found 'b'"),
        ({}, TWO, [["a"], ["b", None]], r"labels\[1\] is missing, found null"),
        ({}, TWO, [["a"], ["a"]], "at least two different labels are needed, found"),
        ({}, TWO, [[1, 0, 0], [1, 1, 0]], "each label must have a row, found only 0 for 2; drop it"),
        ({}, TWO, np.array([[1, 2], [0, 1]]), r"labels\[0\] must have 0 or 1 for each label, found 2 for 1"),
        ({}, TWO, np.array([[1, 0], [0, np.nan]]), r"labels\[1\] must have 0 or 1 .* found NaN for 1"),
        ({}, TWO, np.array([["a", "b"], ["b", "a"]]), r"labels\[0\] must have 0 or 1 .* found 'a' for 0"),
        ({}, TWO, [1.0, np.nan], r"^labels\[1\] is missing, found NaN; drop such rows, or label them$"),
        ({}, TWO, pd.Series(["a", pd.NA]), r"labels\[1\] is missing"),
        ({}, TWO, pd.DataFrame({"label": ["a", None]}), r"labels\[1\] is missing"),
        ({}, TWO, [{"a": 1}, "b"], r"labels\[0\] must be a string or an integer, found {"),
        ({}, pd.Series(["好", np.nan]), ["a", "b"], r"^texts\[1\]: the text is empty"),
        ({}, TWO, np.array(["a", 1], dtype=object), r"both: 'a' at labels\[0\] and 1 at labels\[1\]$"),
        ({}, TWO, ["a", None], "found null"),
        ({}, TWO, ["a", " a"], "^labels must be names without white space around them, .* ' a'"),
        ({}, TWO, None, "^labels must be a list, found null"),
        ({"epochs": -1}, TWO, ["a", "b"], f"^{EPOCHS}"),
        ({"settings": {"train.epoch": 1}}, TWO, ["a", "b"], "did you mean 'train.epochs'"),
        ({"settings": {"data.train": "x"}}, TWO, ["a", "b"], "data.train follows from what fit is given"),
        ({"dev_size": 0.5}, TWO, ["a", "b"], "^a stratified split .*; add rows, or leave dev_size out$"),
        ({"dev_size": 2.5}, TWO, ["a", "b"], "^dev_size must be "),
        ({"settings": {"train.weight_decay": -1}}, TWO, ["a", "b"], "^settings: train.weight_decay must be "),
        ({"settings": {"train.epochs": 2}}, TWO, ["a", "b"], "train.epochs follows from .* a parameter"),
        ({"settings": {"train.best_metric": "rare_f1"}, "dev_size": 1}, TWO, ["a", "b"], "set output_dir"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_bad_input_is_said_before_anything_is_trained(parameters, texts, labels, problem):
    with pytest.raises(InputError, match=problem) as caught:
        tiny(**parameters).fit(texts, labels)
    assert "--" not in str(caught.value), "words of the command line"


def regressor(**parameters) -> TextRegressor:
    return TextRegressor(**{**USUAL, **parameters})


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ([0.5, np.nan], r"^y\[1\] is missing, found NaN; drop such rows$"),
        ([0.5, "1"], r"^y\[1\] must be a number up to 1e\+100, found '1'$"),
        ([0.5, np.inf], r"^y\[1\] must be a number up to 1e\+100, found Infinity$"),
        ([2, 2.0], "^the numbers of y must differ, found 2 in all rows$"),
        ([1.0, 2, 3], r"^y must have one number for each text, found shape \(3,\) for 2 texts$"),
        (None, "^y must be a list, found null$"),
    ],
)
def test_what_is_no_number_is_said_with_its_index(numbers, problem):
    with pytest.raises(InputError, match=problem):
        regressor().fit(TWO, numbers)


def test_numbers_of_texts_are_learnt_also_from_a_column(capsys):
    numbers = [float(TINY_LABELS.index(label)) for label in TARGETS]
    with pytest.warns(DataConversionWarning, match="column-vector"):
        fitted = regressor(epochs=12).fit(pd.DataFrame({"text": TRAIN}), pd.DataFrame({"score": numbers}))
    assert is_regressor(fitted)
    predicted = fitted.predict(TRAIN)
    assert (predicted.shape, predicted.dtype) == ((60,), np.float64)
    assert fitted.score(TRAIN, numbers) == pytest.approx(r2_score(numbers, predicted))
    assert fitted.score(TRAIN, numbers) > 0.5
    assert (pickle.loads(pickle.dumps(fitted)).predict(TRAIN) == predicted).all()
    assert re.fullmatch(r"Model\('/.*/run', task='regression'\)", repr(fitted.model_))
    with pytest.raises(InputError, match="the model gives numbers, not probabilities; call predict"):
        fitted.model_.predict_proba(TRAIN)


# Each text has one of the labels, and those that end with an even digit one more
SEVERAL = [
    [label, "偶"] if text[-1] in "02468" else [label] for text, label in zip(TRAIN, TARGETS, strict=True)
]
SEVERAL[0] = []
ALL_LABELS = sorted({*TINY_LABELS, "偶"})
INDICATORS = np.array([[int(label in labels) for label in ALL_LABELS] for labels in SEVERAL])


@pytest.mark.parametrize("kind", ["lists", "matrix", "sparse", "frame"])
def test_several_labels_come_back_as_they_were_given(kind, capsys):
    forms = {
        "lists": SEVERAL,
        "matrix": INDICATORS,
        "sparse": csr_array(INDICATORS),
        "frame": pd.DataFrame(INDICATORS.astype(float), columns=ALL_LABELS),
    }
    epochs = 20 if kind == "lists" else 1
    fitted = tiny(epochs=epochs).fit(TRAIN, forms[kind])
    has_names = kind in ("lists", "frame")
    assert fitted.classes_.tolist() == (ALL_LABELS if has_names else [0, 1, 2, 3])
    probabilities = fitted.predict_proba(TRAIN)
    predicted = fitted.predict(TRAIN)
    is_given = probabilities > 0.5
    if kind == "lists":
        assert [set(labels) for labels in predicted] == [
            set(np.array(ALL_LABELS)[row].tolist()) for row in is_given
        ]
        assert fitted.score(TRAIN, SEVERAL) > 0.5
    else:
        assert predicted.tolist() == is_given.astype(int).tolist()
    expected = accuracy_score(INDICATORS, is_given.astype(int))
    assert fitted.score(TRAIN, forms[kind]) == pytest.approx(expected)
    assert capsys.readouterr().err == "", "no threshold is missing"
    # Rows of a test need not have all labels
    assert fitted.score(TRAIN[:1], forms[kind][:1]) in (0, 1)


def test_labels_of_a_column_and_whole_floats_stay_as_they_are():
    texts = ["今天真开心", "气死我了"] * 8
    frame = pd.DataFrame({"text": texts, "label": [1.0, 0.0] * 8})
    with pytest.warns(DataConversionWarning, match="column-vector"):
        fitted = tiny(epochs=20).fit(frame[["text"]], frame[["label"]])
    assert fitted.classes_.tolist() == [0.0, 1.0]
    assert fitted.classes_.dtype == np.float64
    assert fitted.predict(texts[:2]).tolist() == [1.0, 0.0]
    assert fitted.score(frame[["text"]], frame["label"]) == 1


def test_a_model_shows_what_it_is(model):
    assert repr(model) == f"Model('{model.folder}', task='single_label', labels={LABELS})"


def test_without_a_run_load_names_no_option_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match="no finished run in checkpoints/ of the working folder; give load the"
    ):
        load()


@pytest.mark.parametrize(
    ("message", "for_python"),
    [
        ("settings: train.epochs must be 1", "epochs must be 1"),
        ("lower train.micro_batch_tokens", "lower train.micro_batch_tokens"),
        (
            "/tmp/x/train.jsonl: wrong; set --data.max_length, --train.seed or --data.long",
            "wrong; set max_length, random_state or data.long",
        ),
        ("ran out; a smaller --batch_tokens helps", "ran out; a smaller batch_tokens helps"),
        ("run/data.csv, 'train.epochs' stay", "run/data.csv, 'train.epochs' stay"),
    ],
)
def test_errors_name_parameters(message, for_python):
    assert message_for_python(message, "/tmp/x/train.jsonl") == for_python


@parametrize_with_checks([TextClassifier(), TextRegressor()])
def test_scikit_learn_finds_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_cross_validation_pipeline_and_grid_search():
    assert cross_val_score(tiny(), TRAIN, TARGETS, cv=3).min() > 0.7
    strip = FunctionTransformer(lambda texts: [text.rstrip("0123456789") for text in texts])
    pipeline = Pipeline([("strip", strip), ("classify", tiny(epochs=1))])
    search = GridSearchCV(pipeline, {"classify__learning_rate": [1e-6, 5e-3], "classify__epochs": [6]}, cv=2)
    search.fit(TRAIN, TARGETS)
    assert search.best_params_["classify__learning_rate"] == 5e-3
    assert search.best_estimator_.score(TRAIN, TARGETS) > 0.9


@pytest.mark.slow
def test_integer_labels_pairs_and_a_kept_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts, labels = rows(pairs=True)
    numbers = [10 * TINY_LABELS.index(label) for label in labels]
    classifier = tiny(output_dir="run", dev_size=0.2).fit(texts, numbers)
    assert classifier.classes_.tolist() == [0, 10, 20]
    assert set(classifier.predict(texts).tolist()) <= {0, 10, 20}
    assert classifier.score(texts, numbers) > 0.8
    assert is_finished(Path("run"))
    frame = pd.DataFrame(texts, columns=["text", "pair"])[["pair", "text"]]
    assert (load("run", device="cpu").predict_proba(frame) == classifier.predict_proba(texts)).all()
    with pytest.raises(InputError, match="holds a finished run"):
        classifier.fit(texts, numbers)


def probabilities(seed: int) -> np.ndarray:
    return tiny(epochs=1, random_state=seed).fit(TRAIN, TARGETS).predict_proba(TRAIN)


@pytest.mark.slow
def test_two_fits_and_a_thread_that_loads_give_what_each_gives_alone(checkpoint):
    alone = [probabilities(seed) for seed in (1, 2)]
    loaded = load(checkpoint, device="cpu").predict_proba(TEXTS)
    fits: list[Future] = []

    def load_again() -> bool:
        models = []
        while not models or not all(fit.done() for fit in fits):
            models.append(load(checkpoint, device="cpu"))
        return all(np.array_equal(model.predict_proba(TEXTS), loaded) for model in models)

    with ThreadPoolExecutor(3) as pool:
        for _ in range(10):
            fits[:] = [pool.submit(probabilities, seed) for seed in (1, 2)]
            is_equal = pool.submit(load_again)
            for fit, expected in zip(fits, alone, strict=True):
                assert np.array_equal(fit.result(300), expected)
            assert is_equal.result(300)
    assert np.array_equal(probabilities(1), alone[0]), "later ones are right too"


@pytest.mark.parametrize("verbose", [False, True])
def test_a_fit_prints_only_when_asked_and_leaves_the_output_of_others_alone(tmp_path, capsys, verbose):
    streams = []
    done = threading.Event()

    def watch() -> None:
        while not streams or not done.wait(0.001):
            streams.append(sys.stdout)

    thread = threading.Thread(target=watch)
    stream = sys.stdout
    thread.start()
    try:
        tiny(epochs=1, output_dir=tmp_path / "run", verbose=verbose).fit(TRAIN, TARGETS)
    finally:
        done.set()
        thread.join()
    assert {*streams, sys.stdout} == {stream}
    printed = capsys.readouterr().out
    assert ("Report on train" in printed) == verbose
    assert verbose or printed == ""
    # The rows are in a file that is gone, so no command can name them
    advice = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))["what_next"]
    assert any(item["command"].startswith("cross_val_predict(classifier.") for item in advice)
    assert not any("train.jsonl" in item["command"] for item in advice)


def test_a_missing_encoder_is_an_error_with_its_command(monkeypatch, tmp_path):
    """Where its package cannot be installed, `fit` once trained random weights without a word."""
    monkeypatch.setattr("app.model.e5_small.e5_file", lambda: None)
    monkeypatch.setattr("app.config.shipped.e5_file", lambda: None)
    classifier = TextClassifier(max_steps=1, device="cpu", cache_dir=tmp_path, settings={"train.threads": 1})
    with pytest.raises(InputError, match=r"e5-small-zh needs .* found none. Get it: pip install "):
        classifier.fit(TRAIN, TARGETS)


CHILDREN = """
import os, pickle, sys, tempfile
from multiprocessing import get_context
from chinese_text_classifier import load

model = pickle.loads(pickle.dumps(load({!r}, device="cpu")))
folders = os.listdir(tempfile.gettempdir())

def drop():
    global model, copied
    copied = pickle.loads(pickle.dumps(model))
    del model

child = os.fork()
if not child:
    sys.exit(0)
os.waitpid(child, 0)
process = get_context("fork").Process(target=drop)
process.start()
process.join()
assert os.listdir(tempfile.gettempdir()) == folders, "a child removes its own"
model.save({!r})
"""


@pytest.mark.slow
def test_a_forked_child_that_ends_leaves_the_model_to_its_parent(tmp_path, checkpoint, model):
    saved = tmp_path / "saved"
    program = CHILDREN.format(str(checkpoint), str(saved))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    finish([sys.executable, "-c", program], status=0, TMPDIR=str(temporary))
    assert (load(saved, device="cpu").predict_proba(TEXTS) == model.predict_proba(TEXTS)).all()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy, lambda model: model.save("saved")])
def test_a_model_whose_files_are_gone_is_neither_saved_nor_copied(tmp_path, monkeypatch, checkpoint, copied):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    model = load("model", device="cpu")
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="the files of this model are gone, so it cannot be saved or copied"):
        copied(model)
    assert list(tmp_path.iterdir()) == []


def test_a_model_whose_files_were_replaced_is_not_saved_as_another_one(tmp_path, checkpoint):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    model = load(folder, device="cpu")
    with safe_open(folder / "model.safetensors", "pt") as file:
        weights = {name: file.get_tensor(name) + 1 for name in file.keys()}  # noqa: SIM118 - no dictionary
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match="have changed since it was opened.*model.safetensors"):
        model.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_model_is_saved_from_another_working_folder(tmp_path, monkeypatch, checkpoint):
    shutil.copytree(checkpoint, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    model = load("model", device="cpu")
    monkeypatch.chdir("/")
    saved = model.save(tmp_path / "saved")
    assert (load(saved, device="cpu").predict_proba(TEXTS) == model.predict_proba(TEXTS)).all()


@pytest.mark.parametrize("is_new", [True, False])
def test_nothing_is_left_of_a_model_that_the_disk_has_no_room_for(tmp_path, model, is_new):
    folder = tmp_path / "outer" / "saved"
    if not is_new:
        folder.mkdir(parents=True)
    with full_disk(20_000), pytest.raises(TrainingError, match="cannot be written.*free space on the disk"):
        model.save(folder)
    assert list(tmp_path.rglob("*")) == ([] if is_new else [folder.parent, folder])


DIFFERENT = {
    "zero characters": ["a", "a\0", "a\0\0"],
    "large integers": [2**63, 2**63 + 1, 2**70],
    "large and negative integers": [-1, 2**63 + 1, 2**63 + 2],
    "integers of NumPy": [np.uint64(2**64 - 1), np.uint64(2**64 - 2), np.int8(3)],
    "endings of numbers": ["1.0", "2.0", "3"],
    "truth values": [True, False],
    "labels of fastText": ["__label__pos", "__label__neg"],
    "numbers of fastText": ["__label__1", "__label__0"],
}


@pytest.mark.parametrize("labels", DIFFERENT.values(), ids=DIFFERENT)
def test_each_label_stays_itself(labels):
    """Each class has one text of its own, which the model learns by heart."""
    texts = ["今天真开心", "气死我了", "快递好慢啊"][: len(labels)]
    classifier = tiny(epochs=40).fit(texts * 8, labels * 8)
    assert classifier.classes_.tolist() == sorted(labels)
    assert classifier.predict(texts).tolist() == labels


MERGED = [
    (["1", "1.0"], "^the label '1.0' is read as '1'"),
    (["pos", "__label__pos"], "^the label '__label__pos' is read as 'pos'"),
    ([True, 1, 2], r"found both: True at labels\[0\] and 1 at labels\[1\]"),
    (["a", "b\ud800"], "^the label .* cannot be used: unpaired surrogate"),
    (["a", "\u200b"], "^the label .* cannot be used: the label is empty"),
    (["a", "__label__"], "^the label '__label__' is read as ''"),
]


@pytest.mark.parametrize(("labels", "problem"), MERGED)
def test_labels_that_the_training_would_read_as_others_are_named(labels, problem):
    with pytest.raises(InputError, match=problem):
        tiny().fit(["好"] * len(labels), labels)


def test_a_model_of_several_labels_gives_a_list_for_each_text(tmp_path):
    """Also where all lists have the same length."""
    every_label = several_labels(0.0, 0.0, 0.0)
    folder = save_checkpoint(tmp_path / "model", **every_label)
    assert [sorted(labels) for labels in load(folder, device="cpu").predict(TEXTS[:2])] == [
        sorted(LABELS)
    ] * 2


def test_columns_of_arrow_are_texts_too(model):
    assert model.predict(pa.chunked_array([TEXTS])).tolist() == model.predict(TEXTS).tolist()
