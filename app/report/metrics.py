"""The table of metrics: what each one is, and where it is shown. A new metric is one entry of `METRICS`.

The report, the page and the card show the metrics of the task, with intervals; folds, seeds and comparisons
show those that are `compared`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tasks.task import Scores, Task
from ..words import N_, _
from .confidence import confidence_bins

if TYPE_CHECKING:
    from ..data.dataset import Split

SINGLE, MULTI, MASKED = "single_label", "multi_label", "masked_language_modelling"
NUMBER, ORDERED, PATH, PATH_LISTS = "regression", "ordinal", "single_path", "multi_path"
ONE_LABEL, LISTS, PATHS = ((SINGLE, ORDERED, PATH), (MULTI, PATH_LISTS), (PATH, PATH_LISTS))
WITH_CLASSES = (*ONE_LABEL, *LISTS)
MAX_LEVELS = 8  # levels of a hierarchy that have a metric of their own
MAX_CLASSES = 50  # classes of a whole confusion matrix; with more, only the wrong pairs are written
SCORES = ("precision", "recall", "f1")
# These metrics are the share of rows that are right, by the name of the column of answers in files
RIGHT = {"label": "accuracy", "labels": "subset_accuracy", "score": "near"}


class Drawn:
    """Rows that are drawn with replacement, as counts: `labels` and `predicted`, (num_distinct, ...), are the
    different pairs of a label and an answer, and `counts`, (num_resamples, num_distinct), says how often each
    pair is drawn. A metric of them is (num_resamples,).

    Drawing rows with replacement is drawing these counts, so a million rows cost no more than the pairs that
    differ.
    """

    def __init__(self, task: Task, labels: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> None:
        self.labels, self.predicted, self.counts = labels, predicted, counts
        # `again` keeps these, which are the counts of the rows themselves
        self.original_counts = counts[0]
        self.num_labels, self.tree, self.rare = (len(task.label_names), task.tree, task.rare)
        self.is_right = (labels == predicted).reshape(len(labels), -1).all(axis=1)

    def again(self, counts: np.ndarray) -> Drawn:
        """Return the same pairs, drawn as often as other `counts` say."""
        drawn = copy(self)
        drawn.counts = counts
        return drawn

    def mean(self, values: np.ndarray) -> np.ndarray:
        return self.counts @ values.astype(np.float64) / self.counts.sum(axis=1)

    @property
    def distance(self) -> np.ndarray:
        """By how many ordered labels, or by how much, each prediction is off, (num_distinct,)."""
        return np.abs(self.predicted - self.labels)

    @cached_property
    def of_labels(self) -> list[Any]:
        """Three sparse matrices of 0 and 1, (num_distinct, num_labels): the labels that are right, the true
        ones, and the predicted ones."""
        true = one_hot(self.labels, self.num_labels)
        predicted = one_hot(self.predicted, self.num_labels)
        return [true.multiply(predicted).tocsr(), true, predicted]

    @cached_property
    def of_nodes(self) -> list[Any]:
        """The same for the nodes of the hierarchy, (num_distinct, num_nodes)."""
        true, predicted = self.tree.nodes_of(self.labels), self.tree.nodes_of(self.predicted)
        return [true.multiply(predicted).tocsr(), true, predicted]

    @cached_property
    def of_levels(self) -> list[np.ndarray]:
        """The same as numbers of nodes at each level, (num_distinct, depth)."""
        return [np.asarray(of @ np.eye(self.tree.depth)[self.tree.levels]) for of in self.of_nodes]

    @property
    def f1(self) -> np.ndarray:
        """The F1 of each label, (num_resamples, num_labels)."""
        return shares(*(self.counts @ of for of in self.of_labels))[2]


def one_hot(labels: np.ndarray, num_labels: int) -> Any:
    from scipy.sparse import csr_array

    if labels.ndim == 2:
        return csr_array(labels.astype(np.float64))
    rows = np.arange(len(labels))
    return csr_array((np.ones(len(rows)), (rows, labels)), (len(rows), num_labels))


def shares(right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    """Return precision, recall and F1 from the numbers of right, true and predicted ones; 0 where there is
    nothing to divide by."""
    precision, recall = right / np.maximum(predicted, 1), right / np.maximum(true, 1)
    return [precision, recall, 2 * right / np.maximum(true + predicted, 1)]


def micro_f1(drawn: Drawn) -> np.ndarray:
    return shares(*(drawn.counts @ of.sum(axis=1) for of in drawn.of_labels))[2]


def weighted_f1(drawn: Drawn) -> np.ndarray:
    true = drawn.counts @ drawn.of_labels[1]
    return (drawn.f1 * true).sum(axis=1) / np.maximum(true.sum(axis=1), 1)


def row_f1(drawn: Drawn) -> np.ndarray:
    """The mean of the F1 of each row, over its labels; that is 1 for a row without labels that gets none."""
    right, true, predicted = (of.sum(axis=1) for of in drawn.of_labels)
    return drawn.mean(np.where(true + predicted > 0, shares(right, true, predicted)[2], 1.0))


def rare_f1(drawn: Drawn) -> np.ndarray:
    rare = drawn.rare
    if rare is None:
        rare = (drawn.original_counts @ drawn.of_labels[1]).argmin()
    return drawn.f1[:, rare]


def average_precision(right: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """The mean precision down to each row of the rarer class, the most probable rows first."""
    precision = right / np.maximum(shown, 1)
    return (np.diff(right, prepend=0) * precision).sum(axis=1) / np.maximum(right[:, -1], 1)


def roc_auc(right: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """How often a row of the rarer class is more probable than one of the other; 0.5 without such a pair."""
    wrong = shown - right
    pairs = right[:, -1] * wrong[:, -1]
    return np.where(pairs > 0, np.trapezoid(right, wrong, axis=1) / np.maximum(pairs, 1), 0.5)


def recall(right: np.ndarray, shown: np.ndarray, precision: float) -> np.ndarray:
    """The largest share of the rarer class that is found with this precision."""
    return np.where(right >= precision * shown, right, 0).max(axis=1) / np.maximum(right[:, -1], 1)


def ranked(is_rare: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, Callable]:
    """Return how many rows each cell has, two counts for each: the other class, then the rarer one; and a
    function that makes curves of such counts. `cells` (num_rows,) are numbers, the smaller the more probable.

    The function takes counts, (num_resamples, num_counts). It returns how many rows of the rarer class, and
    of both classes, there are down to each cell, (num_resamples, num_cells + 1) each.
    """
    counts = np.bincount(np.unique(cells, return_inverse=True)[1] * 2 + is_rare)

    def curve(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # An empty cell is put first; the last cell may lack its count of the rarer class, which is 0 then
        both = np.pad(drawn, ((0, 0), (2, drawn.shape[1] % 2)))
        right = both[:, 1::2].cumsum(axis=1)
        return right, right + both[:, ::2].cumsum(axis=1)

    return counts, curve


def macro_mae(drawn: Drawn) -> np.ndarray:
    """The mean number of labels that predictions are off, as the mean over the true labels."""
    true = drawn.of_labels[1]
    support = drawn.counts @ true
    means = drawn.counts @ true.multiply(drawn.distance[:, None]) / np.maximum(support, 1)
    return means.sum(axis=1) / (support > 0).sum(axis=1)


def kappa(drawn: Drawn) -> np.ndarray:
    """The quadratic weighted kappa; 0 where all labels and predictions are one label."""
    truth, predicted, mean = drawn.labels, drawn.predicted, drawn.mean
    by_chance = mean(truth**2) + mean(predicted**2) - 2 * mean(truth) * mean(predicted)
    is_constant = by_chance < 1e-12
    kappas = 1 - mean(drawn.distance**2) / np.where(is_constant, 1.0, by_chance)
    # Where all predictions are one label, rounding may leave a tiny negative number, shown as -0.0000
    return np.where(is_constant | (np.abs(kappas) < 1e-12), 0.0, kappas)


def correlation(statistic: str) -> Callable[[Drawn], np.ndarray]:
    """Return a function that gives a correlation of scipy.stats for each resample of drawn rows; 0 where the
    labels or the predictions are constant."""

    def values(drawn: Drawn) -> np.ndarray:
        from scipy import stats

        # They are centred, so that products of large numbers lose no digits
        centred = [numbers - numbers.mean() for numbers in (drawn.labels, drawn.predicted)]
        correlations = []
        for counts in drawn.counts:
            pair = [np.repeat(numbers, counts) for numbers in centred]
            is_constant = any(np.ptp(numbers) <= 1e-12 * np.abs(numbers).max() for numbers in pair)
            correlations.append(0.0 if is_constant else getattr(stats, statistic)(*pair).statistic)
        return np.array(correlations)

    return values


def level_accuracy(level: int) -> Callable[[Drawn], np.ndarray]:
    """Return a function that gives the share of drawn rows that are right down to a level (1: the
    highest)."""

    def values(drawn: Drawn) -> np.ndarray:
        right, true, predicted = (of[:, :level].sum(axis=1) for of in drawn.of_levels)
        return drawn.mean((right == true) & (right == predicted))

    return values


def node_score(score: str, level: int | None = None) -> Callable[[Drawn], np.ndarray]:
    """Return a function that gives one of `SCORES` for drawn rows, over the nodes of all paths or those of
    one level: Kiritchenko et al. 2006, https://doi.org/10.1007/11766247_34"""
    levels = slice(None) if level is None else slice(level - 1, level)

    def values(drawn: Drawn) -> np.ndarray:
        numbers = (drawn.counts @ of[:, levels].sum(axis=1) for of in drawn.of_levels)
        return shares(*numbers)[SCORES.index(score)]

    return values


