"""What next?"""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from app.config.command_line import load_config
from app.report.advice import render_advice, what_next
from app.tasks import open_task
from app.training.advice_evidence import evidence_of
from tests.verbs import spoken_in

NAMES = ["中性", "正面", "负面"]
FELL = [{"step": 10, "loss": 0.5, "train_loss": 0.7}, {"step": 20, "loss": 0.45, "train_loss": 0.4}]
ONE_IN_FIVE_WRONG = {"held_out": (np.linspace(0.5, 1, 1000), np.arange(1000) % 5 > 0)}
CONFIDENCE = np.linspace(0, 1, 400)


def advice(name: str = "single_label", change: dict | None = None, **metrics) -> dict[str, str]:
    """Return the advice for a run of which nothing is wrong, but for what is changed."""
    task = open_task(name, NAMES)
    key = task.main_metric
    figures = {key: 0.9, "rows": 400, "step": 20, "intervals": {key: [0.88, 0.92]}}
    evidence = {
        "metrics": figures | {"baselines": {"majority class": {key: 0.25}}} | metrics,
        "history": [{"step": 10, "loss": 0.5}, {"step": 20, "loss": 0.495, "train_loss": 0.4}],
        # Wrong only where it is not sure
        "held_out": (CONFIDENCE, CONFIDENCE > 0.3),
        "class_rows": dict.fromkeys(NAMES, 500),
        "dev_rows": 400,
        "longer": "--train.epochs 6",
        "instead": "--model.name hfl/chinese-macbert-base",
        "folder": Path("checkpoints/sample-001"),
    }
    return what_next(task, **evidence | (change or {}))


@pytest.mark.parametrize(
    ("what", "change", "metrics", "named"),
    [
        ("no_better", {}, {"macro_f1": 0.1}, "--model.name hfl/chinese-macbert-base"),
        ("still_falls", {"history": FELL}, {}, "--train.epochs 6"),
        ("few_test_rows", {}, {"rows": 30}, "python -m app cross-validate --folds 5"),
        ("few_test_rows", {}, {"rows": 30, "intervals": {"macro_f1": [1.0, 1.0]}}, "0.88"),
        ("wrong_labels", ONE_IN_FIVE_WRONG, {}, "app cross-validate --folds 5"),
        ("few_rows", {"class_rows": {"中性": 500, "负面": 7}}, {}, "app suggest new.csv next.csv"),
    ],
)
def test_what_is_wrong_is_said_with_the_setting_or_verb_to_try(what, change, metrics, named):
    english, chinese = (spoken_in(of, lambda: advice(change=change, **metrics)) for of in ("en", "zh"))
    assert list(english) == list(chinese) == [what]
    assert english[what] != chinese[what]
    # To be copied: no full stop is part of it
    for words in (english[what], chinese[what]):
        assert re.search(rf"(^|[^\w-]){re.escape(named)}(?![\w.。])", words)
    assert render_advice(english).splitlines()[1:] == [f"  - {english[what]}"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"history": FELL, "dev_rows": 40}, []),
        ({"held_out": (np.linspace(0.5, 1, 600), np.arange(600) % 5 > 0)}, []),
        # The loss falls because the learning rate does: what is trained on is known already
        ({"history": [FELL[0], FELL[1] | {"train_loss": 0.2}]}, []),
        # A model that is not good yet does not judge labels
        ({"history": FELL} | ONE_IN_FIVE_WRONG, ["still_falls"]),
    ],
)
@pytest.mark.parametrize("name", ["single_label", "multi_label"])
def test_a_good_run_and_thin_evidence_get_no_advice(name, change, said):
    assert list(advice(name, change)) == said


def rows_of(accuracy: float, num_classes: int, changed: float, num_rows: int, seed: int) -> dict:
    """Return how sure and how right the calibrated decisions of a model are, whose accuracy on true labels is
    about `accuracy`; a share of the labels was changed to another class."""
    generator = np.random.default_rng(seed)
    least = 1 / num_classes
    size = (2, 4.5, 10)[seed % 3]
    mean = max((accuracy - least) / (1 - least), 0.01)
    confidence = least + (1 - least) * generator.beta(mean * size, (1 - mean) * size, num_rows)
    correct = generator.random(num_rows) < confidence
    is_changed = generator.random(num_rows) < changed
    by_chance = generator.random(num_rows) < 1 / (num_classes - 1)
    told = confidence * (1 - changed) + (1 - confidence) / (num_classes - 1) * changed
    return {"held_out": (told, np.where(is_changed, ~correct & by_chance, correct))}


@pytest.mark.parametrize("num_classes", [2, 6, 119])
def test_no_clean_set_is_accused_and_one_with_a_fifth_of_its_labels_changed_is_found(num_classes):
    for num_rows in (120, 400, 900, 2436, 10_000):
        for accuracy in (0.42, 0.55, 0.65, 0.75, 0.85, 0.92, 0.97):
            for seed in range(6):
                rows = rows_of(max(accuracy, 1 / num_classes), num_classes, 0.0, num_rows, seed)
                assert advice(change=rows) == {}, (num_rows, accuracy, seed)
    found = [list(advice(change=rows_of(0.97, num_classes, 0.2, 5000, seed))) for seed in range(20)]
    assert found.count(["wrong_labels"]) >= 19


@pytest.mark.parametrize("name", ["some/model", "random"])
@pytest.mark.parametrize("steps", [None, 4])
def test_every_setting_that_is_named_can_be_added(name, steps):
    config = load_config(["--data.train", "rows.csv"])
    # As assembled: with the epochs that follow from the data
    train = replace(config.train, epochs=3, max_steps=steps)
    config = replace(config, train=train, model=replace(config.model, name=name))
    dataset = SimpleNamespace(statistics={"train": {}}, splits={"train": range(9), "dev": range(5)})
    task = SimpleNamespace(has_labels=False)
    found = evidence_of(SimpleNamespace(config=config, dataset=dataset, task=task), "train", {}, {}, [])
    assert found["longer"] == ("--train.epochs 6 --train.max_steps 8" if steps else "--train.epochs 6")
    assert name == "random" or found["instead"] == "--model.name hfl/chinese-macbert-base"
    for setting in (found["longer"], found["instead"]):
        load_config(["--data.train", "rows.csv", *shlex.split(setting)])
