"""R-Drop: python -m pytest tests/training/test_methods.py"""

from dataclasses import replace

import pytest
import torch

from app.tasks import open_task
from app.tasks.losses import ClassLoss, ListLoss, NumberLoss
from tests.tiny import open_tiny
from tests.training.tiny_training import SETTINGS, Training


def test_each_copy_of_a_row_has_its_own_dropout(tmp_path):
    """With real dropout the copies differ, so the divergence adds to the loss of the first step."""
    rows = open_tiny(tmp_path, rows_per_label=20)
    weak, strong = (
        Training(rows, replace(SETTINGS, r_drop=weight, max_steps=1), dropout=0.3).run().losses[0]
        for weight in (1e-9, 10.0)
    )
    assert strong > weak + 0.1


def test_divergence_of_several_labels_is_that_of_each():
    one, other = torch.randn(2, 3, 4, dtype=torch.float64)
    divergence = ListLoss("cross_entropy").divergence
    p, q = one.sigmoid(), other.sigmoid()
    kl = sum((a * (a / b).log() + (1 - a) * ((1 - a) / (1 - b)).log()).sum() for a, b in ((p, q), (q, p)))
    assert float(divergence(one, other)) == pytest.approx(float(kl / 2))
    assert float(divergence(one, one)) == 0.0


def test_divergence_of_ordered_labels_is_that_of_their_probabilities_and_of_numbers_the_squared_difference():
    one, other = torch.randn(2, 3, 4, dtype=torch.float64)
    task = open_task("ordinal", list("abcd"))
    p, q = (torch.from_numpy(task.class_logits(outputs.numpy())).exp() for outputs in (one, other))
    kl = sum((a * (a / b).log()).sum() for a, b in ((p, q), (q, p)))
    divergence = ClassLoss(
        "cross_entropy", logits_of=lambda outputs: task.class_logits(outputs, torch)
    ).divergence
    assert float(divergence(one, other)) == pytest.approx(float(kl / 2))
    apart = NumberLoss("huber").divergence(one[:, :1], other[:, :1])
    assert float(apart) == pytest.approx(float(((one - other)[:, 0] ** 2).sum()))
