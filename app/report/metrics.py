"""The table of metrics: what each one is, and where it is shown. A new metric is one entry of `METRICS`.

The report, the page and the card show the metrics of the task, with intervals; folds, seeds and comparisons
show those that are `compared`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import methodcaller as call
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tasks.task import RARE_F1, Scores, Task
from ..words import N_, _
from .confidence import calibration_error

if TYPE_CHECKING:
    from ..data.dataset import Split

SINGLE, MULTI, MASKED = "single_label", "multi_label", "masked_language_modelling"
NUMBER, ORDERED, PATH, PATH_LISTS = "regression", "ordinal", "single_path", "multi_path"
ONE_LABEL, LISTS, PATHS = ((SINGLE, ORDERED, PATH), (MULTI, PATH_LISTS), (PATH, PATH_LISTS))
WITH_CLASSES = (*ONE_LABEL, *LISTS)
LEVELS = range(1, 9)  # of a hierarchy that have a metric of their own
MAX_CLASSES = 50  # in a whole table of classes; of more, the worst are shown
MAX_IN_MATRIX = 30  # classes of a whole confusion matrix; with more, only the wrong pairs are written
SCORES = ("precision", "recall", "f1")
# These metrics are the share of rows that are right, by the name of the column of answers in files
RIGHT = {"label": "accuracy", "labels": "subset_accuracy", "score": "near"}


class Drawn:
    """Rows that are drawn with replacement, as counts: `labels` and `predicted`, (num_distinct, ...), are the
    different pairs of a label and an answer, and `counts`, (num_resamples, num_distinct), says how often each
    pair is drawn. So a million rows cost no more than the pairs that differ. A metric is (num_resamples,)."""

    def __init__(self, task: Task, labels: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> None:
        self.labels, self.predicted, self.counts = labels, predicted, counts
        self.num_labels, self.tree, self.rare = len(task.label_names), task.tree, task.rare_class
        if task.has_rare_class and self.rare is None:
            self.rare = int(np.bincount(labels, counts[0], 2).argmin())
        self.is_right = (labels == predicted).reshape(len(labels), -1).all(axis=1)
        self.distance = np.abs(predicted - labels) if labels.ndim == 1 else None

    @cached_property
    def of_labels(self) -> list[Any]:
        # Sparse 0 and 1, (num_distinct, num_labels): labels that are right, the true, and the predicted ones
        true, predicted = one_hot(self.labels, self.num_labels), one_hot(self.predicted, self.num_labels)
        return [true.multiply(predicted).tocsr(), true, predicted]

    @cached_property
    def of_nodes(self) -> list[Any]:
        true, predicted = self.tree.nodes_of(self.labels), self.tree.nodes_of(self.predicted)
        return [true.multiply(predicted).tocsr(), true, predicted]

    def mean(self, values: np.ndarray) -> np.ndarray:
        return self.counts @ values.astype(np.float64) / self.counts.sum(axis=1)

    def label_f1(self) -> np.ndarray:
        return shares(*(self.counts @ of for of in self.of_labels))[2]

    def micro_f1(self) -> np.ndarray:
        return shares(*(self.counts @ of.sum(axis=1) for of in self.of_labels))[2]

    def weighted_f1(self) -> np.ndarray:
        true = self.counts @ self.of_labels[1]
        return (self.label_f1() * true).sum(axis=1) / np.maximum(true.sum(axis=1), 1)

    def samples_f1(self) -> np.ndarray:
        """The mean of the F1 of each row, which is 1 for a row without labels that gets none."""
        right, true, predicted = (of.sum(axis=1) for of in self.of_labels)
        return self.mean(np.where(true + predicted > 0, shares(right, true, predicted)[2], 1.0))

    def hamming_loss(self) -> np.ndarray:
        return self.mean((self.labels != self.predicted).mean(axis=1))

    def right_to(self, level: int) -> np.ndarray:
        """The share of rows that are right down to a level (1: the highest)."""
        upper = np.flatnonzero(self.tree.levels < level)
        right, true, predicted = (of[:, upper].sum(axis=1) for of in self.of_nodes)
        return self.mean((right == true) & (right == predicted))

    def by_node(self, score: str) -> np.ndarray:
        """One of `SCORES` over all nodes: Kiritchenko et al. 2006, https://doi.org/10.1007/11766247_34"""
        return shares(*(self.counts @ of.sum(axis=1) for of in self.of_nodes))[SCORES.index(score)]

    def macro_mae(self) -> np.ndarray:
        """The mean number of labels that predictions are off, as the mean over the true labels."""
        true = self.of_labels[1]
        support = self.counts @ true
        means = self.counts @ true.multiply(self.distance[:, None]) / np.maximum(support, 1)
        return means.sum(axis=1) / (support > 0).sum(axis=1)

    def quadratic_kappa(self) -> np.ndarray:
        """The quadratic weighted kappa; 0 where all labels and predictions are one label."""
        truth, predicted, mean = self.labels, self.predicted, self.mean
        by_chance = mean(truth**2) + mean(predicted**2) - 2 * mean(truth) * mean(predicted)
        is_constant = by_chance < 1e-12
        kappas = 1 - mean(self.distance**2) / np.where(is_constant, 1.0, by_chance)
        # Where all predictions are one label, rounding may leave a tiny negative number, shown as -0.0000
        return np.where(is_constant | (np.abs(kappas) < 1e-12), 0.0, kappas)

    def rmse(self) -> np.ndarray:
        return self.mean(self.distance**2) ** 0.5

    def correlation(self, of_ranks: bool) -> np.ndarray:
        """Pearson's correlation of labels and predictions, or of their ranks, which is Spearman's; 0 where
        the labels or the predictions are constant."""
        mean, parts = partial(np.average, axis=1, weights=self.counts), []
        for numbers in (self.labels, self.predicted):
            if of_ranks:
                different, at = np.unique(numbers, return_inverse=True)
                drawn = self.counts @ one_hot(at, len(different))
                numbers = (drawn.cumsum(axis=1) - (drawn - 1) / 2)[:, at]
            numbers = np.broadcast_to(numbers, self.counts.shape)
            centred = numbers - mean(numbers, keepdims=True)
            spread = mean(centred**2) ** 0.5
            parts.append((centred, np.where(spread > 1e-12 * mean(np.abs(numbers)), spread, np.inf)))
        (one, spread_of_one), (other, spread_of_other) = parts
        # 0 is added because rounding may leave -0.0
        return mean(one * other) / spread_of_one / spread_of_other + 0.0


