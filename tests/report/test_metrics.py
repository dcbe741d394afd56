"""Metrics, their intervals, differences and seed variance."""

import math
import re
from functools import partial
from typing import get_args, get_type_hints

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import bootstrap, pearsonr, spearmanr
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    cohen_kappa_score,
    confusion_matrix,
    f1_score,
    hamming_loss,
    log_loss,
    mean_absolute_error,
    precision_recall_fscore_support,
    precision_score,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

from app.checkpoints.run_files import CARD, PAGE, TEXT
from app.config.schema import TASKS as SETTINGS
from app.config.schema import TrainConfig
from app.report import metrics as table
from app.report.bootstrap import all_metrics, answer_metrics, differences, seed_variance
from app.report.drawn_rows import AnswerPairs, DrawnRows
from app.report.measure import measure
from app.report.metrics import Metric, compared_metrics, is_better, metrics_of, metrics_with_interval
from app.tasks import TASK_CLASSES, open_task
from app.tasks.probabilities import sigmoid
from app.tasks.task import Task
from app.tasks.tree import Tree
from app.words import _, in_language
from tests.processes import ROOT
from tests.report.rows_case import TASKS, random_rows, report_of

CLASSES = list("甲乙丙丁")
PATHS = ["体育", "体育-球类-篮球", "体育-球类-足球", "财经-基金", "财经-股票"]
OPTIONS = {"method": "percentile", "vectorized": False, "rng": 1, "n_resamples": 150}


def task_of(name: str) -> Task:
    task = open_task(name, PATHS if "path" in name else CLASSES)
    task.tree = Tree(PATHS, "-") if "path" in name else None
    return task


def case(name: str, num_rows: int) -> tuple[Task, np.ndarray, np.ndarray]:
    """Return a task, labels and logits."""
    return task_of(name), *random_rows(name, num_rows, len(CLASSES))


