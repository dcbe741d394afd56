"""What next?"""

import ast
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from app.api.text_classifier import TextClassifier
from app.config.command_line import load_config
from app.config.schema import ModelConfig
from app.report.advice import Advice, Evidence, HeldOut, render_advice, what_next
from app.report.advised_commands import AdvisedCommands, CallsOfPython
from app.report.paired_differences import MODEL_MINUS_BASELINE
from app.tasks import open_task
from app.training.advice_evidence import evidence_of
from tests.verbs import spoken_in

NAMES = ["中性", "正面", "负面"]
OTHER_MODEL = "--model.name hfl/chinese-macbert-base"
LOSS_FELL = [
    {"step": 10, "loss": 0.5, "train_loss": 0.7},
    {"step": 20, "loss": 0.45, "train_loss": 0.4},
]
OVERFITS = [
    {"step": 0, "loss": 0.6},
    {"step": 10, "loss": 0.5, "train_loss": 0.3},
    {"step": 30, "loss": 0.9, "train_loss": 0.004},
]
# The loss on dev was lowest before the first step, and one epoch is the least there is
OVERFITS_AT_ONCE = [OVERFITS[0] | {"loss": 0.3}, OVERFITS[2]]
KNOWS_ROWS = [OVERFITS[1], OVERFITS[2] | {"loss": 0.55}]
NOTHING = {"train_losses": [1.1, float("nan")]}
# The training rows are known nearly by heart
LEARNED = [LOSS_FELL[0], LOSS_FELL[1] | {"train_loss": 0.2}]
LOSS_STAYED = [{"step": 10, "loss": 0.5}, {"step": 20, "loss": 0.495, "train_loss": 0.4}]


def compared(baseline: float, low: float, high: float) -> dict:
    """Return the metrics of a run of 0.9 that was compared with a baseline on the same rows."""
    difference = {"difference": 0.9 - baseline, "interval": [low, high]}
    figures = {"macro_f1": baseline, MODEL_MINUS_BASELINE: {"macro_f1": difference}}
    return {"baselines": {"majority class": {"macro_f1": 0.25}, "TF-IDF + logistic regression": figures}}


def one_in_five_wrong(num_rows: int) -> HeldOut:
    """Return decisions whose errors do not depend on how sure the model is."""
    return HeldOut(np.linspace(0.5, 1, num_rows), np.arange(num_rows) % 5 > 0)


def wrong_where_unsure() -> HeldOut:
    confidence = np.linspace(0, 1, 400)
    return HeldOut(confidence, confidence > 0.3)


def advice(
    name: str = "single_label", changes: dict | None = None, metrics: dict | None = None
) -> dict[str, Advice]:
    """Return the advice for a run with nothing wrong, except for what is changed of its evidence."""
    task = open_task(name, NAMES)
    key = task.main_metric
    figures = {
        key: 0.9,
        "rows": 400,
        "step": 20,
        "intervals": {key: [0.88, 0.92]},
        "baselines": {"majority class": {key: 0.25}},
    }
    evidence = Evidence(
        metrics=figures | (metrics or {}),
        history=LOSS_STAYED,
        train_losses=[0.7, 0.4],
        learning_rate=3e-5,
        held_out=wrong_where_unsure(),
        class_rows=dict.fromkeys(NAMES, 500),
        dev_rows=400,
        commands=AdvisedCommands({"data.train": "my rows.csv"}),
        longer={"train.epochs": 6},
        instead={"model.name": "hfl/chinese-macbert-base"},
        epochs=3,
        steps_per_epoch=10,
    )
    return what_next(task, replace(evidence, **(changes or {})), Path("checkpoints/sample-001"))


