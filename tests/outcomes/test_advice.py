"""What next? python -m pytest tests/outcomes/test_advice.py"""

import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from app.config.command_line import load_config
from app.evaluation.measures.selective import RowDecisions
from app.outcomes.advice import MAX_SENTENCES, Evidence, render_advice, what_next
from app.run.final_report import evidence_of, reading_more
from tests.outcomes.rows_case import fitted_outcome, random_rows, report_metrics
from tests.spoken import spoken_in

NAMES = ["中性", "正面", "负面"]


def good_run(task: str = "single_label") -> tuple:
    """Return an outcome, and the evidence of a run of which nothing is wrong."""
    labels, logits = random_rows(task, 400, 3)
    outcome = fitted_outcome(task, NAMES, labels, logits)
    metrics = report_metrics(outcome, labels, logits)
    confidence = np.linspace(0, 1, 400)
    # Wrong only where it is not sure
    decisions = RowDecisions(confidence, confidence > 0.3)
    history = [{"step": 10, "loss": 0.5, "train_loss": 0.6}, {"step": 20, "loss": 0.495, "train_loss": 0.4}]
    return outcome, Evidence(
        metrics=metrics,
        history=history,
        decisions=decisions,
        class_rows=dict.fromkeys(NAMES, 500),
        dev_rows=400,
        is_pretrained=True,
        longer="--train.epochs 6",
        enough=None,
        other_model="--model.name hfl/chinese-macbert-base",
        pretrained="--model.name e5-small-zh",
        reading_more="--data.max_length 256",
    )


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_a_run_of_which_nothing_is_wrong_gets_no_advice(task):
    assert what_next(*good_run(task)) == []


def worse(metrics: dict, key: str) -> dict:
    return metrics | {key: 0.1}


def two_classes(metrics: dict) -> dict:
    return metrics | {"confusion_matrix": [[50, 30, 0], [40, 60, 0], [0, 0, 220]]}


LONG = {
    "whole": {"rows": 300, "accuracy": 0.9, "interval": [0.86, 0.93]},
    "not_whole": {"rows": 100, "accuracy": 0.7, "interval": [0.6, 0.79]},
}
ROSE = [{"step": 10, "loss": 0.5, "train_loss": 0.3}, {"step": 20, "loss": 0.7, "train_loss": 0.05}]
FELL = [{"step": 10, "loss": 0.5, "train_loss": 0.7}, {"step": 20, "loss": 0.45, "train_loss": 0.4}]


@pytest.mark.parametrize(
    ("what", "change", "named"),
    [
        (
            "no_better",
            lambda e: {"metrics": worse(e.metrics, "macro_f1")},
            "--model.name hfl/chinese-macbert-base",
        ),
        (
            "few_steps",
            lambda e: {"metrics": worse(e.metrics, "macro_f1"), "enough": "--train.epochs auto"},
            "--train.epochs auto",
        ),
        (
            "random_weights",
            lambda e: {"metrics": worse(e.metrics, "macro_f1"), "is_pretrained": False},
            "--model.name e5-small-zh",
        ),
        ("still_falls", lambda e: {"history": FELL}, "--train.epochs 6"),
        (
            "few_test_rows",
            lambda e: {"metrics": e.metrics | {"rows": 30}},
            "python -m app cross-validate --folds 5",
        ),
        (
            "wrong_labels",
            lambda e: {"decisions": RowDecisions(np.linspace(0, 1, 400), np.arange(400) % 5 > 0)},
            "app cross-validate --folds 5",
        ),
        (
            "few_rows",
            lambda e: {"class_rows": {"中性": 500, "负面": 7}},
            "python -m app suggest new.csv next.csv",
        ),
        ("cut_texts", lambda e: {"metrics": e.metrics | {"long_texts": LONG}}, "--data.max_length 256"),
        ("confused", lambda e: {"metrics": two_classes(e.metrics)}, "app cross-validate --folds 5"),
        ("by_heart", lambda e: {"history": ROSE}, "app learning-curve"),
    ],
)
def test_what_is_wrong_is_said_with_the_setting_or_verb_to_try(what, change, named):
    outcome, evidence = good_run()
    changed = replace(evidence, **change(evidence))
    (advice,) = what_next(outcome, changed)
    assert advice.what == what
    english, chinese = advice.sentence(), spoken_in("zh", advice.sentence)
    assert english != chinese
    # To be copied: no full stop is part of it
    assert all(re.search(rf"(^|[^\w-]){re.escape(named)}(?![\w.。])", words) for words in (english, chinese))
    assert render_advice([advice]).splitlines()[1:] == [f"  - {english}"]


