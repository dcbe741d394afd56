"""What a search varies: python -m pytest tests/runs/test_search.py"""

import pytest

from app.config.data_settings import TASKS
from app.errors import InputError

pytest.importorskip("optuna", reason="needs requirements/tune.txt")
import optuna

from app.runs.search import parse_values, read_space

Choice = optuna.distributions.CategoricalDistribution
Float, Int = optuna.distributions.FloatDistribution, optuna.distributions.IntDistribution
SMALL = ["--config", "configs/small_bert.yaml"]
LOSSES = TASKS["single_label"].losses


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.learning_rate", "[1e-5, 5e-4, log]", Float(1e-5, 5e-4, log=True)),
        ("train.weight_decay", "[0, 1]", Float(0.0, 1.0)),
        ("train.epochs", "[2, 8]", Int(2, 8)),
        ("train.batch_size", "[16, 32, 64]", Choice((16, 32, 64))),
        ("train.loss", "[focal, cross_entropy]", Choice(("focal", "cross_entropy"))),
        ("model.dropout", "[null, 0.2]", Choice((None, 0.2))),
        ("data.remove_spaces", "[true, false]", Choice((True, False))),
        ("model.config.num_hidden_layers", "[1, 4]", Int(1, 4)),
    ],
)
def test_ranges_and_choices_are_read(name, value, expected):
    assert parse_values(name, value) == expected


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
        ("train.seed", "[1, 9]", "there is no setting 'train.seed' to search.* but train.seed and"),
        ("data.split_seed", "[1, 9]", "and of data data.max_length"),
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
        read_space({name: value}, SMALL, LOSSES)


def test_the_usual_space_leaves_out_what_is_fixed_and_what_the_task_has_not():
    usual = {"train.learning_rate": Float(1e-5, 5e-4, log=True), "train.epochs": Int(2, 8)}
    both = Choice(("cross_entropy", "focal"))
    assert read_space({}, SMALL, LOSSES) == usual | {"train.loss": both}
    assert read_space({}, [], TASKS["regression"].losses) == usual
    words = ["--train.class_weights", "balanced", "--train.epochs", "3", "--train.learning_rate=1e-4"]
    assert read_space({}, words, LOSSES) == {"train.loss": both}
    for asked in ({}, {"train.loss": "[focal, cross_entropy]"}):
        with pytest.raises(InputError, match="either fixed or searched, and .*train.loss would be both"):
            read_space(asked, [*words, "--train.loss", "focal"], LOSSES)
