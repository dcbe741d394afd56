"""The table of metrics: what each one is, and where it is shown. A new metric is one entry of `METRICS`.

The report, the page and the card show the metrics of the task, with intervals; folds, seeds and comparisons
show those that are `compared`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from operator import methodcaller as call
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tasks.task import Scores, Task
from ..words import N_, _
from .confidence import calibration_error

if TYPE_CHECKING:
    from ..data.dataset import Split

SINGLE, MULTI, MASKED = "single_label", "multi_label", "masked_language_modelling"
NUMBER, ORDERED, PATH, PATH_LISTS = "regression", "ordinal", "single_path", "multi_path"
ONE_LABEL, LISTS, PATHS = ((SINGLE, ORDERED, PATH), (MULTI, PATH_LISTS), (PATH, PATH_LISTS))
WITH_CLASSES = (*ONE_LABEL, *LISTS)
LEVELS = range(1, 9)  # of a hierarchy that have a metric of their own
MAX_CLASSES = 50  # classes of a whole confusion matrix; with more, only the wrong pairs are written
SCORES = ("precision", "recall", "f1")
# These metrics are the share of rows that are right, by the name of the column of answers in files
RIGHT = {"label": "accuracy", "labels": "subset_accuracy", "score": "near"}


class Drawn:
    """Rows that are drawn with replacement, as counts: `labels` and `predicted`, (num_distinct, ...), are the
    different pairs of a label and an answer, and `counts`, (num_resamples, num_distinct), says how often each
    pair is drawn. So a million rows cost no more than the pairs that differ. A metric is (num_resamples,)."""

    def __init__(self, task: Task, labels: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> None:
        self.labels, self.predicted, self.counts = labels, predicted, counts
        self.num_labels, self.tree, self.rare = len(task.label_names), task.tree, task.rare
        if task.has_rare and self.rare is None:
            self.rare = int(np.bincount(labels, counts[0], 2).argmin())
        self.is_right = (labels == predicted).reshape(len(labels), -1).all(axis=1)

    def again(self, counts: np.ndarray) -> Drawn:
        drawn = copy(self)
        drawn.counts = counts
        return drawn

    @property
    def distance(self) -> np.ndarray:
        return np.abs(self.predicted - self.labels)

    @cached_property
    def of_labels(self) -> list[Any]:
        # Sparse 0 and 1, (num_distinct, num_labels): labels that are right, the true, and the predicted ones
        true, predicted = one_hot(self.labels, self.num_labels), one_hot(self.predicted, self.num_labels)
        return [true.multiply(predicted).tocsr(), true, predicted]

    @cached_property
    def of_nodes(self) -> list[Any]:
        true, predicted = self.tree.nodes_of(self.labels), self.tree.nodes_of(self.predicted)
        return [true.multiply(predicted).tocsr(), true, predicted]

    @cached_property
    def of_levels(self) -> list[np.ndarray]:
        return [np.asarray(of @ np.eye(self.tree.depth)[self.tree.levels]) for of in self.of_nodes]

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

    def right_to(self, level: int) -> np.ndarray:
        """The share of rows that are right down to a level (1: the highest)."""
        right, true, predicted = (of[:, :level].sum(axis=1) for of in self.of_levels)
        return self.mean((right == true) & (right == predicted))

    def by_node(self, score: str, level: int = 0) -> np.ndarray:
        """One of `SCORES` over the nodes of one level, or of all (0): Kiritchenko et al. 2006,
        https://doi.org/10.1007/11766247_34"""
        levels = slice(level - 1, level) if level else slice(None)
        numbers = (self.counts @ of[:, levels].sum(axis=1) for of in self.of_levels)
        return shares(*numbers)[SCORES.index(score)]

    def macro_mae(self) -> np.ndarray:
        """The mean number of labels that predictions are off, as the mean over the true labels."""
        true = self.of_labels[1]
        support = self.counts @ true
        means = self.counts @ true.multiply(self.distance[:, None]) / np.maximum(support, 1)
        return means.sum(axis=1) / (support > 0).sum(axis=1)

    def kappa(self) -> np.ndarray:
        """The quadratic weighted kappa; 0 where all labels and predictions are one label."""
        truth, predicted, mean = self.labels, self.predicted, self.mean
        by_chance = mean(truth**2) + mean(predicted**2) - 2 * mean(truth) * mean(predicted)
        is_constant = by_chance < 1e-12
        kappas = 1 - mean(self.distance**2) / np.where(is_constant, 1.0, by_chance)
        # Where all predictions are one label, rounding may leave a tiny negative number, shown as -0.0000
        return np.where(is_constant | (np.abs(kappas) < 1e-12), 0.0, kappas)

    def rmse(self) -> np.ndarray:
        return self.mean(self.distance**2) ** 0.5

    def correlation(self, statistic: str) -> np.ndarray:
        """A correlation of scipy.stats; 0 where the labels or the predictions are constant."""
        from scipy import stats

        correlations = []
        for counts in self.counts:
            pair = [np.repeat(numbers, counts) for numbers in (self.labels, self.predicted)]
            is_constant = any(np.ptp(numbers) <= 1e-12 * np.abs(numbers).max() for numbers in pair)
            correlations.append(0.0 if is_constant else getattr(stats, statistic)(*pair).statistic)
        return np.array(correlations)