@dataclass(frozen=True)
class Metric:
    """One metric, for the values `tasks` of data.task; `label` is its English name. `level` is the level of a
    hierarchy that it measures, or a precision, 0 for none.

    One of these computes it: `of_answers` from drawn rows; `of_rows` gives one value for each row, whose mean
    is the metric; `of_confidence` takes how sure and how right each row is; `of_ranking` takes how many rows
    of the rarer of two classes, and of both, are among the most probable ones. A metric without any of them
    belongs to a task without labels.

    `of_two_classes`: only a task with two classes has it. `has_interval`: a 95 % bootstrap interval stands
    beside it. `is_centred`, only for a metric from 0 to 1: rare labels make the resampled values too low,
    so these are moved until their mean is the metric. `compared`: it is shown of each fold and each seed, and
    compared between two runs. `headline`: it is among the first numbers of the page.
    """

    key: str
    label: str
    tasks: tuple[str, ...]
    of_answers: Callable[[Drawn], np.ndarray] | None = None
    of_rows: Callable[[Scores], np.ndarray] | None = None
    of_confidence: Callable[[np.ndarray, np.ndarray], float] | None = None
    of_ranking: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    of_two_classes: bool = False
    has_interval: bool = True
    is_centred: bool = False
    higher_is_better: bool = True
    compared: bool = True
    headline: bool = True
    level: float = 0

    @property
    def english(self) -> str:
        """The name in English, for files; `name` is that for people."""
        return self.label.format(level=self.level)

    @property
    def name(self) -> str:
        return _(self.label).format(level=self.level)

    def __str__(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        return self.name[0].upper() + self.name[1:]


LOWER, NOT_COMPARED = {"higher_is_better": False}, {"compared": False}
RECALL, RANKING = "recall_at_precision", {"of_two_classes": True, "compared": False}
SHOWN_ONLY = {"compared": False, "has_interval": False}
NO_HEADLINE = {"headline": False}
LEVELS = range(1, MAX_LEVELS + 1)
LEVEL_ACCURACY, LEVEL_F1 = (N_("accuracy at level {level}"), N_("micro F1 at level {level}"))
NEAR = N_("share of rows at most half a standard deviation off")
METRICS = (
    Metric("kappa", N_("quadratic weighted kappa"), (ORDERED,), kappa),
    Metric("macro_mae", N_("macro-averaged absolute error"), (ORDERED,), macro_mae, **LOWER),
    Metric("within_one", N_("accuracy within one"), (ORDERED,), lambda of: of.mean(of.distance <= 1)),
    Metric("mae", N_("mean absolute error"), (NUMBER,), lambda of: of.mean(of.distance), **LOWER),
    Metric(
        "rmse", N_("root mean squared error"), (NUMBER,), lambda of: of.mean(of.distance**2) ** 0.5, **LOWER
    ),
    Metric("pearson", N_("Pearson correlation"), (NUMBER,), correlation("pearsonr")),
    Metric("spearman", N_("Spearman correlation"), (NUMBER,), correlation("spearmanr")),
    Metric("near", NEAR, (NUMBER,), of_rows=lambda scores: scores.correct, **NO_HEADLINE, **SHOWN_ONLY),
    *(Metric(f"level_{at}_accuracy", LEVEL_ACCURACY, (PATH,), level_accuracy(at), level=at) for at in LEVELS),
    *(Metric(f"level_{at}_f1", LEVEL_F1, (PATH_LISTS,), node_score("f1", at), level=at) for at in LEVELS),
    Metric("hierarchical_f1", N_("hierarchical F1"), PATHS, node_score("f1")),
    Metric(
        "hierarchical_precision", N_("hierarchical precision"), PATHS, node_score("precision"), **NO_HEADLINE
    ),
    Metric("hierarchical_recall", N_("hierarchical recall"), PATHS, node_score("recall"), **NO_HEADLINE),
    Metric("accuracy", N_("accuracy"), ONE_LABEL, lambda of: of.mean(of.is_right)),
    Metric("micro_f1", N_("micro F1"), LISTS, micro_f1),
    Metric("macro_f1", N_("macro F1"), WITH_CLASSES, lambda of: of.f1.mean(axis=1), is_centred=True),
    Metric("rare_f1", N_("F1 of the rarer class"), (SINGLE,), rare_f1, of_two_classes=True),
    Metric("average_precision", N_("average precision"), (SINGLE,), of_ranking=average_precision, **RANKING),
    Metric("roc_auc", N_("ROC-AUC"), (SINGLE,), of_ranking=roc_auc, **RANKING),
    Metric(RECALL, N_("recall at precision {level:g}"), (SINGLE,), of_ranking=recall, **RANKING),
    Metric("weighted_f1", N_("weighted F1"), WITH_CLASSES, weighted_f1, **NO_HEADLINE, **SHOWN_ONLY),
    Metric("samples_f1", N_("samples F1"), LISTS, row_f1),
    Metric("subset_accuracy", N_("subset accuracy"), LISTS, lambda of: of.mean(of.is_right)),
    Metric(
        "hamming_loss",
        N_("Hamming loss"),
        LISTS,
        of_rows=lambda scores: scores.num_wrong / scores.labels.shape[1],
        **LOWER,
        **SHOWN_ONLY,
    ),
    Metric("loss", N_("loss"), (*WITH_CLASSES, NUMBER), of_rows=lambda scores: scores.loss, **LOWER),
    Metric(
        "brier", N_("Brier score"), ONE_LABEL, of_rows=lambda scores: scores.brier, **LOWER, **NOT_COMPARED
    ),
    Metric(
        "ece",
        N_("calibration error"),
        ONE_LABEL,
        of_confidence=lambda *rows: confidence_bins(*rows).error,
        **LOWER,
        **NOT_COMPARED,
    ),
    Metric("loss", N_("loss"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("perplexity", N_("perplexity"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("accuracy", N_("accuracy"), (MASKED,), **SHOWN_ONLY),
)
BY_KEY = {metric.key: metric for metric in METRICS}


def metrics_of(task: Task) -> list[Metric]:
    """Return the metrics of a task in the order in which they are shown. The lowest level of a hierarchy has
    no metric of its own. The recall of the rarer of two classes is that at the task's `recall_at`."""
    depth = task.tree.depth if task.has_labels and task.tree else 1
    has_two = len(task.label_names) == 2
    shown = [one for one in METRICS if has_two or not one.of_two_classes]
    shown = [one for one in shown if task.name in one.tasks and one.level < depth]
    wanted = {"level": task.recall_at, "of_ranking": partial(recall, precision=task.recall_at)}
    return [replace(one, **wanted) if one.key == RECALL else one for one in shown]


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
    metrics: dict = {"rows": len(scores)} | scores.figures
    for metric in metrics_of(task):
        if metric.of_answers:
            value = metric.of_answers(drawn)[0]
        elif metric.of_rows:
            value = metric.of_rows(scores).mean()
        elif metric.of_ranking:
            of_cells, curve = ranked(scores.is_rare, -scores.rare_chance)
            value = metric.of_ranking(*curve(of_cells[None]))[0]
        else:
            value = metric.of_confidence(scores.confidence, scores.correct)
        metrics[metric.key] = float(value)
    if scores.error is not None:
        return metrics
    names = task.label_names
    of_labels = [counts @ of for of in drawn.of_labels]
    metrics["classes"] = class_table(names, *of_labels)
    if scores.thresholds is not None:
        for name, threshold in zip(names, scores.thresholds.tolist(), strict=True):
            metrics["classes"][name]["threshold"] = threshold
    metrics |= averages(*of_labels)
    is_one = scores.labels.ndim == 1
    if is_one:
        # It would be the accuracy once more
        del metrics["micro"]
    if task.tree:
        parents = task.tree.parents
        of_parents = [(counts @ of)[parents] for of in drawn.of_nodes]
        metrics["parents"] = class_table([task.tree.name(node) for node in parents], *of_parents)
    if is_one and len(names) > MAX_CLASSES:
        cells = zip(drawn.labels.tolist(), drawn.predicted.tolist(), counts.tolist(), strict=True)
        metrics["confusions"] = most_frequent((names[a], names[b], rows) for a, b, rows in cells)
    elif is_one:
        matrix = np.zeros((len(names), len(names)), np.int64)
        matrix[drawn.labels, drawn.predicted] = counts
        metrics["confusion_matrix"] = matrix.tolist()
    return metrics


def class_table(names: list[str], right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict:
    """Return precision, recall, F1 and support by name, of numbers of right, true and predicted rows."""
    scores = (column.tolist() for column in shares(right, true, predicted))
    table = {}
    for name, *row in zip(names, *scores, map(int, true), strict=True):
        table[name] = dict(zip((*SCORES, "support"), row, strict=True))
    return table


def averages(right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, dict[str, float]]:
    """Return the averages of precision, recall and F1 over the labels, by name."""
    scores = shares(right, true, predicted)
    means = {"micro": shares(right.sum(), true.sum(), predicted.sum())}
    for name, weights in (("macro", np.ones(len(true))), ("weighted", true)):
        means[name] = [(values * weights).sum() / max(weights.sum(), 1) for values in scores]
    return {name: dict(zip(SCORES, map(float, values), strict=True)) for name, values in means.items()}


def most_frequent(cells: Iterable[tuple[str, str, int]]) -> list[list]:
    """Return [label, predicted, rows] of each cell that is wrong and has rows, the most frequent first."""
    return sorted(([*cell] for cell in cells if cell[0] != cell[1] and cell[2]), key=lambda cell: -cell[2])


def confusions(metrics: Mapping) -> list[list]:
    """Return [label, predicted, rows] of each wrong pair of a report, the most frequent first. With several
    labels a row there are no such pairs: no label is taken for another."""
    names = list(metrics.get("classes", ()))
    lines = zip(names, metrics.get("confusion_matrix", ()), strict=False)
    cells = [(name, other, rows) for name, line in lines for other, rows in zip(names, line, strict=True)]
    return metrics.get("confusions") or most_frequent(cells)


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
