"""What a search varies: python -m pytest tests/runs/test_search_space.py"""

import pytest

from app.config.data_settings import TASKS
from app.errors import InputError

optuna = pytest.importorskip("optuna", reason="needs requirements/tune.txt")
search_space = pytest.importorskip("app.runs.search_space")
Choice = optuna.distributions.CategoricalDistribution
Float, Int = optuna.distributions.FloatDistribution, optuna.distributions.IntDistribution
parse_values, read_space, draw = search_space.parse_values, search_space.read_space, search_space.draw
split_words, as_words = search_space.split_words, search_space.as_words

SMALL = ["--config", "configs/small_bert.yaml"]
LOSSES = TASKS["single_label"].losses


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.learning_rate", "[1e-5, 5e-4, log]", Float(1e-5, 5e-4, log=True)),
        ("train.weight_decay", "[0, 1]", Float(0.0, 1.0)),
        ("train.epochs", "[2, 8]", Int(2, 8)),
        ("train.batch_size", "[16, 32, choice]", Choice((16, 32))),
        ("train.batch_size", [16, 32, 64], Choice((16, 32, 64))),
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
        ("train.epochs", "5", "two or more different values"),
        ("train.epochs", "[8, 2]", "`low <= high` must hold"),
        ("train.epochs", "[8, 2", "must be a list"),
        ("train.weight_decay", "[0, 1, log]", "`low > 0` must hold for `log=True`"),
        ("train.loss", "[focal, cross_entropy, log]", "log needs two numbers"),
        ("train.epoch", "[2, 4]", "did you mean 'train.epochs'"),
        ("output.dir", "[a, b]", "there is no setting 'output.dir' to search"),
        ("train.seed", "[1, 9]", "cannot be searched: a lucky seed"),
        ("train.best_metric", "[loss, accuracy]", "cannot be searched: it judges the trials"),
        ("data.split_seed", "[1, 9]", "cannot be searched: with other rows"),
    ],
)
def test_what_is_no_range_is_refused(name, value, message):
    with pytest.raises(InputError, match=message):
        parse_values(name, value)


def test_the_command_line_wins_over_the_file(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text("train.epochs: [2, 8]\ntrain:\n  loss: [focal, cross_entropy]\n")
    spaces, settings = split_words([*SMALL, "--space.train.epochs", "[3, 4]", "--train.batch_size", "8"])
    assert settings == [*SMALL, "--train.batch_size", "8"]
    space = read_space(path, spaces, settings, LOSSES)
    assert space == {"train.epochs": Int(3, 4), "train.loss": Choice(("focal", "cross_entropy"))}
    with pytest.raises(InputError, match=r"either fixed or searched, and train\.loss is both"):
        read_space(path, spaces, [*settings, "--train.loss=focal"], LOSSES)
    with pytest.raises(InputError, match="is given twice"):
        split_words(["--space.train.epochs", "[3, 4]", "--space.train.epochs=[2, 3]"])
    with pytest.raises(InputError, match=r"train\.epochs to search must be a list.*found None"):
        read_space(None, split_words(["--space.train.epochs"])[0], settings, LOSSES)


def test_every_value_is_checked_before_the_search():
    for name, value, message in (
        ("train.loss", "[focal, hinge]", "one of cross_entropy, focal, .*zlpr, huber, found hinge"),
        ("train.loss", "[focal, zlpr]", "one of cross_entropy, focal, logit_adjusted for this task"),
        ("train.batch_size", "[-1, 2]", "at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            read_space(None, {name: value}, SMALL, LOSSES)


def test_the_usual_space_leaves_out_what_is_fixed_or_contradicts(tmp_path):
    usual = read_space(None, {}, [], LOSSES)
    assert usual["train.loss"] == Choice(("cross_entropy", "focal", "logit_adjusted"))
    assert set(usual) == {"train.learning_rate", "train.epochs", "train.loss"}
    balanced = read_space(None, {}, ["--train.class_weights", "balanced", "--train.epochs", "3"], LOSSES)
    assert [*balanced.values()] == [Float(1e-5, 5e-4, log=True), Choice(("cross_entropy", "focal"))]
    path = tmp_path / "fixed.yaml"
    path.write_text("train: {epochs: 2, learning_rate: 1.0e-4, loss: focal}\n")
    with pytest.raises(InputError, match="all of them are fixed"):
        read_space(None, {}, ["--config", str(path)], LOSSES)


def test_a_trial_gets_values_of_the_range():
    trial = optuna.create_study().ask()
    assert 2 <= draw(trial, "train.epochs", Int(2, 8)) <= 8
    assert isinstance(trial.params["train.epochs"], int)
    assert 1e-5 <= draw(trial, "train.learning_rate", Float(1e-5, 5e-4, log=True)) <= 5e-4
    assert trial.distributions["train.learning_rate"].log
    values = {"train.loss": "focal", "model.dropout": None, "data.remove_spaces": True, "train.epochs": 3}
    assert as_words(values)[1::2] == ["focal", "null", "true", "3"]
