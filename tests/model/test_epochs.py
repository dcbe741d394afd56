"""The number of epochs that follows from the data: python -m pytest tests/model/test_epochs.py"""

import logging
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from app.config.command_line import load_config
from app.config.schema import Config, ModelConfig, TrainConfig
from app.model.recipe import with_epochs
from app.run import work
from tests.multi_label_runs import arguments
from tests.stopped_run import stop_after
from tests.tiny import write_tiny


@pytest.mark.parametrize(
    ("steps_per_epoch", "class_sizes", "has_pairs", "epochs", "reason"),
    [
        (60, (375, 307, 333, 320, 295, 276), False, 3, "as usual for single texts"),
        (112, (412, 458, 62, 906, 387, 1254, 90), False, 6, "smallest class has only 62"),
        (216, (1500, 21, 0), False, 6, "smallest class has only 21"),
        (250, (1100, 90), False, 5, "smallest class has only 90"),
        # lic2020_events: a micro F1 of 0.94 after 3 epochs
        (337, (1497, 22), False, 3, "as usual for single texts"),
        (1073, (23_000, 11_000), True, 4, "as usual for pairs of texts"),
        (1668, (5955, 257), True, 3, "6,000 steps are enough"),
        (1000, (31_800, 200), False, 3, "as usual for single texts"),
        (1, (16, 16), False, 132, "2 classes need at least 132 steps"),
        (17, (8,) * 67, False, 31, "67 classes need at least 522 steps"),
        (30_000, (500_000, 460_000), True, 2, "6,000 steps are enough"),
        (100, (), False, 3, "as usual for single texts"),
    ],
)
def test_epochs_follow_from_rows_and_the_smallest_class(
    caplog, steps_per_epoch, class_sizes, has_pairs, epochs, reason
):
    caplog.set_level(logging.INFO)
    train = with_epochs(Config(), steps_per_epoch, class_sizes, has_pairs).train
    assert train.epochs == epochs
    (line,) = caplog.messages
    assert line.startswith(f"train.epochs auto: {epochs} epochs of {steps_per_epoch:,} steps, ")
    assert reason in line


def test_a_head_that_is_fitted_needs_no_more_epochs_for_small_classes():
    config = replace(Config(), model=ModelConfig(head="linear"))
    assert with_epochs(config, 112, (412, 458, 62), False).train.epochs == 3
    assert with_epochs(config, 30_000, (500_000, 460_000), False).train.epochs == 2


def test_a_number_of_epochs_is_kept():
    config = Config(train=TrainConfig(epochs=7))
    assert with_epochs(config, 1, (1, 1), False) == config


def test_dev_is_evaluated_about_ten_times_in_many_short_epochs():
    def evaluations(**settings) -> int | None:
        config = replace(Config(), train=TrainConfig(**settings))
        return with_epochs(config, 17, (8,) * 67, False).train.eval_every

    assert evaluations() == 17 * 4
    assert evaluations(eval_every=5) == 5
    assert evaluations(epochs=31) is None


@pytest.mark.slow
def test_a_run_resumes_to_the_epochs_and_bits_that_it_had_planned(tmp_path):
    """The schedule of the learning rate has its whole length from the first step on."""
    rows = tmp_path / "rows.tsv"
    write_tiny(rows, 20)
    names = ("whole", "cut", "number")
    settings = {"data__task": "single_label", "output__resume": "auto"}
    settings |= {"train__epochs": "auto", "train__batch_size": 32}
    whole, cut, number = (load_config(arguments(rows, tmp_path / name, **settings)) for name in names)
    assert work(whole, "single") == 0
    stop_after(3, cut)
    assert work(cut, "single") == 0
    settings = load_config(["--config", str(tmp_path / "whole" / "config.yaml")])
    assert settings.train.epochs > 3
    planned = {"epochs": settings.train.epochs, "eval_every": settings.train.eval_every}
    number = replace(number, train=replace(number.train, **planned))
    assert work(number, "single") == 0
    weights = [load_file(tmp_path / name / "model.safetensors") for name in names]
    for name, value in weights[0].items():
        assert all(torch.equal(value, other[name]) for other in weights[1:])
    assert work(whole, "single") == 2, "the run is finished"
