"""What a search varies: python -m pytest tests/runs/test_search.py"""

import pytest

from app.errors import InputError

pytest.importorskip("optuna", reason="needs requirements/tune.txt")

from app.runs.search import read_space

SMALL = ["--config", "configs/small_bert.yaml"]


def choice(*values) -> tuple:
    return ("suggest_categorical", {"choices": list(values)})


def ends(kind: str, low: float, high: float, log: bool = False) -> tuple:
    return (f"suggest_{kind}", {"low": low, "high": high, "log": log})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.learning_rate", "[1e-5, 5e-4, log]", ends("float", 1e-5, 5e-4, log=True)),
        ("train.weight_decay", "[0, 1]", ends("float", 0, 1)),
        ("train.epochs", "[2, 8]", ends("int", 2, 8)),
        ("train.batch_size", "[16, 32, 64]", choice(16, 32, 64)),
        ("train.loss", "[focal, cross_entropy]", choice("focal", "cross_entropy")),
        ("model.dropout", "[null, 0.2]", choice(None, 0.2)),
        ("data.remove_spaces", "[true, false]", choice(True, False)),
        ("model.config.num_hidden_layers", "[1, 4]", ends("int", 1, 4)),
    ],
)
def test_ranges_and_choices_are_read(name, value, expected):
    assert read_space({name: value}, SMALL, "single_label") == {name: expected}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("train.epochs", "[3]", "must be a list, .* two or more different values"),
        ("train.epochs", "[3, 3]", "two or more different values"),
        ("train.epochs", "5", r"train\.epochs to search must be a list.*found 5"),
        ("train.epochs", "[8, 2]", "`low <= high` must hold"),
        ("train.epochs", "[8, 2", "must be a list"),
        ("train.weight_decay", "[0, 1, log]", "`low > 0` must hold for `log=True`"),
        ("train.epoch", "[2, 4]", "did you mean 'train.epochs'"),
        ("train.seed", "[1, 9]", "--space train.seed: this setting cannot be searched"),
        ("data.split_seed", "[1, 9]", "--space data.split_seed: this setting cannot be searched"),
        ("train.loss", "[focal, hinge]", "one of cross_entropy, focal, .*logit_adjusted, huber, found hinge"),
        (
            "train.loss",
            "[focal, huber]",
            "one of cross_entropy, focal, logit_adjusted with data.task single_label",
        ),
        ("train.batch_size", "[-1, 2]", "at least 1"),
    ],
)
def test_every_value_is_checked_before_the_search(name, value, message):
    with pytest.raises(InputError, match=message):
        read_space({name: value}, SMALL, "single_label")


def test_the_usual_space_leaves_out_what_is_fixed_and_what_the_task_has_not():
    usual = {"train.learning_rate": ends("float", 1e-5, 5e-4, log=True), "train.epochs": ends("int", 2, 8)}
    both = choice("cross_entropy", "focal")
    assert read_space({}, SMALL, "single_label") == usual | {"train.loss": both}
    assert read_space({}, ["--data.task=regression", "--data.train=x"], "regression") == usual
    words = ["--train.class_weights", "balanced", "--train.epochs", "3", "--train.learning_rate=1e-4"]
    assert read_space({}, words, "single_label") == {"train.loss": both}
    for asked in ({}, {"train.loss": "[focal, cross_entropy]"}):
        with pytest.raises(InputError, match="either fixed or searched, and .*train.loss would be both"):
            read_space(asked, [*words, "--train.loss", "focal"], "single_label")
