"""The loss of one label a row: python -m pytest tests/outcomes/test_single_label.py"""

import numpy as np
import pytest
import torch

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.errors import InputError
from app.outcomes.label_weights import class_weights
from app.outcomes.losses import CrossEntropy
from tests.tiny import LABELS, tiny_lines

NAN, INF = float("nan"), float("inf")


def test_class_weights(tmp_path):
    from sklearn.utils.class_weight import compute_class_weight

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
    assert class_weights("balanced", counts, names).tolist() == pytest.approx(expected)
    assert class_weights([0.0, 1.0, 2.5], counts, names).tolist() == [0.0, 1.0, 2.5]
    assert class_weights("none", counts, names) is None


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
        class_weights(weights, np.ones(3), LABELS)


def test_the_loss_is_a_weighted_sum_over_rows():
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, 0.0]], dtype=torch.float64)
    labels, weights = torch.tensor([2, 1]), torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    targets = torch.nn.functional.one_hot(labels, 3)
    expected = -(targets * weights * logits.log_softmax(1)).sum()
    assert float(CrossEntropy(weights)(logits, labels)) == pytest.approx(float(expected))
    assert float(CrossEntropy(None)(logits[:0], labels[:0])) == 0.0
