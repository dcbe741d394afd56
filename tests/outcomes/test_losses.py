"""Losses and sampling for imbalanced classes: python -m pytest tests/outcomes/test_losses.py"""

from shlex import split

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from app.config.command_line import load_config
from app.config.data_settings import TASKS
from app.config.schema import TrainConfig
from app.errors import InputError
from app.outcomes.label_weights import start_bias
from app.outcomes.losses import (
    MULTI_LABEL_LOSSES,
    NUMBER_LOSSES,
    SINGLE_LABEL_LOSSES,
    ZLPR,
    BinaryCrossEntropy,
    FocalLoss,
    LogitAdjustedLoss,
    multi_label_loss,
)

LOGITS = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, 1.0], [-1.0, 0.3, 0.1]])
LABELS = torch.tensor([0, 2, 1])


def test_the_focal_loss_of_no_rows_is_0():
    assert float(FocalLoss()(LOGITS[:0], LABELS[:0])) == 0


def test_the_focal_loss_is_its_formula():
    of_label = torch.softmax(LOGITS.double(), dim=1)[torch.arange(3), LABELS]
    expected = (-torch.log(of_label) * (1 - of_label) ** 2).sum()
    assert float(FocalLoss()(LOGITS, LABELS)) == pytest.approx(float(expected), rel=1e-6)


def test_the_gradient_of_a_sure_row_is_finite():
    logits = torch.tensor([[200.0, 0.0, 0.0], [0.0, -200.0, 0.0]], requires_grad=True)
    FocalLoss()(logits, torch.tensor([0, 1])).backward()
    assert logits.grad.isfinite().all()
    sets = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    BinaryCrossEntropy(None, 2.0)(sets, torch.tensor([[1, 0], [1, 0]])).backward()
    assert sets.grad.isfinite().all()


def test_the_adjusted_loss_is_cross_entropy_of_logits_with_the_shares():
    shares = torch.tensor([0.7, 0.2, 0.1])
    expected = cross_entropy(LOGITS + shares.log(), LABELS, reduction="sum")
    assert float(LogitAdjustedLoss(shares)(LOGITS, LABELS)) == pytest.approx(float(expected), rel=1e-6)
    equal = torch.full((3,), 1 / 3)
    plain = cross_entropy(LOGITS, LABELS, reduction="sum")
    assert float(LogitAdjustedLoss(equal)(LOGITS, LABELS)) == pytest.approx(float(plain), rel=1e-6)


def test_the_focal_loss_of_label_lists_is_its_formula():
    labels = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    probabilities = torch.sigmoid(LOGITS.double())
    true = torch.where(labels.bool(), probabilities, 1 - probabilities)
    weights = torch.where(labels.bool(), torch.tensor([3.0, 1.0, 0.5]).double(), 1.0)
    expected = (-torch.log(true) * (1 - true) ** 1.5 * weights).sum()
    found = BinaryCrossEntropy(torch.tensor([3.0, 1.0, 0.5]), gamma=1.5)(LOGITS, labels)
    assert float(found) == pytest.approx(float(expected), rel=1e-6)


def test_zlpr_is_its_formula_and_its_gradient_is_finite():
    labels = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    expected = 0.0
    for logits, has_label in zip(LOGITS.double(), labels.bool(), strict=True):
        expected += float(torch.log1p(logits[~has_label].exp().sum()))
        expected += float(torch.log1p((-logits[has_label]).exp().sum()))
    assert float(ZLPR()(LOGITS, labels)) == pytest.approx(expected, rel=1e-6)
    logits = torch.tensor([[200.0, -200.0, 0.0]] * 3, requires_grad=True)
    ZLPR()(logits, labels).backward()
    assert logits.grad.isfinite().all()


def test_of_one_label_a_row_zlpr_is_the_cross_entropy_with_a_class_at_0_on_either_side():
    labels = torch.tensor([[0, 1, 0]])
    logits = torch.tensor([[-1.0, 2.0, 0.5]])
    absent = torch.logsumexp(torch.tensor([0.0, -1.0, 0.5]), dim=0)
    assert float(ZLPR()(logits, labels)) == pytest.approx(float(absent + np.log1p(np.exp(-2.0))), rel=1e-6)


def test_a_head_starts_at_the_log_odds_of_each_label():
    labels = np.zeros((1000, 3), np.uint8)
    labels[:500, 0] = labels[:10, 1] = 1
    names = ["a", "b", "c"]
    shares = torch.sigmoid(torch.from_numpy(start_bias(TrainConfig(), labels, names)))
    assert shares.tolist() == pytest.approx([0.5, 0.01, 0.0], abs=1e-3)
    balanced = start_bias(TrainConfig(class_weights="balanced"), labels[:, :2], names[:2])
    assert balanced.tolist() == pytest.approx([0.0, 0.0], abs=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["--train.class_weights", "balanced", "--train.loss", "logit_adjusted"],
            "train.class_weights must be left out with train.loss logit_adjusted: both correct the same",
        ),
        (
            ["--data.task", "masked_language_modelling", "--train.loss", "focal"],
            "train.loss must be left out with data.task",
        ),
        (
            [
                *split("--data.task multi_label --data.train x --train.loss zlpr"),
                *split("--train.class_weights balanced"),
            ],
            "train.class_weights must be none with train.loss zlpr",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(InputError, match=message):
        load_config(settings)


def test_the_losses_of_the_setting_are_those_of_the_tables():
    """`train.loss` lists names without importing torch; a task without a loss refuses its name."""
    for tables, tasks in (
        (SINGLE_LABEL_LOSSES, ("single_label", "ordinal")),
        (MULTI_LABEL_LOSSES, ("multi_label",)),
        (NUMBER_LOSSES, ("regression",)),
    ):
        assert [TASKS[task].losses for task in tasks] == [tuple(tables)] * len(tasks)
    train = TrainConfig(loss="logit_adjusted")
    with pytest.raises(
        InputError, match="train.loss must be cross_entropy or focal or zlpr .* found 'logit_adjusted'"
    ):
        multi_label_loss(train, np.eye(2), ["a", "b"], torch.device("cpu"))
