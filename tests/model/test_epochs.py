"""The number of epochs that follows from the data: python -m pytest tests/model/test_epochs.py"""

import logging
from dataclasses import replace

import pytest

from app.config.schema import Config, TrainConfig
from app.model.epochs import with_epochs


@pytest.mark.parametrize(
    ("steps_per_epoch", "class_sizes", "has_pairs", "epochs", "reason"),
    [
        (60, (375, 307, 333, 320, 295, 276), False, 3, "as usual for single texts"),
        (112, (412, 458, 62, 906, 387, 1254, 90), False, 6, "smallest class has only 62"),
        (336, (1500, 21, 0), False, 6, "smallest class has only 21"),
        (1073, (23_000, 11_000), True, 4, "as usual for pairs of texts"),
        (1668, (5955, 257), False, 3, "6,000 steps are enough"),
        (1000, (31_800, 200), False, 4, "smallest class has only 200"),
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
