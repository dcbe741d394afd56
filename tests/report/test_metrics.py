"""Metrics, their intervals, differences and seed variance: python -m pytest tests/report/test_metrics.py"""

import math
from functools import partial
from typing import get_args, get_type_hints

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import bootstrap
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    log_loss,
    precision_recall_fscore_support,
)

from app.config.data_settings import TASKS as SETTINGS
from app.config.train_settings import TrainConfig
from app.report import metrics as table
from app.report.bootstrap import (
    all_metrics,
    answer_metrics,
    differences,
    percentiles,
    resampled_means,
    seed_variance,
)
from app.report.metrics import Metric, is_better, measure, metrics_of
from app.report.shown import render_card, render_page, report_text
from app.tasks import TASK_CLASSES, open_task
from app.tasks.task import Scores, Task
from tests.report.rows_case import TASKS, measured, page_content, random_rows
from tests.report.test_shown import card


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
    for name, kind in TASK_CLASSES.items():
        keys = {metric.key for metric in table.METRICS if name in metric.tasks}
        assert {*SETTINGS[name].metrics, *kind.log_metrics} <= keys


CLASSES = list("甲乙丙丁")


def case(name: str, num_rows: int = 150) -> tuple[Task, np.ndarray, np.ndarray]:
    """Return a task, labels and logits."""
    return open_task(name, CLASSES), *random_rows(name, num_rows, len(CLASSES))


MACRO = partial(f1_score, labels=range(len(CLASSES)), average="macro", zero_division=0)
SKLEARN = {
    "single_label": {"accuracy": accuracy_score, "macro_f1": MACRO},
    "multi_label": {
        "micro_f1": partial(f1_score, average="micro", zero_division=0),
        "macro_f1": MACRO,
        "samples_f1": partial(f1_score, average="samples", zero_division=1),
        "subset_accuracy": accuracy_score,
    },
}


def sklearn_values(name: str, labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    return {key: metric(labels, predicted) for key, metric in SKLEARN[name].items()}


@pytest.mark.parametrize("name", TASKS)
def test_intervals_are_those_of_scipy_and_every_metric_of_the_table_has_its_own(name):
    task, labels, logits = case(name, 400)
    scores = task.score(labels, logits)
    found = all_metrics(task, scores)["intervals"]
    assert list(found) == [metric.key for metric in metrics_of(task) if metric.has_interval]
    options = {"method": "percentile", "vectorized": False, "rng": 1, "n_resamples": 400}
    for key, metric in SKLEARN[name].items():

        def value(rows, metric=metric):
            return metric(labels[rows], scores.predicted[rows])

        expected = bootstrap((np.arange(400),), value, **options).confidence_interval
        assert found[key] == pytest.approx(expected, abs=0.015), key


def test_intervals_hold_the_true_accuracy_19_times_in_20():
    # Of two logits with a difference of 1.5 and a standard deviation of 2 * sqrt(2)
    true_accuracy, held = 0.7021, 0
    task = open_task("single_label", CLASSES[:2])
    for seed in range(200):
        generator = np.random.default_rng(seed)
        labels = generator.integers(0, 2, 300)
        logits = generator.normal(0, 2, (300, 2))
        logits[np.arange(300), labels] += 1.5
        low, high = answer_metrics(task, labels, logits.argmax(axis=1))["intervals"]["accuracy"]
        held += low <= true_accuracy <= high
    assert 180 <= held <= 199


@pytest.mark.parametrize("num_rows", [1, 20])
def test_rows_that_are_all_right_have_intervals(num_rows):
    task, logits = open_task("single_label", CLASSES[:2]), np.tile(np.float32([[5, 0]]), (num_rows, 1))
    found = all_metrics(task, task.score(np.zeros(num_rows, int), logits))["intervals"]
    assert found["accuracy"] == [1.0, 1.0]
    assert found["loss"][0] == pytest.approx(0.0067153, rel=1e-4)


@pytest.mark.parametrize("rows_per_class", [1, 2, 5])
@pytest.mark.parametrize("right", [0.2, 0.5, 0.9])
def test_macro_f1_of_very_many_classes_of_few_rows_is_in_its_interval(rows_per_class, right):
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(1500), rows_per_class)
    is_right = generator.random(len(labels)) < right
    predicted = np.where(is_right, labels, generator.integers(0, 1500, len(labels)))
    task = open_task("single_label", [str(label) for label in range(1600)])
    low, high = answer_metrics(task, labels, predicted)["intervals"]["macro_f1"]
    value = f1_score(labels, predicted, average="macro", labels=range(1600), zero_division=0)
    assert low < value < high < low + 0.1


