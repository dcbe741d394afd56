"""What next? python -m pytest tests/report/test_advice.py"""

import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from app.config.command_line import load_config
from app.report.advice import Evidence, render_advice, what_next
from app.training.final_report import evidence_of
from tests.report.rows_case import fitted_task, random_rows, report_metrics
from tests.spoken import spoken_in

NAMES = ["中性", "正面", "负面"]


def good_run(name: str = "single_label") -> tuple:
    """Return a task, and the evidence of a run of which nothing is wrong."""
    labels, logits = random_rows(name, 400, 3)
    task = fitted_task(name, NAMES, labels, logits)
    confidence = np.linspace(0, 1, 400)
    history = [{"step": 10, "loss": 0.5, "train_loss": 0.6}, {"step": 20, "loss": 0.495, "train_loss": 0.4}]
    return task, Evidence(
        metrics=report_metrics(task, labels, logits),
        history=history,
        confidence=confidence,
        # Wrong only where it is not sure
        correct=confidence > 0.3,
        class_rows=dict.fromkeys(NAMES, 500),
        dev_rows=400,
        longer="--train.epochs 6",
        instead="--model.name hfl/chinese-macbert-base",
    )


@pytest.mark.parametrize("name", ["single_label", "multi_label"])
def test_a_run_of_which_nothing_is_wrong_gets_no_advice(name):
    assert what_next(*good_run(name)) == []


FELL = [{"step": 10, "loss": 0.5, "train_loss": 0.7}, {"step": 20, "loss": 0.45, "train_loss": 0.4}]
ONE_IN_FIVE_WRONG = {"confidence": np.linspace(0.5, 1, 1000), "correct": np.arange(1000) % 5 > 0}


@pytest.mark.parametrize(
    ("what", "change", "named"),
    [
        (
            "no_better",
            lambda e: {"metrics": e.metrics | {"macro_f1": 0.1}},
            "--model.name hfl/chinese-macbert-base",
        ),
        ("still_falls", lambda e: {"history": FELL}, "--train.epochs 6"),
        (
            "few_test_rows",
            lambda e: {"metrics": e.metrics | {"rows": 30}},
            "python -m app cross-validate --folds 5",
        ),
        ("wrong_labels", lambda e: ONE_IN_FIVE_WRONG, "app cross-validate --folds 5"),
        (
            "few_rows",
            lambda e: {"class_rows": {"中性": 500, "负面": 7}},
            "python -m app suggest new.csv next.csv",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_setting_or_verb_to_try(what, change, named):
    task, evidence = good_run()
    (advice,) = what_next(task, replace(evidence, **change(evidence)))
    assert advice.what == what
    english, chinese = advice.sentence(), spoken_in("zh", advice.sentence)
    assert english != chinese
    # To be copied: no full stop is part of it
    assert all(re.search(rf"(^|[^\w-]){re.escape(named)}(?![\w.。])", words) for words in (english, chinese))
    assert render_advice([advice]).splitlines()[1:] == [f"  - {english}"]


def test_thin_evidence_says_nothing():
    task, evidence = good_run()
    assert what_next(task, replace(evidence, history=FELL, dev_rows=40)) == []
    few = {"confidence": np.linspace(0.5, 1, 600), "correct": np.arange(600) % 5 > 0}
    assert what_next(task, replace(evidence, **few)) == []
    # The loss falls because the learning rate does: what is trained on is known already
    known = [FELL[0], FELL[1] | {"train_loss": 0.2}]
    assert what_next(task, replace(evidence, history=known)) == []
    # A model that is not good yet does not judge labels
    weak = replace(evidence, history=FELL, **ONE_IN_FIVE_WRONG)
    assert [one.what for one in what_next(task, weak)] == ["still_falls"]


def rows_of(accuracy: float, num_classes: int, changed: float, num_rows: int, seed: int) -> dict:
    """Return how sure and how right the calibrated decisions of a model are, whose accuracy on true labels is
    about `accuracy`; a share of the labels was changed to another class."""
    generator = np.random.default_rng(seed)
    least, spread = 1 / num_classes, generator.beta(*((1, 1), (3, 1.5), (8, 2))[seed % 3], num_rows)
    powers = np.geomspace(0.02, 50, 200)
    means = np.array([(least + (1 - least) * spread**power).mean() for power in powers])
    confidence = least + (1 - least) * spread ** powers[np.abs(means - accuracy).argmin()]
    correct = generator.random(num_rows) < confidence
    is_changed = generator.random(num_rows) < changed
    by_chance = generator.random(num_rows) < 1 / (num_classes - 1)
    told = confidence * (1 - changed) + (1 - confidence) / (num_classes - 1) * changed
    return {"confidence": told, "correct": np.where(is_changed, ~correct & by_chance, correct)}


@pytest.mark.parametrize("num_rows", [120, 400, 900, 2436, 10_000])
@pytest.mark.parametrize("num_classes", [2, 6, 119])
def test_no_clean_set_is_accused_however_weak_the_model(num_classes, num_rows):
    task, evidence = good_run()
    for accuracy in (0.42, 0.55, 0.65, 0.75, 0.85, 0.92, 0.97):
        for seed in range(6):
            rows = rows_of(max(accuracy, 1 / num_classes), num_classes, 0.0, num_rows, seed)
            assert what_next(task, replace(evidence, **rows)) == [], (accuracy, seed)


@pytest.mark.parametrize("num_classes", [2, 6, 119])
def test_a_set_with_a_fifth_of_its_labels_changed_is_found_by_a_good_model(num_classes):
    task, evidence = good_run()
    found = [
        [
            one.what
            for one in what_next(task, replace(evidence, **rows_of(0.97, num_classes, 0.2, 5000, seed)))
        ]
        for seed in range(20)
    ]
    assert found.count(["wrong_labels"]) >= 19


@pytest.mark.parametrize(
    ("own", "longer", "instead"),
    [
        ([], "--train.epochs 6", "--train.epochs auto"),
        (["--train.max_steps", "4"], "--train.max_steps 8", "--train.epochs auto --train.max_steps null"),
    ],
)
def test_every_setting_that_is_named_can_be_added(tmp_path, own, longer, instead):
    own = ["--data.train", str(tmp_path / "rows.csv"), *own]
    config = load_config(own)
    # As assembled: with the epochs that follow from the data
    config = replace(config, train=replace(config.train, epochs=3))
    splits = {"train": range(9), "dev": range(5)}
    components = SimpleNamespace(
        dataset=SimpleNamespace(statistics={"train": {}}, splits=splits),
        task=SimpleNamespace(has_labels=False),
        plan=SimpleNamespace(steps_per_epoch=4),
    )
    models = {
        "enough": replace(config.model, name="some/model"),
        "other": replace(config.model, name="some/model", head="linear"),
        "pretrained": replace(config.model, name=None),
    }
    found = {
        what: evidence_of(tmp_path, replace(config, model=model), components, "train", {}, {})
        for what, model in models.items()
    }
    assert (found["enough"].longer, found["enough"].instead) == (longer, instead)
    assert found["other"].instead == "--model.name hfl/chinese-macbert-base"
    for setting in (longer, *(of.instead for of in found.values())):
        asked = load_config([*own, *shlex.split(setting)])
        assert asked.data.train == config.data.train
        name, value = setting.split()[:2]
        group, key = name.removeprefix("--").split(".")
        assert str(getattr(getattr(asked, group), key)) == value