def one_hot(labels: np.ndarray, num_labels: int) -> Any:
    from scipy.sparse import csr_array

    if labels.ndim == 2:
        return csr_array(labels.astype(np.float64))
    return csr_array((np.ones(len(labels)), labels, np.arange(len(labels) + 1)), (len(labels), num_labels))


def shares(right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    """Return precision, recall and F1 of numbers; 0 where there is nothing to divide by."""
    precision, recall = right / np.maximum(predicted, 1), right / np.maximum(true, 1)
    return [precision, recall, 2 * right / np.maximum(true + predicted, 1)]


def ranked(is_rare: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return how many rows of the other class, then of the rarer one, each cell has; `cells` (num_rows,) are
    numbers, the smaller the more probable."""
    return np.bincount(np.unique(cells, return_inverse=True)[1] * 2 + is_rare)


class Ranks:
    """Rows by how probable the rarer of two classes is, as `counts` of `ranked`, (num_resamples, num_counts):
    how many of this class, and of both, there are down to each cell, (num_resamples, num_cells + 1)."""

    def __init__(self, counts: np.ndarray, recall_at: float) -> None:
        # An empty cell is put first; the last cell may lack its count of the rarer class, which is 0 then
        both = np.pad(counts, ((0, 0), (2, counts.shape[1] % 2)))
        self.recall_at = recall_at
        self.right = both[:, 1::2].cumsum(axis=1)
        self.shown = self.right + both[:, ::2].cumsum(axis=1)

    def precision(self) -> np.ndarray:
        precision, right = self.right / np.maximum(self.shown, 1), self.right
        return (np.diff(right, prepend=0) * precision).sum(axis=1) / np.maximum(right[:, -1], 1)

    def roc_auc(self) -> np.ndarray:
        """How often a row of the rarer class is more probable than one of the other; 0.5 without a pair."""
        wrong = self.shown - self.right
        pairs = self.right[:, -1] * wrong[:, -1]
        return np.where(pairs > 0, np.trapezoid(self.right, wrong, axis=1) / np.maximum(pairs, 1), 0.5)

    def recall(self) -> np.ndarray:
        """The largest share of the rarer class that is found with the precision `recall_at`."""
        found = np.where(self.right >= self.recall_at * self.shown, self.right, 0).max(axis=1)
        return found / np.maximum(self.right[:, -1], 1)


@dataclass(frozen=True)
class Metric:
    """One metric. One of `of_answers`, `of_rows`, `of_confidence` and `of_ranks` computes it; none that of
    a task without labels."""

    key: str
    label: str  # its name in English
    tasks: tuple[str, ...]  # values of data.task
    of_answers: Callable[[Drawn], np.ndarray] | None = None
    of_rows: Callable[[Scores], np.ndarray] | None = None  # a value for each row, whose mean is the metric
    of_confidence: Callable[[np.ndarray, np.ndarray], float] | None = None  # of how sure and right rows are
    of_ranks: Callable[[Ranks], np.ndarray] | None = None
    of_two_classes: bool = False  # only a task with two classes has it
    has_interval: bool = True  # 95 %, by bootstrap; the page shows it
    # From 0 to 1, and rare labels make the resampled values too low: these are moved until their mean is it
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


def hamming(scores: Scores) -> np.ndarray:
    return scores.num_wrong / scores.labels.shape[1]


LOWER, ALONE = {"higher_is_better": False}, {"compared": False}
RARE, RANKED = {"of_two_classes": True}, {"of_two_classes": True, "compared": False}
SHOWN_ONLY = {"compared": False, "has_interval": False}
RECALL, ACCURACY_AT, F1_AT = (
    "recall_at_precision",
    N_("accuracy at level {level}"),
    N_("micro F1 at level {level}"),
)
NEAR = N_("share of rows at most half a standard deviation off")
METRICS = (
    Metric("kappa", N_("quadratic weighted kappa"), (ORDERED,), Drawn.kappa),
    Metric("macro_mae", N_("macro-averaged absolute error"), (ORDERED,), Drawn.macro_mae, **LOWER),
    Metric("within_one", N_("accuracy within one"), (ORDERED,), lambda of: of.mean(of.distance <= 1)),
    Metric("mae", N_("mean absolute error"), (NUMBER,), lambda of: of.mean(of.distance), **LOWER),
    Metric("rmse", N_("root mean squared error"), (NUMBER,), Drawn.rmse, **LOWER),
    Metric("pearson", N_("Pearson correlation"), (NUMBER,), call("correlation", "pearsonr")),
    Metric("spearman", N_("Spearman correlation"), (NUMBER,), call("correlation", "spearmanr")),
    Metric("near", NEAR, (NUMBER,), of_rows=lambda scores: scores.correct, **SHOWN_ONLY),
    *(Metric(f"level_{at}_accuracy", ACCURACY_AT, (PATH,), call("right_to", at), level=at) for at in LEVELS),
    *(Metric(f"level_{at}_f1", F1_AT, (PATH_LISTS,), call("by_node", "f1", at), level=at) for at in LEVELS),
    Metric("hierarchical_f1", N_("hierarchical F1"), PATHS, call("by_node", "f1")),
    Metric("hierarchical_precision", N_("hierarchical precision"), PATHS, call("by_node", "precision")),
    Metric("hierarchical_recall", N_("hierarchical recall"), PATHS, call("by_node", "recall")),
    Metric("accuracy", N_("accuracy"), ONE_LABEL, lambda of: of.mean(of.is_right)),
    Metric("micro_f1", N_("micro F1"), LISTS, Drawn.micro_f1),
    Metric("macro_f1", N_("macro F1"), WITH_CLASSES, lambda of: of.label_f1().mean(axis=1), is_centred=True),
    Metric("rare_f1", N_("F1 of the rarer class"), (SINGLE,), lambda of: of.label_f1()[:, of.rare], **RARE),
    Metric("average_precision", N_("average precision"), (SINGLE,), of_ranks=Ranks.precision, **RANKED),
    Metric("roc_auc", N_("ROC-AUC"), (SINGLE,), of_ranks=Ranks.roc_auc, **RANKED),
    Metric(RECALL, N_("recall at precision {level:g}"), (SINGLE,), of_ranks=Ranks.recall, **RANKED),
    Metric("weighted_f1", N_("weighted F1"), WITH_CLASSES, Drawn.weighted_f1, **SHOWN_ONLY),
    Metric("samples_f1", N_("samples F1"), LISTS, Drawn.samples_f1),
    Metric("subset_accuracy", N_("subset accuracy"), LISTS, lambda of: of.mean(of.is_right)),
    Metric("hamming_loss", N_("Hamming loss"), LISTS, of_rows=hamming, **LOWER, **SHOWN_ONLY),
    Metric("loss", N_("loss"), (*WITH_CLASSES, NUMBER), of_rows=lambda scores: scores.loss, **LOWER),
    Metric("brier", N_("Brier score"), ONE_LABEL, of_rows=lambda scores: scores.brier, **LOWER, **ALONE),
    Metric("ece", N_("calibration error"), ONE_LABEL, of_confidence=calibration_error, **LOWER, **ALONE),
    Metric("loss", N_("loss"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("perplexity", N_("perplexity"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("accuracy", N_("accuracy"), (MASKED,), **SHOWN_ONLY),
)
BY_KEY = {metric.key: metric for metric in METRICS}


def metrics_of(task: Task) -> list[Metric]:
    """Return the metrics of a task in the order in which they are shown. The lowest level of a hierarchy has
    no metric of its own. The recall of the rarer of two classes is at the precision `recall_at`."""
    depth = task.tree.depth if task.has_labels and task.tree else 1
    has_two = len(task.label_names) == 2
    shown = [one for one in METRICS if has_two or not one.of_two_classes]
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
    if scores.is_rare is not None:
        ranks = Ranks(ranked(scores.is_rare, -scores.rare_chance)[None], task.recall_at)
    metrics: dict = {"rows": len(scores)} | scores.figures
    for metric in metrics_of(task):
        if metric.of_answers:
            value = metric.of_answers(drawn)[0]
        elif metric.of_rows:
            value = metric.of_rows(scores).mean()
        elif metric.of_ranks:
            value = metric.of_ranks(ranks)[0]
        else:
            value = metric.of_confidence(scores.confidence, scores.correct)
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
    # With one label a row it would be the accuracy once more
    averages |= {} if is_one else {"micro": shares(right.sum(), true.sum(), predicted.sum())}
    metrics |= {name: dict(zip(SCORES, map(float, of), strict=True)) for name, of in averages.items()}
    if task.tree:
        parents = task.tree.parents
        of_parents = [(counts @ of)[parents] for of in drawn.of_nodes]
        metrics["parents"] = class_table(list(map(task.tree.name, parents)), *of_parents)
    if is_one and len(names) > MAX_CLASSES:
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
    from pandas import DataFrame

    columns = dict(zip(SCORES, shares(right, true, predicted), strict=True))
    rows = DataFrame(columns | {"support": true.astype(int)} | more).to_dict("records")
    return dict(zip(names, rows, strict=True))


def confusions(metrics: Mapping) -> list[list]:
    """Return [label, predicted, rows] of each wrong pair of a report, the most frequent first. With several
    labels a row there are no such pairs: no label is taken for another."""
    if "confusion_matrix" not in metrics:
        return metrics.get("confusions", [])
    names, matrix = list(metrics["classes"]), np.array(metrics["confusion_matrix"])
    np.fill_diagonal(matrix, 0)
    wrong = sorted(np.argwhere(matrix).tolist(), key=lambda pair: -matrix[*pair])
    return [[names[label], names[predicted], int(matrix[label, predicted])] for label, predicted in wrong]


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
    task.choose(split.labels, results)
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
