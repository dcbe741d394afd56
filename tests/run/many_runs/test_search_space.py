"""What a search varies: python -m pytest tests/run/many_runs/test_search_space.py"""

import pytest
import yaml

from app.config.command_line import load_config
from app.config.data_settings import TASKS
from app.errors import InputError
from app.run.many_runs.search_space import Range, parse_range, read_space, split_words, without_defaults

SMALL = ["--config", "configs/small_bert.yaml"]
LOSSES = TASKS["single_label"].losses


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.learning_rate", "[1e-5, 5e-4, log]", Range("train.learning_rate", 1e-5, 5e-4, True)),
        ("train.weight_decay", "[0, 1]", Range("train.weight_decay", 0.0, 1.0)),
        ("train.epochs", "[2, 8]", Range("train.epochs", 2, 8)),
        ("train.batch_size", "[16, 32, choice]", Range("train.batch_size", choices=(16, 32))),
        ("train.batch_size", [16, 32, 64], Range("train.batch_size", choices=(16, 32, 64))),
        ("train.loss", "[focal, cross_entropy]", Range("train.loss", choices=("focal", "cross_entropy"))),
        ("model.dropout", "[null, 0.2]", Range("model.dropout", choices=(None, 0.2))),
        ("data.remove_spaces", "[true, false]", Range("data.remove_spaces", choices=(True, False))),
        ("model.config.num_hidden_layers", "[1, 4]", Range("model.config.num_hidden_layers", 1, 4)),
    ],
)
def test_a_range_is_read_and_written(name, value, expected):
    read = parse_range(name, value)
    assert read == expected
    assert type(read.low) is type(expected.low)
    assert parse_range(name, str(read)) == read


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("train.epochs", "[3]", "must be two or more"),
        ("train.epochs", "[3, 3]", "must be two or more"),
        ("train.epochs", "5", "must be two or more"),
        ("train.epochs", "[8, 2]", "low must be below high"),
        ("train.weight_decay", "[0, 1, log]", "above 0 with log"),
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
        parse_range(name, value)


def test_the_command_line_wins_over_the_file(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text("train.epochs: [2, 8]\ntrain:\n  loss: [focal, cross_entropy]\n")
    spaces, settings = split_words([*SMALL, "--space.train.epochs", "[3, 4]", "--train.batch_size", "8"])
    assert settings == [*SMALL, "--train.batch_size", "8"]
    space = {one.name: str(one) for one in read_space(path, spaces, settings, LOSSES)}
    assert space == {"train.epochs": "[3, 4]", "train.loss": "[focal, cross_entropy]"}
    with pytest.raises(InputError, match=r"either fixed or searched, and train\.loss is both"):
        read_space(path, spaces, [*settings, "--train.loss=focal"], LOSSES)
    with pytest.raises(InputError, match="is given twice"):
        split_words(["--space.train.epochs", "[3, 4]", "--space.train.epochs=[2, 3]"])


def test_every_value_is_checked_before_the_search():
    for name, value, message in (
        ("train.loss", "[focal, hinge]", "one of cross_entropy, focal, .*zlpr, huber, found hinge"),
        ("train.loss", "[focal, zlpr]", "one of cross_entropy, focal, logit_adjusted for this task"),
        ("train.batch_size", "[-1, 2]", "at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            read_space(None, {name: value}, SMALL, LOSSES)


def test_the_usual_space_leaves_out_what_is_fixed_or_contradicts(tmp_path):
    names = {one.name: one for one in read_space(None, {}, [], LOSSES)}
    assert names["train.loss"].choices == ("cross_entropy", "focal", "logit_adjusted")
    assert set(names) == {"train.learning_rate", "train.epochs", "train.loss"}
    balanced = read_space(None, {}, ["--train.class_weights", "balanced", "--train.epochs", "3"], LOSSES)
    assert [str(one) for one in balanced] == ["[1e-05, 0.0005, log]", "[cross_entropy, focal]"]
    path = tmp_path / "fixed.yaml"
    path.write_text("train: {epochs: 2, learning_rate: 1.0e-4, loss: focal}\n")
    with pytest.raises(InputError, match="all of them are fixed"):
        read_space(None, {}, ["--config", str(path)], LOSSES)


def test_a_trial_gets_values_of_the_range():
    optuna = pytest.importorskip("optuna", reason="needs requirements/tune.txt")
    trial = optuna.create_study().ask()
    assert 2 <= parse_range("train.epochs", "[2, 8]").suggest(trial) <= 8
    assert isinstance(trial.params["train.epochs"], int)
    assert 1e-5 <= parse_range("train.learning_rate", "[1e-5, 5e-4, log]").suggest(trial) <= 5e-4
    assert trial.distributions["train.learning_rate"].log


def test_settings_without_the_defaults_are_the_same_configuration(tmp_path):
    config = load_config([*SMALL, "--train.learning_rate", "1e-4", "--output.dir", "x"])
    path = tmp_path / "best.yaml"
    path.write_text(yaml.safe_dump(without_defaults(config)))
    again = load_config(["--config", str(path)])
    assert (again.data, again.model, again.train) == (config.data, config.model, config.train)
    assert again.output.dir is None
