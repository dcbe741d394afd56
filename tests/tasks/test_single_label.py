"""The loss of one label a row: python -m pytest tests/tasks/test_single_label.py"""

import numpy as np
import pytest
import torch

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.tasks.single_label import RowLoss, class_weights
from tests.tiny import tiny_lines


def test_class_weights(tmp_path):
    from sklearn.utils.class_weight import compute_class_weight

    lines = tiny_lines(30)
    kept = [line for line in lines if not line.endswith("正面")] + [line for line in lines if line.endswith("正面")][:6]
    path = tmp_path / "rare.tsv"
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    dataset = open_dataset(DataConfig(train=str(path), cache_dir=str(tmp_path / "cache")))
    labels = dataset.splits["train"].labels
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert expected[1] > 3 * expected[0]
    assert class_weights("balanced", dataset).tolist() == pytest.approx(expected)
    assert class_weights([0.0, 1.0, 2.5], dataset).tolist() == [0.0, 1.0, 2.5]
    assert class_weights("none", dataset) is None


def test_the_loss_is_a_weighted_sum_over_rows_with_smoothed_targets():
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, 0.0]], dtype=torch.float64)
    labels, weights, smoothing = torch.tensor([2, 1]), torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64), 0.1
    targets = torch.nn.functional.one_hot(labels, 3) * (1 - smoothing) + smoothing / 3
    expected = -(targets * weights * logits.log_softmax(1)).sum()
    assert float(RowLoss(weights, smoothing)(logits, labels)) == pytest.approx(float(expected))
    assert float(RowLoss(None, 0.0)(logits[:0], labels[:0])) == 0.0