@pytest.mark.parametrize("name", TASKS)
def test_differences_are_paired(name):
    task, labels, logits = case(name, 400)
    other = logits.copy()
    other[:60] = 8 * (np.eye(4)[labels[:60]] if name == "single_label" else labels[:60] - 0.5)
    one, better = (task.score(labels, of_model) for of_model in (logits, other))
    found = differences(task, one, better)
    assert list(found) == [metric.key for metric in metrics_of(task) if metric.compared]
    first, second = (sklearn_values(name, labels, scores.predicted) for scores in (one, better))
    for key, value in second.items():
        difference, (low, high) = found[key]
        assert difference == pytest.approx(value - first[key])
        assert 0 < low < difference < high
    difference, (low, high) = found["loss"]
    assert difference == pytest.approx(better.loss.mean() - one.loss.mean())
    assert low < difference < high < 0

    def changed(rows):
        return MACRO(labels[rows], better.predicted[rows]) - MACRO(labels[rows], one.predicted[rows])

    options = {"method": "percentile", "vectorized": False, "n_resamples": 400, "rng": 1}
    expected = bootstrap((np.arange(400),), changed, **options).confidence_interval
    assert found["macro_f1"][1] == pytest.approx(expected, abs=0.01)
    assert set(differences(task, one, one).values()) == {(0.0, (0.0, 0.0))}


@pytest.mark.parametrize(("name", "key"), [("single_label", "accuracy"), ("multi_label", "subset_accuracy")])
def test_seed_variance_is_that_of_each_seed_and_sampling_that_of_the_rows(name, key):
    task, labels, logits = case(name, 2000)
    generator = np.random.default_rng(4)
    others = [logits + generator.normal(0, 0.5, logits.shape).astype(np.float32) for _ in range(5)]
    scores = [task.score(labels, of_seed) for of_seed in others]
    found = seed_variance(task, scores)
    assert list(found) == [metric.key for metric in metrics_of(task) if metric.compared]
    by_seed = [sklearn_values(name, of_seed.labels, of_seed.predicted) for of_seed in scores]
    for metric in by_seed[0]:
        expected = [of_seed[metric] for of_seed in by_seed]
        assert found[metric]["values"] == pytest.approx(expected)
        assert found[metric]["mean"] == pytest.approx(np.mean(expected))
        assert found[metric]["seed_standard_deviation"] == pytest.approx(np.std(expected, ddof=1))
    assert found["loss"]["values"] == pytest.approx([of_seed.loss.mean() for of_seed in scores])
    mean, deviation = found[key]["mean"], found[key]["sampling_standard_deviation"]
    of_row = np.mean([of_seed.correct for of_seed in scores], axis=0)
    assert deviation == pytest.approx(of_row.std() / np.sqrt(2000), rel=0.1)
    ends = mean - 1.96 * deviation, mean + 1.96 * deviation
    assert found[key]["sampling_interval"] == pytest.approx(ends, abs=0.004)
    equal = seed_variance(task, scores[:1] * 3)["macro_f1"]
    assert equal["seed_standard_deviation"] == pytest.approx(0, abs=1e-12)
    assert equal["sampling_standard_deviation"] > 0.001


@pytest.mark.parametrize("values", ["exponential", "few values", "one far away"])
def test_interval_of_a_mean_is_that_of_scipy(values):
    generator = np.random.default_rng(2)
    rows = {
        "exponential": generator.exponential(1, 700),
        "few values": generator.integers(0, 3, 700).astype(float),
        "one far away": np.append(generator.normal(0, 1, 699), 300.0),
    }[values]
    expected = bootstrap((rows,), np.mean, method="percentile", n_resamples=5000, rng=1).confidence_interval
    found = percentiles(resampled_means(rows, np.random.default_rng(0)))
    assert found == pytest.approx(expected, abs=0.12 * (expected.high - expected.low))