def one_hot(labels: np.ndarray, num_labels: int) -> Any:
    from scipy.sparse import csr_array, eye_array

    if labels.ndim == 2:
        return csr_array(labels.astype(np.float64))
    return eye_array(num_labels, format="csr")[labels]


def shares(right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    """Return precision, recall and F1 of numbers; 0 where there is nothing to divide by."""
    precision, recall = right / np.maximum(predicted, 1), right / np.maximum(true, 1)
    return [precision, recall, 2 * right / np.maximum(true + predicted, 1)]


def ranked(is_rare: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return how many rows of the other class, then of the rarer one, each cell has; `cells` (num_rows,) are
    numbers, the smaller the more probable."""
    return np.bincount(np.unique(cells, return_inverse=True)[1] * 2 + is_rare)


def down_to(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many rows of the rarer of two classes, and of both, there are down to each cell,
    (num_resamples, num_cells + 1); `counts` are those of `ranked`, (num_resamples, num_counts)."""
    # An empty cell is put first; the last cell may lack its count of the rarer class, which is 0 then
    both = np.pad(counts, ((0, 0), (2, counts.shape[1] % 2)))
    right = both[:, 1::2].cumsum(axis=1)
    return right, right + both[:, ::2].cumsum(axis=1)


def average_precision(right: np.ndarray, shown: np.ndarray, level: float) -> np.ndarray:
    precision = right / np.maximum(shown, 1)
    return (np.diff(right, prepend=0) * precision).sum(axis=1) / np.maximum(right[:, -1], 1)


def roc_auc(right: np.ndarray, shown: np.ndarray, level: float) -> np.ndarray:
    """How often a row of the rarer class is more probable than one of the other; 0.5 without a pair."""
    wrong = shown - right
    pairs = right[:, -1] * wrong[:, -1]
    return np.where(pairs > 0, np.trapezoid(right, wrong, axis=1) / np.maximum(pairs, 1), 0.5)


def recall_at_precision(right: np.ndarray, shown: np.ndarray, level: float) -> np.ndarray:
    """The largest share of the rarer class that is found with the precision `level`."""
    found = np.where(right >= level * shown, right, 0).max(axis=1)
    return found / np.maximum(right[:, -1], 1)


@dataclass(frozen=True)
class Metric:
    """One metric, computed by `of_answers`, `of_scores` or `of_ranks`; by none where a task has no labels."""

    key: str
    label: str  # its name in English
    tasks: tuple[str, ...]  # values of data.task
    of_answers: Callable[[Drawn], np.ndarray] | None = None
    # Values whose mean is the metric: one for each row; without an interval it may be a single number
    of_scores: Callable[[Scores], np.ndarray] | None = None
    # It gets what `down_to` returns, and `level`; only a task with two classes has it
    of_ranks: Callable[[np.ndarray, np.ndarray, float], np.ndarray] | None = None
    has_interval: bool = True  # 95 %, by bootstrap
    # Draws that miss a rare label are too low: all are moved until their mean is the metric, within 0 and 1
    is_centred: bool = False
    higher_is_better: bool = True
    compared: bool = True  # of each fold and each seed, and between two runs
    level: float = 0  # of a hierarchy, or the precision, that it is of

    @property
    def english(self) -> str:
        """The name in English, for files; `name` is that for people."""
        return self.label.format(level=self.level)

    @property
    def name(self) -> str:
        return _(self.label).format(level=self.level)

    @property
    def title(self) -> str:
        return self.name[0].upper() + self.name[1:]


LOWER, ALONE = {"higher_is_better": False}, {"compared": False}
SHOWN_ONLY = {"compared": False, "has_interval": False}
OF_RECALL = ALONE | {"of_ranks": recall_at_precision, "level": Task.recall_at}
RECALL, ACCURACY_AT = "recall_at_precision", N_("accuracy at level {level}")
NEAR = N_("share of rows at most half a standard deviation off")
METRICS = (
    Metric("kappa", N_("quadratic weighted kappa"), (ORDERED,), Drawn.quadratic_kappa),
    Metric("macro_mae", N_("macro-averaged absolute error"), (ORDERED,), Drawn.macro_mae, **LOWER),
    Metric("within_one", N_("accuracy within one"), (ORDERED,), lambda of: of.mean(of.distance <= 1)),
    Metric("mae", N_("mean absolute error"), (NUMBER,), lambda of: of.mean(of.distance), **LOWER),
    Metric("rmse", N_("root mean squared error"), (NUMBER,), Drawn.rmse, **LOWER),
    Metric("pearson", N_("Pearson correlation"), (NUMBER,), call("correlation", of_ranks=False)),
    Metric("spearman", N_("Spearman correlation"), (NUMBER,), call("correlation", of_ranks=True)),
    Metric("near", NEAR, (NUMBER,), of_scores=lambda scores: scores.correct, **SHOWN_ONLY),
    *(Metric(f"level_{at}_accuracy", ACCURACY_AT, (PATH,), call("right_to", at), level=at) for at in LEVELS),
    Metric("hierarchical_f1", N_("hierarchical F1"), PATHS, call("by_node", "f1")),
    Metric("hierarchical_precision", N_("hierarchical precision"), PATHS, call("by_node", "precision")),
    Metric("hierarchical_recall", N_("hierarchical recall"), PATHS, call("by_node", "recall")),
    Metric("accuracy", N_("accuracy"), ONE_LABEL, lambda of: of.mean(of.is_right)),
    Metric("micro_f1", N_("micro F1"), LISTS, Drawn.micro_f1),
    Metric("macro_f1", N_("macro F1"), WITH_CLASSES, lambda of: of.label_f1().mean(axis=1), is_centred=True),
    Metric(RARE_F1, N_("F1 of the rarer class"), (SINGLE,), lambda of: of.label_f1()[:, of.rare]),
    Metric("average_precision", N_("average precision"), (SINGLE,), of_ranks=average_precision, **ALONE),
    Metric("roc_auc", N_("ROC-AUC"), (SINGLE,), of_ranks=roc_auc, **ALONE),
    Metric(RECALL, N_("recall at precision {level:g}"), (SINGLE,), **OF_RECALL),
    Metric("weighted_f1", N_("weighted F1"), WITH_CLASSES, Drawn.weighted_f1, **SHOWN_ONLY),
    Metric("samples_f1", N_("samples F1"), LISTS, Drawn.samples_f1),
    Metric("subset_accuracy", N_("subset accuracy"), LISTS, lambda of: of.mean(of.is_right)),
    Metric("hamming_loss", N_("Hamming loss"), LISTS, Drawn.hamming_loss, **LOWER, **SHOWN_ONLY),
    Metric("loss", N_("loss"), (*WITH_CLASSES, NUMBER), of_scores=lambda scores: scores.loss, **LOWER),
    Metric("brier", N_("Brier score"), ONE_LABEL, of_scores=lambda scores: scores.brier, **LOWER, **ALONE),
    Metric("ece", N_("calibration error"), ONE_LABEL, of_scores=calibration_error, **LOWER, **SHOWN_ONLY),
    Metric("loss", N_("loss"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("perplexity", N_("perplexity"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("accuracy", N_("accuracy"), (MASKED,), **SHOWN_ONLY),
)
BY_KEY = {metric.key: metric for metric in METRICS}


def metrics_of(task: Task) -> list[Metric]:
    """Return the metrics of a task in the order in which they are shown. Metrics by level leave out the
    lowest level of a hierarchy. The recall of the rarer of two classes is at precision `task.recall_at`."""
    depth = task.tree.depth if task.tree else 1
    shown = [one for one in METRICS if task.has_rare_class or not (one.of_ranks or one.key == RARE_F1)]
    shown = [one for one in shown if task.name in one.tasks and one.level < depth]
    return [replace(one, level=task.recall_at) if one.key == RECALL else one for one in shown]


def distinct_rows(*arrays: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the different rows of arrays (num_rows, ...) side by side, and how often each is there,
    (num_distinct,) int64. Arrays of floats are returned whole: hardly two of their rows are equal."""
    if arrays[0].dtype.kind == "f":
        return list(arrays), np.ones(len(arrays[0]), np.int64)
    table = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
    if table.dtype == bool:
        table = np.packbits(table, axis=1)
    _, first, counts = np.unique(table, axis=0, return_index=True, return_counts=True)
    return [array[first] for array in arrays], counts


def measure(task: Task, scores: Scores) -> dict:
    """Return all metrics of rows as report.json has them: those of the table, precision, recall, F1 and
    support of each label in `classes`, their averages, confusions, and `parents` of a hierarchy."""
    distinct, counts = distinct_rows(scores.labels, scores.predicted)
    drawn = Drawn(task, *distinct, counts[None])
    if scores.rare_chance is not None:
        ranks = down_to(ranked(scores.labels == drawn.rare, -scores.rare_chance)[None])
    metrics: dict = {"rows": len(scores)} | scores.figures
    for metric in metrics_of(task):
        if metric.of_answers:
            value = metric.of_answers(drawn)[0]
        elif metric.of_scores:
            value = metric.of_scores(scores).mean()
        else:
            value = metric.of_ranks(*ranks, metric.level)[0]
        metrics[metric.key] = float(value)
    if scores.error is not None:
        return metrics
    names, is_one = task.label_names, scores.labels.ndim == 1
    right, true, predicted = (counts @ of for of in drawn.of_labels)
    thresholds = {} if scores.thresholds is None else {"threshold": scores.thresholds}
    metrics["classes"] = class_table(names, right, true, predicted, **thresholds)
    of_classes = shares(right, true, predicted)
    averages = {"macro": [values.mean() for values in of_classes]}
    averages["weighted"] = [(values * true).sum() / max(true.sum(), 1) for values in of_classes]
    # Where each row has one label, the micro average is the accuracy
    averages |= {} if is_one else {"micro": shares(right.sum(), true.sum(), predicted.sum())}
    metrics |= {name: dict(zip(SCORES, map(float, of), strict=True)) for name, of in averages.items()}
    if task.tree:
        parents = task.tree.parents
        of_parents = [(counts @ of)[parents] for of in drawn.of_nodes]
        metrics["parents"] = class_table(list(map(task.tree.name, parents)), *of_parents)
    if is_one and len(names) > MAX_IN_MATRIX:
        order = np.argsort(-counts, kind="stable")
        pairs = (of[order].tolist() for of in (drawn.labels, drawn.predicted, counts))
        found = [[names[a], names[b], rows] for a, b, rows in zip(*pairs, strict=True) if a != b]
        metrics["confusions"] = found
    elif is_one:
        matrix = np.zeros((len(names), len(names)), np.int64)
        matrix[drawn.labels, drawn.predicted] = counts
        metrics["confusion_matrix"] = matrix.tolist()
    return metrics


def class_table(names: list[str], right: np.ndarray, true: np.ndarray, predicted: np.ndarray, **more) -> dict:
    columns = dict(zip(SCORES, shares(right, true, predicted), strict=True))
    columns |= {"support": true.astype(int)} | more
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return {name: dict(zip(columns, row, strict=True)) for name, row in zip(names, rows, strict=True)}


def worst_labels(classes: Mapping, count: int, limit: int = 0) -> Mapping:
    """Return the `count` labels with the lowest F1 among those with rows; where F1 is equal, the label with
    more rows comes first. A table of up to `limit` labels is returned whole."""
    if len(classes) <= limit:
        return classes
    with_rows = [name for name, scores in classes.items() if scores["support"]]
    worst = sorted(with_rows, key=lambda name: (classes[name]["f1"], -classes[name]["support"], name))
    return {name: classes[name] for name in worst[:count]}


def metrics_in_training(task: Task, split: Split, results: np.ndarray) -> dict:
    """Return the metrics of a split; `results` are `task.row_results` of its rows, in their order. Chooses
    the thresholds that are best for these rows, but no temperature, which changes no decision."""
    if not task.has_labels:
        return task.measure(results)
    task.fit(split.labels, results)
    return measure(task, task.score(split.labels, results))


def best_baseline(metrics: Mapping, key: str) -> tuple[str, Mapping] | None:
    """Return the name and the metrics of the baseline that is best by the metric `key`; None without one."""
    sign = 1 if BY_KEY[key].higher_is_better else -1
    baselines = metrics.get("baselines", {}).items()
    return max(baselines, key=lambda entry: sign * entry[1][key], default=None)


def is_better(value: float, best: float | None, key: str) -> bool:
    """Return whether `value` of a metric is better than the best so far; any is better than NaN."""
    if best is None or math.isnan(best):
        return best is None or not math.isnan(value)
    return value > best if BY_KEY[key].higher_is_better else value < best
