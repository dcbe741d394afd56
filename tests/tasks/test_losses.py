"""Losses and class weights: python -m pytest tests/tasks/test_losses.py"""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn.functional import cross_entropy, one_hot

from app.config.data_settings import TASKS
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.errors import InputError
from app.tasks.losses import (
    CLASS_LOSSES,
    LIST_LOSSES,
    NUMBER_LOSSES,
    ClassLoss,
    ListLoss,
    label_weights,
)
from tests.tiny import LABELS as NAMES
from tests.tiny import tiny_lines

LOGITS = torch.tensor([[0.5, -1.0, 0.2], [2.0, 0.0, 1.0], [-1.0, 0.3, 0.1]])
LABELS = torch.tensor([0, 2, 1])
CPU = torch.device("cpu")
NAN, INF = float("nan"), float("inf")


def test_the_loss_of_no_rows_is_0():
    for name in CLASS_LOSSES:
        assert float(ClassLoss(name, shares=torch.ones(3))(LOGITS[:0], LABELS[:0])) == 0
    for name in LIST_LOSSES:
        assert float(ListLoss(name)(LOGITS[:0], LOGITS[:0].long())) == 0


def test_cross_entropy_is_a_weighted_sum_over_rows():
    weights = torch.tensor([0.5, 1.0, 3.0])
    expected = -(one_hot(LABELS, 3) * weights * LOGITS.log_softmax(1)).sum()
    assert float(ClassLoss("cross_entropy", weights)(LOGITS, LABELS)) == pytest.approx(float(expected))


def test_the_focal_loss_is_its_formula():
    of_label = torch.softmax(LOGITS.double(), dim=1)[torch.arange(3), LABELS]
    expected = (-torch.log(of_label) * (1 - of_label) ** 2).sum()
    assert float(ClassLoss("focal")(LOGITS, LABELS)) == pytest.approx(float(expected), rel=1e-6)


def test_the_gradient_of_a_sure_row_is_finite():
    logits = torch.tensor([[200.0, 0.0, 0.0], [0.0, -200.0, 0.0]], requires_grad=True)
    ClassLoss("focal")(logits, torch.tensor([0, 1])).backward()
    assert logits.grad.isfinite().all()
    sets = torch.tensor([[200.0, -200.0], [-200.0, 200.0]], requires_grad=True)
    ListLoss("focal")(sets, torch.tensor([[1, 0], [1, 0]])).backward()
    assert sets.grad.isfinite().all()


def test_the_adjusted_loss_is_cross_entropy_of_logits_with_the_shares():
    shares = torch.tensor([0.7, 0.2, 0.1])
    expected = cross_entropy(LOGITS + shares.log(), LABELS, reduction="sum")
    assert float(ClassLoss("logit_adjusted", shares=shares)(LOGITS, LABELS)) == pytest.approx(
        float(expected), rel=1e-6
    )
    equal = torch.full((3,), 1 / 3)
    plain = cross_entropy(LOGITS, LABELS, reduction="sum")
    assert float(ClassLoss("logit_adjusted", shares=equal)(LOGITS, LABELS)) == pytest.approx(
        float(plain), rel=1e-6
    )


@pytest.mark.parametrize(("name", "gamma"), [("cross_entropy", 0), ("focal", 2)])
def test_the_loss_of_label_lists_is_its_formula(name, gamma):
    labels = torch.tensor([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    probabilities = torch.sigmoid(LOGITS.double())
    true = torch.where(labels.bool(), probabilities, 1 - probabilities)
    weights = torch.where(labels.bool(), torch.tensor([3.0, 1.0, 0.5]).double(), 1.0)
    expected = (-torch.log(true) * (1 - true) ** gamma * weights).sum()
    found = ListLoss(name, torch.tensor([3.0, 1.0, 0.5]))(LOGITS, labels)
    assert float(found) == pytest.approx(float(expected), rel=1e-6)


def test_zlpr_is_its_formula_and_its_gradient_is_finite():
    labels = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    expected = 0.0
    for logits, has_label in zip(LOGITS.double(), labels.bool(), strict=True):
        expected += float(torch.log1p(logits[~has_label].exp().sum()))
        expected += float(torch.log1p((-logits[has_label]).exp().sum()))
    assert float(ListLoss("zlpr")(LOGITS, labels)) == pytest.approx(expected, rel=1e-6)
    logits = torch.tensor([[200.0, -200.0, 0.0]] * 3, requires_grad=True)
    ListLoss("zlpr")(logits, labels).backward()
    assert logits.grad.isfinite().all()


def test_class_weights(tmp_path):
    lines = tiny_lines(30)
    kept = [line for line in lines if not line.endswith("正面")] + [
        line for line in lines if line.endswith("正面")
    ][:6]
    path = tmp_path / "rare.tsv"
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    dataset = open_dataset(DataConfig(train=str(path), cache_dir=str(tmp_path / "cache")))
    labels = dataset.splits["train"].labels
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert expected[1] > 3 * expected[0]
    counts, names = np.bincount(labels), dataset.label_names
    assert label_weights("balanced", counts, names, CPU).tolist() == pytest.approx(expected)
    assert label_weights([0.0, 1.0, 2.5], counts, names, CPU).tolist() == [0.0, 1.0, 2.5]
    assert label_weights("none", counts, names, CPU) is None


@pytest.mark.parametrize(
    "weights",
    [
        [NAN, 1.0, 1.0],
        [1.0, NAN, 1.0],
        [1.0, 1.0, INF],
        [1e39, 1.0, 1.0],
        [0.0, 0.0, 0.0],
        [1e-50, 0.0, -0.0],
        [1.0, 1.0],
        [1.0, -1.0, 1.0],
        [1.0, 1.0, -INF],
        [],
    ],
)
def test_class_weights_that_would_spoil_the_training_or_train_nothing_are_refused(weights):
    rule = "must be 3 numbers from 0, in single precision not all 0, one for each of 中性, 正面, 负面; found"
    with pytest.raises(InputError, match=rule):
        label_weights(weights, np.ones(3), NAMES, CPU)


def test_the_losses_of_the_setting_are_those_of_the_tables():
    """`train.loss` lists names without importing torch."""
    for tables, tasks in (
        (CLASS_LOSSES, ("single_label", "ordinal")),
        (LIST_LOSSES, ("multi_label",)),
        (NUMBER_LOSSES, ("regression",)),
    ):
        assert [TASKS[task].losses for task in tasks] == [tuple(tables)] * len(tasks)
