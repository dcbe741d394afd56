"""What next? python -m pytest tests/outcomes/test_advice.py"""

import shlex
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from app.config.command_line import load_config
from app.evaluation.measures.selective import RowDecisions
from app.outcomes.advice import MAX_SENTENCES, Evidence, render_advice, what_next, with_setting
from app.run.evidence import OF_RUNS, evidence_of, start_of, words_of_user
from tests.outcomes.rows_case import fitted_outcome, random_rows, report_metrics

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
        folder="checkpoints/a",
        again_longer="python run_single.py --data.train a.csv --train.epochs 6",
        again_enough=None,
        again_other_model="python run_single.py --data.train a.csv --model.name hfl/chinese-macbert-base",
        again_pretrained="python run_single.py --data.train a.csv --model.name e5-small-zh",
        again_reading_more="python run_single.py --data.train a.csv --data.max_length 256",
        verb="python -m app {} --data.train a.csv",
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
    ("what", "change", "command"),
    [
        ("no_better", lambda e: {"metrics": worse(e.metrics, "macro_f1")}, "--model.name hfl/"),
        (
            "few_steps",
            lambda e: {"metrics": worse(e.metrics, "macro_f1"), "again_enough": "run_single.py"},
            "run_single.py",
        ),
        (
            "random_weights",
            lambda e: {"metrics": worse(e.metrics, "macro_f1"), "is_pretrained": False},
            "a.csv --model.name e5-small-zh",
        ),
        ("still_falls", lambda e: {"history": FELL}, "--train.epochs 6"),
        ("few_test_rows", lambda e: {"metrics": e.metrics | {"rows": 30}}, "app cross-validate --folds 5"),
        (
            "wrong_labels",
            lambda e: {"decisions": RowDecisions(np.linspace(0, 1, 400), np.arange(400) % 5 > 0)},
            "app cross-validate --folds 5",
        ),
        ("few_rows", lambda e: {"class_rows": {"中性": 500, "负面": 7}}, "suggest --checkpoint"),
        ("cut_texts", lambda e: {"metrics": e.metrics | {"long_texts": LONG}}, "--data.max_length 256"),
        ("confused", lambda e: {"metrics": two_classes(e.metrics)}, "app cross-validate --folds 5"),
        ("by_heart", lambda e: {"history": ROSE}, "app learning-curve"),
    ],
)
def test_what_is_wrong_is_said_with_its_command(what, change, command):
    outcome, evidence = good_run()
    changed = replace(evidence, **change(evidence))
    (advice,) = what_next(outcome, changed)
    assert advice.what == what
    assert command in advice.command
    assert render_advice([advice]).count("\n") == 2
    assert advice.sentence("zh") != advice.sentence("en")


@pytest.mark.parametrize("own", ["--train.epochs 3", "--train.epochs=3"])
def test_a_command_has_a_setting_once(own):
    command = f"torchrun --nproc_per_node=2 run_ddp.py {own} --data.train '我的 数据.csv'"
    wanted = "torchrun --nproc_per_node=2 run_ddp.py --data.train '我的 数据.csv' --train.epochs 6"
    assert with_setting(command, "--train.epochs", 6) == wanted


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
    ("own", "steps"),
    [
        (["--config", "FILE"], 0),
        (["--config=FILE", "--train.max_steps=4", "--model.config.num_hidden_layers", "1"], 4),
        (["--config", "FILE", "--output.dir", "x", "--data.text_column", "内容"], 0),
    ],
)
def test_every_command_has_the_data_of_the_run_and_can_be_run(tmp_path, monkeypatch, own, steps):
    """Also where a file of settings names data, folder and random weights."""
    file = tmp_path / "我的 settings.yaml"
    file.write_text(
        f"data: {{train: {tmp_path / 'rows.csv'}, label_column: 标签}}\noutput: {{dir: {tmp_path / 'run'}}}\n"
        "model: {config: {num_hidden_layers: 2}}\ntrain: {learning_rate: 5.0e-4}\n"
    )
    own = [word.replace("FILE", str(file)) for word in own]
    monkeypatch.setattr(sys, "argv", ["run_single.py", *own])
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
    found = evidence_of(tmp_path, config, components, "python run_single.py", "train", {}, {})
    again = (found.again_longer, found.again_other_model, found.again_pretrained, found.again_reading_more)
    verb = found.verb.format("learning-curve")
    for command, skipped in (*((command, 2) for command in again), (verb, 4)):
        asked = load_config(shlex.split(command)[skipped:])
        assert (asked.data.train, asked.data.label_column) == (config.data.train, "标签")
        assert asked.data.text_column == config.data.text_column
        assert asked.output.dir is None
        wanted = 2 * steps if command == found.again_longer else steps
        assert asked.train.max_steps == (wanted or None)
    enough = load_config(shlex.split(found.again_enough)[2:])
    assert (enough.train.epochs, enough.train.max_steps, enough.data) == ("auto", None, config.data)
    pretrained = load_config(shlex.split(found.again_pretrained)[2:])
    assert (pretrained.model.config, pretrained.train.learning_rate) == ({}, None)
    assert pretrained.model.name
    assert load_config(shlex.split(found.again_reading_more)[2:]).data.max_length == 256


def test_the_command_is_the_user_s_own_without_the_run_folder(tmp_path):
    words = ["run_ddp.py", "--data.train", "我的 数据.csv", "--output.dir", "x", "--output.resume=auto"]
    assert (
        words_of_user([*words, "--config", "a.yaml"], tmp_path)
        == "--data.train '我的 数据.csv' --config a.yaml"
    )
    assert words_of_user(["pytest"], tmp_path) == f"--config {tmp_path / 'config.yaml'}"
    assert (
        words_of_user([*words, "--train.nprocs", "2"], tmp_path, True, OF_RUNS)
        == "--data.train '我的 数据.csv'"
    )
    assert start_of("single", 1) == "python run_single.py"
    assert start_of("ddp", 2) == "torchrun --nproc_per_node=2 run_ddp.py"