@pytest.mark.parametrize(
    ("key", "changes", "metrics", "named"),
    [
        ("learned_nothing", {"train_losses": [1.1, 1.099]}, {"macro_f1": 0.1}, "--train.learning_rate 9e-05"),
        ("learned_nothing", NOTHING | {"learning_rate": 1e-9}, {}, "--train.learning_rate 1e-4"),
        ("learned_nothing", NOTHING, {"macro_f1": 0.2}, "--train.learning_rate 9e-05"),
        ("learned_nothing", {"learning_rate": 1.0}, {"macro_f1": 0.25}, "--train.learning_rate 3e-5"),
        ("no_better", {}, {"macro_f1": 0.1}, OTHER_MODEL),
        ("still_falls", {"history": LOSS_FELL}, {}, "--train.epochs 6"),
        ("overfits", {"history": OVERFITS}, {}, "--train.epochs 1"),
        (
            "overfits",
            {"history": OVERFITS_AT_ONCE, "epochs": 1, "learning_rate": 5e-5},
            {},
            "--train.learning_rate 2e-05",
        ),
        ("not_surely_better", {}, compared(0.88, -0.01, 0.05), "app cross-validate --folds 5"),
        ("few_test_rows", {}, {"rows": 30}, "python -m app cross-validate --folds 5"),
        ("few_test_rows", {}, {"rows": 30, "intervals": {"macro_f1": [1.0, 1.0]}}, "0.88"),
        ("wrong_labels", {"held_out": one_in_five_wrong(1000)}, {}, "app cross-validate --folds 5"),
        (
            "few_rows",
            {"class_rows": {"中性": 500, "负面": 7}},
            {},
            "app suggest checkpoints/sample-001 new.csv next.csv",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_setting_or_verb_to_try(key, changes, metrics, named):
    english = spoken_in("en", lambda: advice(changes=changes, metrics=metrics))
    chinese = spoken_in("zh", lambda: advice(changes=changes, metrics=metrics))
    assert list(english) == [key]
    assert list(chinese) == [key]
    assert english[key].sentence != chinese[key].sentence
    # To be copied: no full stop is part of it
    pattern = rf"(^|[^\w-]){re.escape(named)}(?![\w.。])"
    assert re.search(pattern, english[key].text)
    assert re.search(pattern, chinese[key].text)
    assert english[key].command == chinese[key].command
    # The whole of it
    assert english[key].command.startswith("python ")
    if named.startswith("--"):
        assert english[key].command == f"python run_single.py --data.train 'my rows.csv' {named}"
    assert english[key].sentence.endswith(":")
    assert chinese[key].sentence.endswith("：")
    assert not re.search("[,;()]", chinese[key].sentence)
    assert render_advice(english).splitlines()[1:] == [f"  - {english[key].text}"]


@pytest.mark.parametrize(
    ("changes", "metrics", "call"),
    [
        (
            {"learning_rate": 1.0},
            {"macro_f1": 0.25},
            "classifier.set_params(learning_rate=3e-5, output_dir='another-run').fit(texts, labels)",
        ),
        (
            {},
            {"macro_f1": 0.1},
            "classifier.set_params(model='hfl/chinese-macbert-base', output_dir='another-run')"
            ".fit(texts, labels)",
        ),
        ({}, {"rows": 30}, "cross_val_predict(classifier.set_params(output_dir=None), texts, labels, cv=5)"),
        (
            {"class_rows": {"中性": 500, "负面": 7}},
            {},
            "classifier.predict_proba(texts_of_new_csv).max(axis=1).argsort()[:50]",
        ),
    ],
)
def test_a_python_program_is_told_calls(changes, metrics, call):
    """A command would need a file of the rows, which the program has."""
    [told] = advice(changes=changes | {"commands": CallsOfPython()}, metrics=metrics).values()
    assert told.command == call
    check_parameters(call)


def test_a_python_program_is_told_how_to_try_other_seeds():
    call = CallsOfPython().other_seeds(Path("run"))
    assert ".score(new_texts, new_labels) for seed in range(5)" in call
    check_parameters(call)


def check_parameters(call: str) -> None:
    """Every parameter that a call sets is one of the estimator."""
    settings = []
    for part in ast.walk(ast.parse(call, mode="eval")):
        if isinstance(part, ast.Call) and ast.unparse(part.func).endswith(".set_params"):
            settings += [keyword.arg for keyword in part.keywords]
    assert set(settings) <= TextClassifier().get_params().keys()


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, []),
        # A rate of random weights, with which the model is good
        ({"learning_rate": 0.03}, []),
        ({"train_losses": [0.7]}, []),
        # The training went on from a model that was good
        (NOTHING, []),
        ({"history": LOSS_FELL, "dev_rows": 40}, []),
        ({"held_out": one_in_five_wrong(600)}, []),
        ({"history": OVERFITS, "dev_rows": 40}, []),
        # The training rows are known, and the loss on dev has hardly risen
        ({"history": KNOWS_ROWS}, []),
        # The loss falls because the learning rate does: what is trained on is known already
        ({"history": LEARNED}, []),
        # A model that is not good yet does not judge labels
        ({"history": LOSS_FELL, "held_out": one_in_five_wrong(1000)}, ["still_falls"]),
    ],
)
@pytest.mark.parametrize("name", ["single_label", "multi_label"])
def test_a_good_run_and_thin_evidence_get_no_advice(name, changes, keys):
    assert list(advice(name, changes)) == keys