def test_thin_evidence_says_nothing_and_there_are_at_most_five_sentences():
    outcome, evidence = good_run()
    assert what_next(outcome, replace(evidence, history=FELL, dev_rows=40)) == []
    few = RowDecisions(np.linspace(0, 1, 100), np.arange(100) % 5 > 0)
    assert what_next(outcome, replace(evidence, decisions=few)) == []
    metrics = two_classes(evidence.metrics) | {"long_texts": LONG, "rows": 99}
    noisy = RowDecisions(np.linspace(0, 1, 400), np.arange(400) % 5 > 0)
    rows = {"中性": 3}
    all_wrong = replace(evidence, metrics=metrics, history=ROSE, decisions=noisy, class_rows=rows)
    assert len(what_next(outcome, all_wrong)) == MAX_SENTENCES
    # The loss falls because the learning rate does: what is trained on is known already
    known = [FELL[0], FELL[1] | {"train_loss": 0.2}]
    assert what_next(outcome, replace(evidence, history=known)) == []
    # Wrong labels explain why classes are taken for each other, and of two classes it says nothing new
    mixed = replace(evidence, metrics=two_classes(evidence.metrics))
    assert [one.what for one in what_next(outcome, replace(mixed, decisions=noisy))] == ["wrong_labels"]
    assert what_next(outcome, replace(mixed, class_rows=dict.fromkeys(NAMES[:2], 500))) == []
    # A model that is not good yet does not judge labels
    weak = replace(evidence, history=FELL, decisions=noisy)
    assert [one.what for one in what_next(outcome, weak)] == ["still_falls"]


@pytest.mark.parametrize(
    ("own", "longer", "enough"),
    [
        ([], "--train.epochs 6", "--train.epochs auto"),
        (["--train.max_steps", "4"], "--train.max_steps 8", "--train.epochs auto --train.max_steps null"),
    ],
)
def test_every_setting_that_is_named_can_be_added(tmp_path, own, longer, enough):
    own = ["--data.train", str(tmp_path / "rows.csv"), *own]
    config = load_config(own)
    # As assembled: with the epochs that follow from the data
    config = replace(config, train=replace(config.train, epochs=3))
    files = {"train": SimpleNamespace(has_pairs=False)}
    splits = {"train": range(9), "dev": range(5)}
    components = SimpleNamespace(
        dataset=SimpleNamespace(statistics={"train": {}}, files=files, splits=splits),
        model=SimpleNamespace(model=SimpleNamespace(config=SimpleNamespace(max_position_embeddings=512))),
        outcome=SimpleNamespace(has_labels=False),
        plan=SimpleNamespace(steps_per_epoch=4),
    )
    found = evidence_of(tmp_path, config, components, "train", {}, {})
    assert (found.longer, found.enough, found.reading_more) == (longer, enough, "--data.max_length 256")
    for setting in (longer, enough, found.other_model, found.pretrained, found.reading_more):
        asked = load_config([*own, *shlex.split(setting)])
        assert asked.data.train == config.data.train
        name, value = setting.split()[:2]
        group, key = name.removeprefix("--").split(".")
        assert str(getattr(getattr(asked, group), key)) == value
    assert load_config([*own, *shlex.split(enough)]).train.max_steps is None


@pytest.mark.parametrize(
    ("settings", "has_pairs", "most", "more"),
    [
        ([], False, 512, "--data.max_length 256"),
        (["--data.max_length", "512"], False, 512, "--data.long windows"),
        (["--data.max_length", "512"], True, 512, None),
        (["--data.max_length", "64", "--data.long", "windows"], False, 512, "--data.max_windows 16"),
    ],
)
def test_more_of_a_long_text_is_read_in_the_way_that_the_model_can(settings, has_pairs, most, more):
    assert reading_more(load_config(settings).data, has_pairs, most) == more