def answers(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of 200 rows, and answers that have something to do with them."""
    generator = np.random.default_rng(0)
    num_labels = len(task_of(name).label_names)
    labels = generator.integers(0, num_labels, 200)
    if name == "regression":
        return labels + 1e6, labels + 1e6 + generator.normal(0, 2, 200).round(1)
    if name.startswith("multi"):
        labels = generator.random((200, num_labels)) < 0.4
        return labels, labels ^ (generator.random(labels.shape) < 0.2)
    return labels, (labels + generator.integers(-2, 3, 200)).clip(0, num_labels - 1)


def macro_mae(labels: np.ndarray, predicted: np.ndarray) -> float:
    off = np.abs(labels - predicted)
    return np.mean([off[labels == label].mean() for label in np.unique(labels)])


# The nodes of a hierarchy, their levels from 0, and which of them are a path or above it
NODES = [*PATHS, "体育-球类", "财经"]
LEVELS = np.array([node.count("-") for node in NODES])
UPWARD = np.array([[path == node or path.startswith(f"{node}-") for node in NODES] for path in PATHS])


def nodes_of_paths(answers: np.ndarray, levels: int) -> np.ndarray:
    """Return which nodes of the upper levels the answers have, (num_rows, num_nodes)."""
    if answers.ndim == 1:
        answers = np.eye(len(PATHS), dtype=bool)[answers]
    return (answers @ UPWARD)[:, levels > LEVELS]


def of_nodes(metric, labels: np.ndarray, predicted: np.ndarray, levels: int = 3, **options) -> float:
    """Return a metric of scikit-learn on the nodes of paths, of the upper levels only."""
    return metric(nodes_of_paths(labels, levels), nodes_of_paths(predicted, levels), **options)


MACRO = partial(f1_score, labels=range(len(CLASSES)), average="macro", zero_division=0)
MACRO_OF_PATHS = partial(f1_score, labels=range(len(PATHS)), average="macro", zero_division=0)
WEIGHTED = partial(f1_score, average="weighted", zero_division=0)
HIERARCHICAL = {
    f"hierarchical_{name}": partial(of_nodes, metric, average="micro")
    for name, metric in {"precision": precision_score, "recall": recall_score, "f1": f1_score}.items()
}
ONE_OF_CLASSES = {"accuracy": accuracy_score, "macro_f1": MACRO, "weighted_f1": WEIGHTED}
SETS_OF_LABELS = {
    "micro_f1": partial(f1_score, average="micro", zero_division=0),
    "macro_f1": MACRO,
    "weighted_f1": WEIGHTED,
    "samples_f1": partial(f1_score, average="samples", zero_division=1),
    "subset_accuracy": accuracy_score,
    "hamming_loss": hamming_loss,
}
LEVEL_ACCURACIES = {
    f"level_{level}_accuracy": partial(of_nodes, accuracy_score, levels=level) for level in (1, 2)
}
REFERENCES = {
    "single_label": ONE_OF_CLASSES,
    "multi_label": SETS_OF_LABELS,
    "ordinal": ONE_OF_CLASSES
    | {
        "kappa": partial(cohen_kappa_score, weights="quadratic"),
        "within_one": lambda labels, predicted: (np.abs(labels - predicted) <= 1).mean(),
        "macro_mae": macro_mae,
    },
    "regression": {
        "mae": mean_absolute_error,
        "rmse": root_mean_squared_error,
        "pearson": lambda labels, predicted: pearsonr(labels, predicted).statistic,
        "spearman": lambda labels, predicted: spearmanr(labels, predicted).statistic,
    },
    "single_path": ONE_OF_CLASSES | {"macro_f1": MACRO_OF_PATHS} | LEVEL_ACCURACIES | HIERARCHICAL,
    "multi_path": SETS_OF_LABELS | {"macro_f1": MACRO_OF_PATHS} | HIERARCHICAL,
}


def values_of(name: str, labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the values of references that are compared."""
    names = [metric.key for metric in compared_metrics(task_of(name))]
    return {key: reference(labels, predicted) for key, reference in REFERENCES[name].items() if key in names}


@pytest.mark.parametrize("name", REFERENCES)
def test_metrics_are_those_of_other_libraries_also_of_rows_that_are_drawn_again(name):
    (labels, predicted), task = answers(name), task_of(name)
    counts = np.random.default_rng(0).multinomial(200, np.full(200, 1 / 200), 3)
    counts = np.r_[np.ones((1, 200), int), counts]
    drawn = DrawnRows(AnswerPairs(task, labels, predicted), counts)
    metrics = {metric.key: metric for metric in metrics_of(task)}
    for key, reference in REFERENCES[name].items():
        expected = []
        for row_counts in counts:
            drawn_labels = np.repeat(labels, row_counts, axis=0)
            drawn_predicted = np.repeat(predicted, row_counts, axis=0)
            expected.append(reference(drawn_labels, drawn_predicted))
        assert metrics[key].from_answers(drawn) == pytest.approx(expected), key
    from_answers = {key for key, metric in metrics.items() if metric.from_answers}
    assert from_answers == set(REFERENCES[name]), "each metric of answers has a reference"


def test_a_constant_answer_has_no_correlation_and_no_agreement():
    metrics = answer_metrics(task_of("regression"), np.arange(5.0), np.full(5, 0.1))
    assert (metrics["pearson"], metrics["spearman"]) == (0, 0)
    metrics = answer_metrics(task_of("ordinal"), answers("ordinal")[0], np.full(200, 2))
    assert f"{metrics['kappa']:.4f}" == "0.0000"


SIZES = [("single_label", *size) for size in ((1, 2), (7, 2), (300, 3), (1000, 15), (2000, 60))]


@pytest.mark.parametrize(("name", "num_rows", "num_labels"), [*SIZES, ("multi_label", 200, 5)])
def test_the_tables_of_a_report_are_those_of_sklearn(name, num_rows, num_labels):
    """The last of several labels is never there."""
    labels, logits = random_rows(name, num_rows, num_labels)
    task = open_task(name, [f"label {index}" for index in range(num_labels)])
    ids = list(range(num_labels))
    averages = ["macro", "weighted"]
    options = {"labels": ids, "zero_division": 0}
    if name == "single_label":
        predicted = logits.argmax(1)
        loss = log_loss(labels, softmax(logits.astype(float), axis=1), labels=ids)
    else:
        labels[:, -1] = 0
        averages = [*averages, "micro"]
        task.fit(labels, logits)
        predicted = sigmoid(logits) >= task.thresholds
        loss = np.mean([log_loss(labels[:, at], sigmoid(logits)[:, at], labels=[0, 1]) for at in ids])
    metrics = measure(task, task.score(labels, logits))
    assert metrics["rows"] == num_rows
    assert metrics["loss"] == pytest.approx(loss, abs=1e-9)
    of_classes = precision_recall_fscore_support(labels, predicted, average=None, **options)
    for name, *of_class in zip(task.label_names, *of_classes, strict=True):
        assert list(metrics["classes"][name].values())[:4] == pytest.approx(of_class)
    for average in averages:
        expected = precision_recall_fscore_support(labels, predicted, average=average, **options)[:3]
        assert list(metrics[average].values()) == pytest.approx(expected)
        assert metrics[f"{average}_f1"] == pytest.approx(metrics[average]["f1"])
    if labels.ndim == 1:
        assert metrics["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
        matrix = confusion_matrix(labels, predicted, labels=ids)
        assert num_labels > 30 or metrics["confusion_matrix"] == matrix.tolist()
        wrong = {(i, j): rows for (i, j), rows in np.ndenumerate(matrix) if i != j and rows}
        confusions = {}
        for true_name, predicted_name, rows in metrics.get("confusions", ()):
            pair = (task.label_names.index(true_name), task.label_names.index(predicted_name))
            confusions[pair] = rows
        assert confusions == (wrong if num_labels > 30 else {})
        assert list(confusions.values()) == sorted(confusions.values(), reverse=True)
        task.calibration = {"temperature": 3.0}
        calibrated = task.score(labels, logits, calibrated=True)
        expected = softmax(logits.astype(np.float64) / 3, axis=1)
        assert (calibrated.predicted == predicted).all()
        assert calibrated.confidence == pytest.approx(expected.max(axis=1))
        assert calibrated.loss.mean() == pytest.approx(log_loss(labels, expected, labels=ids))
        assert calibrated.brier == pytest.approx(((expected - np.eye(num_labels)[labels]) ** 2).sum(axis=1))


def test_very_large_logits_give_finite_scores():
    logits = np.array([[1e4, -1e4], [1e4, -1e4]], np.float32)
    scores = open_task("single_label", ["a", "b"]).score(np.array([0, 1]), logits)
    assert (scores.loss.tolist(), scores.brier.tolist()) == ([0, 2e4], [0, 2])
    scores = open_task("multi_label", ["a", "b"]).score(np.array([[1, 0], [0, 1]]), logits)
    assert (scores.loss.tolist(), scores.correct.tolist()) == ([0, 1e4], [True, False])


def test_any_value_is_better_than_none_and_a_lower_loss():
    assert is_better(0.1, None, "accuracy")
    assert is_better(0.2, 0.1, "accuracy") > is_better(0.1, 0.1, "accuracy")
    assert is_better(0.1, 0.2, "loss") > is_better(0.2, 0.1, "loss")
    assert is_better(0.1, math.nan, "loss") > is_better(math.nan, 0.1, "loss")
    assert is_better(math.nan, None, "loss") > is_better(math.nan, math.nan, "loss")


@pytest.mark.parametrize("name", TASKS)
def test_a_metric_is_one_entry_of_the_table(name, monkeypatch, tmp_path):
    """Report, page, card, comparison, seeds and folds show it with its interval."""
    error_rate = Metric(
        key="error_rate",
        label="error rate",
        tasks=(name,),
        from_answers=lambda rows: 1 - rows.accuracy(),
        higher_is_better=False,
    )
    monkeypatch.setattr(table, "METRICS", (*table.METRICS, error_rate))
    monkeypatch.setitem(table.BY_KEY, "error_rate", error_rate)
    written = report_of(tmp_path, name)
    task = written.task
    metrics = written.report
    scores = written.scores
    low, high = metrics["intervals"]["error_rate"]
    assert low < metrics["error_rate"] < high
    assert metrics["error_rate"] == pytest.approx(1 - scores.correct.mean())
    value = f"{metrics['error_rate']:.4f}"
    assert re.search(rf"^  error rate +{value}   {low:.4f} to {high:.4f}$", written.read(TEXT), re.MULTILINE)
    assert f"Error rate<b>{value}</b><small>[{low:.4f}, {high:.4f}]" in written.read(PAGE)
    card_text = written.read(CARD)
    # Its name has no Chinese here
    assert all(f"| error rate | {value} | {low:.4f} {to} {high:.4f} |" in card_text for to in ("to", "至"))
    assert "error_rate" in differences(task, scores, scores)
    assert seed_variance(task, [scores, scores])["error_rate"]["values"] == [metrics["error_rate"]] * 2
    assert "error_rate" in measure(task, scores)
    assert is_better(0.1, 0.2, "error_rate")


def test_train_best_metric_has_the_names_of_the_tasks_and_each_is_in_the_table():
    names = {name for task in SETTINGS.values() for name in task.metrics}
    assert set(get_args(get_type_hints(TrainConfig)["best_metric"])) == names | {"auto"}
    for name, task_class in TASK_CLASSES.items():
        keys = {metric.key for metric in table.METRICS if name in metric.tasks}
        assert {*SETTINGS[name].metrics, *task_class.log_metrics} <= keys


def metrics_without_a_row(page: str, language: str) -> list[str]:
    """Return the metrics that no row of a table on a page has, with their name and key as people see them."""
    rows = [line.split("|") for line in page.splitlines() if line.startswith("|")]
    missing = []
    for metric in table.METRICS:
        with in_language(language):
            name = _(metric.label).format(level="N", precision=metric.precision)
        key = re.sub(r"^level_\d+_", "level_N_", metric.key)
        has_row = any(name in cells[1] and f"`{key}`" in cells[2] for cells in rows if len(cells) > 3)
        if not has_row:
            missing.append(metric.key)
    return missing


@pytest.mark.parametrize(
    ("page", "language"), [("docs/evaluation.md", "en"), ("docs/evaluation.zh-CN.md", "zh")]
)
def test_every_metric_has_its_row_in_the_documents(page, language):
    content = (ROOT / page).read_text(encoding="utf-8")
    assert metrics_without_a_row(content, language) == [], f"{page}: add a row with the name and the key"
    # A control: without the row it is found
    lines = [line for line in content.splitlines() if "`brier`" not in line]
    assert metrics_without_a_row("\n".join(lines), language) == ["brier"]


@pytest.mark.parametrize("name", TASKS)
def test_intervals_are_those_of_scipy_and_every_metric_of_the_table_has_its_own(name):
    task, labels, logits = case(name, 400)
    # The loss of this row is far from those of the others
    logits[0] = 300 * (0.5 - np.eye(4)[labels[0]] if name == "single_label" else 0.5 - labels[0])
    scores = task.score(labels, logits)
    intervals = all_metrics(task, scores)["intervals"]
    assert list(intervals) == [metric.key for metric in metrics_with_interval(task)]
    for key in values_of(name, labels, scores.predicted):

        def value(rows, metric=REFERENCES[name][key]):
            return metric(labels[rows], scores.predicted[rows])

        expected = bootstrap((np.arange(400),), value, **OPTIONS).confidence_interval
        assert intervals[key] == pytest.approx(expected, abs=0.015), key
    expected = bootstrap((scores.loss,), np.mean, **OPTIONS | {"n_resamples": 5000}).confidence_interval
    assert intervals["loss"] == pytest.approx(expected, abs=0.12 * (expected.high - expected.low))


@pytest.mark.parametrize("num_rows", [300, 3000])
def test_intervals_of_ranks_are_those_of_scipy_however_close_together_probabilities_are(num_rows):
    """Of 3,000 rows cells are merged."""
    generator = np.random.default_rng(0)
    is_rare = generator.random(num_rows) < 0.3
    odds = generator.normal(0, 1, num_rows) + 1.2 * is_rare
    task = open_task("single_label", CLASSES[:2])
    task.rare_class = 1
    scikit_learn = {"average_precision": average_precision_score, "roc_auc": roc_auc_score}
    expected = {}
    for key, reference in scikit_learn.items():

        def value(rows, reference=reference):
            return reference(is_rare[rows], odds[rows])

        options = OPTIONS | {"n_resamples": 400}
        expected[key] = bootstrap((np.arange(num_rows),), value, **options).confidence_interval
    for moved in (odds, 1e-4 * odds, 1e-4 * odds + 8, 1e-4 * odds - 8):
        metrics = all_metrics(task, task.score(is_rare, np.c_[np.zeros(num_rows), moved]))
        for key, ends in expected.items():
            assert metrics["intervals"][key] == pytest.approx([*ends], abs=0.15 * (ends.high - ends.low))
            assert metrics[key] == pytest.approx(scikit_learn[key](is_rare, odds))


@pytest.mark.parametrize("is_rare", [True, False])
def test_many_rows_of_one_class_have_intervals_of_ranks(is_rare):
    logits = np.random.default_rng(0).normal(size=(2000, 2))
    task = open_task("single_label", CLASSES[:2])
    task.rare_class = 1
    intervals = all_metrics(task, task.score(np.full(2000, int(is_rare)), logits))["intervals"]
    assert intervals["average_precision"] == [float(is_rare)] * 2
    assert intervals["roc_auc"] == [0.5, 0.5]


@pytest.mark.parametrize("num_rows", [1, 20])
def test_rows_that_are_all_right_have_intervals(num_rows):
    task = open_task("single_label", CLASSES[:2])
    logits = np.tile(np.float32([[5, 0]]), (num_rows, 1))
    intervals = all_metrics(task, task.score(np.zeros(num_rows, int), logits))["intervals"]
    assert intervals["accuracy"] == [1.0, 1.0]
    assert intervals["loss"][0] == pytest.approx(0.0067153, rel=1e-4)


@pytest.mark.parametrize(("rows_per_class", "right"), [(1, 0.2), (1, 0.9), (2, 0.5), (5, 0.2), (5, 0.9)])
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
    better_logits = logits.copy()
    better_logits[:60] = 8 * (np.eye(4)[labels[:60]] if name == "single_label" else labels[:60] - 0.5)
    baseline = task.score(labels, logits)
    better = task.score(labels, better_logits)
    by_metric = differences(task, baseline, better)
    assert list(by_metric) == [metric.key for metric in compared_metrics(task)]
    baseline_values = values_of(name, labels, baseline.predicted)
    better_values = values_of(name, labels, better.predicted)
    for key, value in better_values.items():
        difference, (low, high) = by_metric[key]
        assert difference == pytest.approx(value - baseline_values[key])
        assert 0 < low < difference < high
    difference, (low, high) = by_metric["loss"]
    assert difference == pytest.approx(better.loss.mean() - baseline.loss.mean())
    assert low < difference < high < 0

    def changed(rows):
        return MACRO(labels[rows], better.predicted[rows]) - MACRO(labels[rows], baseline.predicted[rows])

    expected = bootstrap((np.arange(400),), changed, **OPTIONS).confidence_interval
    assert by_metric["macro_f1"][1] == pytest.approx(expected, abs=0.01)
    assert set(differences(task, baseline, baseline).values()) == {(0.0, (0.0, 0.0))}


@pytest.mark.parametrize(("name", "key"), [("single_label", "accuracy"), ("multi_label", "subset_accuracy")])
def test_seed_variance_is_that_of_each_seed_and_sampling_that_of_the_rows(name, key):
    task, labels, logits = case(name, 2000)
    generator = np.random.default_rng(4)
    others = [logits + generator.normal(0, 0.5, logits.shape).astype(np.float32) for _ in range(5)]
    scores = [task.score(labels, of_seed) for of_seed in others]
    variances = seed_variance(task, scores)
    assert list(variances) == [metric.key for metric in compared_metrics(task)]
    by_seed = [values_of(name, labels, of_seed.predicted) for of_seed in scores]
    for metric in by_seed[0]:
        expected = [of_seed[metric] for of_seed in by_seed]
        assert variances[metric]["values"] == pytest.approx(expected)
        assert variances[metric]["mean"] == pytest.approx(np.mean(expected))
        assert variances[metric]["seed_standard_deviation"] == pytest.approx(np.std(expected, ddof=1))
    assert variances["loss"]["values"] == pytest.approx([of_seed.loss.mean() for of_seed in scores])
    mean = variances[key]["mean"]
    deviation = variances[key]["sampling_standard_deviation"]
    of_row = np.mean([of_seed.correct for of_seed in scores], axis=0)
    assert deviation == pytest.approx(of_row.std() / np.sqrt(2000), rel=0.1)
    ends = mean - 1.96 * deviation, mean + 1.96 * deviation
    assert variances[key]["sampling_interval"] == pytest.approx(ends, abs=0.004)
    equal = seed_variance(task, scores[:1] * 3)["macro_f1"]
    assert equal["seed_standard_deviation"] == pytest.approx(0, abs=1e-12)
    assert equal["sampling_standard_deviation"] > 0.001