def test_a_model_surely_better_than_its_baseline_gets_no_advice():
    assert advice(metrics=compared(0.8, 0.02, 0.18)) == {}
    assert list(advice(metrics=compared(0.88, -0.01, 0.05) | {"rows": 99})) == ["few_test_rows"]


def calibrated_decisions(
    accuracy: float, num_classes: int, share_changed: float, num_rows: int, seed: int
) -> HeldOut:
    """Return how sure and how right the calibrated decisions of a model are, whose accuracy on true labels is
    about `accuracy`; a share of the labels was changed to another class."""
    generator = np.random.default_rng(seed)
    lowest = 1 / num_classes
    size = (2, 4.5, 10)[seed % 3]
    mean = max((accuracy - lowest) / (1 - lowest), 0.01)
    confidence = lowest + (1 - lowest) * generator.beta(mean * size, (1 - mean) * size, num_rows)
    correct = generator.random(num_rows) < confidence
    is_changed = generator.random(num_rows) < share_changed
    # A wrong answer may be the label that it was changed to
    is_by_chance = generator.random(num_rows) < 1 / (num_classes - 1)
    calibrated = confidence * (1 - share_changed) + (1 - confidence) / (num_classes - 1) * share_changed
    return HeldOut(calibrated, np.where(is_changed, ~correct & is_by_chance, correct))


@pytest.mark.parametrize("num_classes", [2, 6, 119])
def test_no_clean_set_is_accused(num_classes):
    for num_rows in (120, 400, 900, 2436, 10_000):
        for accuracy in (0.42, 0.55, 0.65, 0.75, 0.85, 0.92, 0.97):
            for seed in range(6):
                possible_accuracy = max(accuracy, 1 / num_classes)
                held_out = calibrated_decisions(possible_accuracy, num_classes, 0.0, num_rows, seed)
                assert advice(changes={"held_out": held_out}) == {}, (num_rows, accuracy, seed)


@pytest.mark.parametrize("num_classes", [2, 6, 119])
def test_a_set_with_a_fifth_of_its_labels_changed_is_found(num_classes):
    num_accused = 0
    for seed in range(20):
        held_out = calibrated_decisions(0.97, num_classes, 0.2, 5000, seed)
        if list(advice(changes={"held_out": held_out})) == ["wrong_labels"]:
            num_accused += 1
    assert num_accused >= 19


GIVEN = ["--data.train", "[-a.csv, my rows.csv]", "--train.seed", "7"]
GIVEN += ["--model.prefix=", "--train.warmup=none"]


@pytest.mark.parametrize("name", ["some/model", "random"])
@pytest.mark.parametrize(
    ("max_steps", "longer"), [(None, "--train.epochs 6"), (4, "--train.epochs 6 --train.max_steps 8")]
)
def test_a_command_has_the_settings_that_were_given_and_the_change(name, max_steps, longer):
    """What the run has chosen by itself is chosen again."""
    words = [*GIVEN, "--model.name", name, "--output.dir", "run", "--output.resume"]
    if name == "random":
        words += ["--model.config.hidden_size", "64", "--model.architecture", "albert"]
    config = load_config(words)
    given = config
    # As assembled: with the epochs and the rate that follow from the data
    train = replace(config.train, epochs=3, learning_rate=2e-4, max_steps=max_steps)
    config = replace(config, train=train)
    dataset = SimpleNamespace(
        statistics={"train": {"classes": {"正面": 9, "-": 1}}},
        splits={"train": SimpleNamespace(targets=None), "dev": range(5)},
    )
    components = SimpleNamespace(
        config=config,
        dataset=dataset,
        task=SimpleNamespace(has_labels=False),
        plan=SimpleNamespace(steps_per_epoch=1),
    )
    evidence = evidence_of(components, "train", {}, {}, [])
    # Nobody labels more rows without a label
    assert evidence.class_rows == {"正面": 9}
    command = evidence.commands.training(evidence.longer)
    assert command.endswith(f" {longer}")
    python, script, *words = shlex.split(command)
    assert (python, script) == ("python", "run_single.py")
    again = load_config(words)
    train = replace(given.train, epochs=6, max_steps=max_steps and 8)
    assert again.train == train
    assert (again.data, again.model) == (given.data, given.model)
    assert again.output.dir is None
    assert again.output.resume == "never"

    other = load_config(shlex.split(evidence.commands.training(evidence.instead))[2:])
    assert other.model == ModelConfig(name=evidence.instead["model.name"], prefix="")
    assert other.train == given.train
    assert name == "random" or evidence.instead == {"model.name": "hfl/chinese-macbert-base"}
