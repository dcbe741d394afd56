"""One of ordered labels a row: python -m pytest tests/tasks/test_ordinal.py"""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import cohen_kappa_score

from app.config.command_line import load_config
from app.data.dataset import open_dataset
from app.errors import InputError
from app.report.bootstrap import answer_metrics
from app.tasks import open_task
from app.tasks.ordinal import bias_of_shares
from tests.multi_label_runs import arguments
from tests.tasks.kinds import write_counted

STARS = open_task("ordinal", list("12345"))


def test_probabilities_add_up_and_thresholds_are_in_order():
    outputs = np.random.default_rng(0).normal(0, 5, (200, 5)).astype(np.float32)
    probabilities = STARS.probabilities(outputs)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(200))
    assert (probabilities > 0).all()
    assert 1 - probabilities[:, 0] == pytest.approx(1 / (1 + np.exp(-outputs[:, 0].astype(np.float64))))
    again = STARS.class_logits(torch.from_numpy(outputs).double(), torch).exp().numpy()
    assert again == pytest.approx(probabilities)
    shares = np.array([0.5, 0.1, 0.3, 0.05, 0.05])
    assert STARS.probabilities(bias_of_shares(shares)[None])[0] == pytest.approx(shares, rel=1e-3)


def test_gradients_are_finite_where_outputs_are_large():
    outputs = torch.tensor([[90.0, -200.0, 50.0, 0.0], [-90.0, 50.0, -200.0, 0.0]], requires_grad=True)
    for label in range(4):
        loss = -STARS.class_logits(outputs, torch)[:, label].sum()
        (gradient,) = torch.autograd.grad(loss, outputs)
        assert loss.isfinite()
        assert gradient.isfinite().all()


def test_metrics_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 5, 300)
    predicted = (labels + generator.integers(-2, 3, 300)).clip(0, 4)
    found = answer_metrics(STARS, labels, predicted)
    off = np.abs(labels - predicted)
    assert found["kappa"] == pytest.approx(cohen_kappa_score(labels, predicted, weights="quadratic"))
    assert found["within_one"] == pytest.approx((off <= 1).mean())
    assert found["macro_mae"] == pytest.approx(np.mean([off[labels == label].mean() for label in range(5)]))
    assert f"{answer_metrics(STARS, labels, np.full(300, 2))['kappa']:.4f}" == "0.0000"


def test_the_decision_is_the_median_and_says_how_sure_it_is():
    task = open_task("ordinal", list("abc"))
    probabilities = np.array([[0.4, 0.25, 0.35], [0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    assert task.chosen(probabilities).tolist() == [1, 0, 2]
    assert task.confidence(probabilities).tolist() == [0.25, 0.6, 0.6]
    assert task.columns(probabilities[0], 0.3)["decision"] == "abstain"
    assert [task.ranked_labels(row).tolist() for row in probabilities] == [[1, 0, 2], [0, 1, 2], [2, 1, 0]]
    outputs = np.random.default_rng(1).normal(0, 2, (50, 5)).astype(np.float32)
    scores = STARS.score(np.arange(50) % 5, outputs)
    assert (scores.predicted == STARS.decide(outputs)).all()
    assert scores.confidence == pytest.approx(STARS.confidence(STARS.probabilities(outputs)))


def test_the_order_is_that_of_numbers_or_of_the_setting(tmp_path):
    def names(labels: list[str], **settings) -> list[str]:
        path = write_counted(tmp_path / "a.jsonl", "label", labels * 2)
        words = arguments(path, tmp_path / "run", data__task="ordinal", **settings)
        return open_dataset(load_config(words).data).label_names

    assert names(["10", "2", "-1.5"]) == ["-1.5", "2", "10"]
    assert names(["重", "中", "轻"], data__labels="[轻, 中, 重]") == ["轻", "中", "重"]
    for labels in (["轻", "中", "重"], ["1", "1.00", "2"]):
        with pytest.raises(InputError, match="the order of labels .* must be known, .* from the lowest"):
            names(labels)


def test_a_run_reports_on_ordered_labels(run_of):
    run = run_of("ordinal")
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert list(report["classes"]) == ["1", "2", "10"]
    assert report["intervals"]["kappa"][0] > 0.3
    assert {"kappa", "macro_mae", "within_one", "accuracy"} <= set(report["intervals"])
    assert report["baselines"]["majority class"]["kappa"] == 0
    assert "Cumulative logits" in (run / "README.md").read_text(encoding="utf-8")
    assert "Quadratic weighted kappa" in (run / "report.html").read_text(encoding="utf-8")
