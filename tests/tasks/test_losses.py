"""Losses and class weights: python -m pytest tests/tasks/test_losses.py"""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy, one_hot

from app.config.data_settings import TASKS
from app.config.schema import Config, TrainConfig
from app.errors import InputError
from app.tasks import open_task
from app.tasks.losses import (
    CLASS_LOSSES,
    LIST_LOSSES,
    NUMBER_LOSSES,
    ClassLoss,
    ListLoss,
    label_weights,
)
from tests.tiny import LABELS as NAMES

LOGITS = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, 1.0], [-1.0, 0.3, 0.1]])
LABELS = torch.tensor([0, 2, 1])
SHARES = torch.tensor([0.7, 0.2, 0.1])
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])
OF_LABEL = torch.softmax(LOGITS.double(), dim=1)[torch.arange(3), LABELS]
CPU = torch.device("cpu")
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (ClassLoss("cross_entropy", WEIGHTS), -(one_hot(LABELS, 3) * WEIGHTS * LOGITS.log_softmax(1)).sum()),
        (ClassLoss("focal"), (-torch.log(OF_LABEL) * (1 - OF_LABEL) ** 2).sum()),
        (
            ClassLoss("logit_adjusted", shares=SHARES),
            cross_entropy(LOGITS + SHARES.log(), LABELS, reduction="sum"),
        ),
    ],
)
def test_the_loss_of_a_class_is_its_formula(loss, expected):
    assert float(loss(LOGITS, LABELS)) == pytest.approx(float(expected), rel=1e-6)
    assert float(loss(LOGITS[:0], LABELS[:0])) == 0


@pytest.mark.parametrize(("name", "gamma"), [("cross_entropy", 0), ("focal", 2)])
def test_the_loss_of_label_lists_is_its_formula(name, gamma):
    labels = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    probabilities = torch.sigmoid(LOGITS.double())
    true = torch.where(labels.bool(), probabilities, 1 - probabilities)
    weights = torch.where(labels.bool(), WEIGHTS.double(), 1.0)
    expected = (-torch.log(true) * (1 - true) ** gamma * weights).sum()
    loss = ListLoss(name, WEIGHTS)
    assert float(loss(LOGITS, labels)) == pytest.approx(float(expected), rel=1e-6)
    assert float(loss(LOGITS[:0], labels[:0])) == 0


def test_the_gradient_of_a_sure_row_is_finite():
    logits = torch.tensor([[200.0, 0.0, 0.0], [0.0, -200.0, 0.0]], requires_grad=True)
    ClassLoss("focal")(logits, torch.tensor([0, 1])).backward()
    assert logits.grad.isfinite().all()
    sets = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    ListLoss("focal")(sets, torch.tensor([[1, 0], [1, 0]])).backward()
    assert sets.grad.isfinite().all()


def test_balanced_weights_of_classes_are_those_of_scikit_learn():
    labels, task = np.repeat([0, 1, 2], [30, 6, 30]), open_task("single_label", NAMES)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    task.device, task.config = CPU, Config(train=TrainConfig(class_weights="balanced"))
    assert task.build_loss(labels).weights.tolist() == pytest.approx(expected)
    task.config = Config()
    assert task.build_loss(labels).weights is None


@pytest.mark.parametrize(
    "weights",
    [
        *([NAN, 1.0, 1.0], [1.0, 1.0, INF], [1.0, 1.0, -INF], [1.0, -1.0, 1.0]),
        *([1e39, 1.0, 1.0], [0.0, 1.0, 1.0], [1e-50, 1.0, 1.0], [1.0, 1.0], []),
    ],
)
def test_class_weights_that_would_spoil_the_training_or_train_nothing_are_refused(weights):
    rule = "must be 3 numbers above 0, in single precision too, one for each of 中性, 正面, 负面; found"
    with pytest.raises(InputError, match=rule):
        label_weights(weights, np.ones(3), NAMES, CPU)


def test_the_losses_of_the_setting_are_those_of_the_tables():
    """`train.loss` lists names without importing torch."""
    tables = {"single_label": CLASS_LOSSES, "ordinal": CLASS_LOSSES, "multi_label": LIST_LOSSES}
    for task, table in {**tables, "regression": NUMBER_LOSSES}.items():
        assert TASKS[task].losses == tuple(table)
