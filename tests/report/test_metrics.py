"""The metrics: python -m pytest tests/report/test_metrics.py"""

import math
from typing import get_args, get_type_hints

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    precision_recall_fscore_support,
)

from app.config.data_settings import TASKS as SETTINGS
from app.config.train_settings import TrainConfig
from app.report import metrics as table
from app.report.bootstrap import differences, seed_variance
from app.report.card import render_card
from app.report.metrics import Metric, is_better, measure
from app.report.page import render_page
from app.report.text import report_text
from app.tasks import TASK_CLASSES, open_task, task_class
from app.tasks.task import Scores
from tests.report.rows_case import TASKS, measured, page_content, random_rows
from tests.report.test_card import card
from tests.tiny import LABELS


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("num_rows", "num_labels"), [(1, 2), (7, 2), (300, 3), (1000, 15)])
def test_metrics_are_those_of_sklearn(num_rows, num_labels, seed):
    labels, logits = random_rows("single_label", num_rows, num_labels, seed)
    names = [f"label {index}" for index in range(num_labels)]
    metrics = measured(labels, logits, names)
    predicted, ids = logits.argmax(1), list(range(num_labels))
    assert metrics["rows"] == num_rows
    assert metrics["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    loss = log_loss(labels, softmax(logits.astype(float), axis=1), labels=ids)
    assert metrics["loss"] == pytest.approx(loss, abs=1e-9)
    assert metrics["confusion_matrix"] == confusion_matrix(labels, predicted, labels=ids).tolist()

    def expected(average: str | None) -> tuple:
        options = {"labels": ids, "average": average, "zero_division": 0}
        return precision_recall_fscore_support(labels, predicted, **options)

    for name, *of_class in zip(names, *expected(None), strict=True):
        assert list(metrics["classes"][name].values()) == pytest.approx(of_class)
    for average in ("macro", "weighted"):
        assert list(metrics[average].values()) == pytest.approx(expected(average)[:3])
        assert metrics[f"{average}_f1"] == pytest.approx(metrics[average]["f1"])


def score(labels: np.ndarray, logits: np.ndarray, temperature: float = 1.0) -> Scores:
    task = open_task("single_label", [f"label {index}" for index in range(logits.shape[1])])
    task.fitted = {"temperature": temperature}
    return task.score(labels, logits, calibrated=True)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
@pytest.mark.parametrize(("num_rows", "num_labels"), [(1, 2), (50, 2), (500, 7)])
def test_scores_of_rows_are_those_of_sklearn(num_rows, num_labels, temperature):
    labels, logits = random_rows("single_label", num_rows, num_labels)
    scores = score(labels, logits, temperature)
    expected = softmax(logits.astype(np.float64) / temperature, axis=1)
    assert (scores.predicted == expected.argmax(axis=1)).all()
    assert scores.confidence == pytest.approx(expected.max(axis=1))
    assert scores.loss.mean() == pytest.approx(log_loss(labels, expected, labels=range(num_labels)))
    truth = np.eye(num_labels)[labels]
    assert scores.brier.mean() == pytest.approx(((expected - truth) ** 2).sum(axis=1).mean())
    if num_labels == 2 and num_rows > 1:
        assert scores.brier.mean() == pytest.approx(2 * brier_score_loss(labels, expected[:, 1]))


def test_very_large_logits_give_finite_scores():
    scores = score(np.array([0, 1]), np.array([[1e4, -1e4], [1e4, -1e4]], np.float32))
    assert scores.loss.tolist() == [0, 2e4]
    assert scores.brier.tolist() == [0, 2]


def test_class_that_is_never_predicted_or_absent_counts_as_zero(recwarn):
    logits = np.array([[2, 0, 0], [2, 0, 0], [2, 0, 0], [3, 0, 0]], dtype=np.float32)
    metrics = measured(np.array([0, 0, 1, 1]), logits, LABELS)
    assert metrics["classes"][LABELS[1]] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 2}
    assert metrics["classes"][LABELS[2]] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    assert metrics["macro_f1"] == pytest.approx((2 / 3) / 3)
    assert not recwarn.list


def test_any_value_is_better_than_none_and_a_lower_loss():
    assert is_better(0.1, None, "accuracy")
    assert is_better(0.2, 0.1, "accuracy") > is_better(0.1, 0.1, "accuracy")
    assert is_better(0.1, 0.2, "loss") > is_better(0.2, 0.1, "loss")
    assert is_better(0.1, math.nan, "loss") > is_better(math.nan, 0.1, "loss")
    assert is_better(math.nan, None, "loss") > is_better(math.nan, math.nan, "loss")


@pytest.mark.parametrize("name", TASKS)
def test_a_metric_is_one_entry_of_the_table(name, monkeypatch):
    """Report, page, card, comparison, seeds and folds show it with its interval."""
    error_rate = Metric(
        "error_rate",
        "error rate",
        (name,),
        lambda drawn: 1 - drawn.mean(drawn.is_right),
        higher_is_better=False,
    )
    monkeypatch.setattr(table, "METRICS", (*table.METRICS, error_rate))
    monkeypatch.setitem(table.BY_KEY, "error_rate", error_rate)
    content = page_content(name, 200, ["甲", "乙", "丙"])
    task, metrics, scores = (content[name] for name in ("task", "metrics", "scores"))
    low, high = metrics["intervals"]["error_rate"]
    assert low < metrics["error_rate"] < high
    assert metrics["error_rate"] == pytest.approx(1 - scores.correct.mean())
    shown = f"{metrics['error_rate']:.4f}"
    text = report_text(task, metrics, {}, "title")
    assert f"  {'error rate':17} {shown}   {low:.4f} to {high:.4f}" in text
    assert f"Error rate<b>{shown}</b><small>[{low:.4f}, {high:.4f}]" in render_page(**content)
    said = render_card(card(task=name, metrics=metrics))
    # Its name has no Chinese here
    assert all(f"| error rate | {shown} | {low:.4f} {to} {high:.4f} |" in said for to in ("to", "至"))
    assert "error_rate" in differences(task, scores, scores)
    assert seed_variance(task, [scores, scores])["error_rate"]["values"] == [metrics["error_rate"]] * 2
    assert "error_rate" in measure(task, scores)
    assert is_better(0.1, 0.2, "error_rate")


def test_train_best_metric_has_the_names_of_the_tasks_and_each_is_in_the_table():
    names = {name for task in SETTINGS.values() for name in task.metrics}
    assert set(get_args(get_type_hints(TrainConfig)["best_metric"])) == names | {"auto"}
    for name in TASK_CLASSES:
        keys = {metric.key for metric in table.METRICS if name in metric.tasks}
        assert {*SETTINGS[name].metrics, *task_class(name).log_metrics} <= keys
