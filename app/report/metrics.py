"""The table of metrics: all that is known of them; a new metric is one entry. Report, page and card show
those of the task with intervals; folds, seeds and comparisons those that are `compared`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tasks.task import Objective, Scores, Task
from ..words import N_, _
from .confidence import confidence_bins

if TYPE_CHECKING:
    from ..data.dataset import Split

SINGLE, MULTI, MASKED = "single_label", "multi_label", "masked_language_modelling"
NUMBER, ORDERED, PATH, PATH_LISTS = "regression", "ordinal", "single_path", "multi_path"
ONE_LABEL, LISTS, PATHS = (SINGLE, ORDERED, PATH), (MULTI, PATH_LISTS), (PATH, PATH_LISTS)
WITH_CLASSES = (*ONE_LABEL, *LISTS)
MAX_LEVELS = 8  # of a hierarchy, with a metric of their own
PRECISION = 0.9  # at which the recall of the rarer of two classes is measured
MAX_CLASSES = 50  # with a confusion matrix that is written out, zeros and all
SCORES = ("precision", "recall", "f1")


class Answers:
    """True and predicted answers that differ, and how often each pair is there, `counts` (num_distinct,).
    Drawing rows with replacement is drawing these counts, so a million rows cost no more than those with
    different answers."""

    def __init__(self, task: Task, labels: np.ndarray, predicted: np.ndarray, counts: np.ndarray) -> None:
        self.labels, self.predicted, self.counts = labels, predicted, counts
        self.num_labels, self.tree = len(task.label_names), task.tree
        self.rare = task.rare

    @cached_property
    def one_hot(self) -> tuple[Any, Any]:
        """0 and 1 for each label, true and predicted, sparse (num_distinct, num_labels) each."""
        return one_hot(self.labels, self.num_labels), one_hot(self.predicted, self.num_labels)

    @cached_property
    def right(self) -> Any:
        """The labels that a row has and is predicted with, sparse (num_distinct, num_labels)."""
        return self.one_hot[0].multiply(self.one_hot[1]).tocsr()

    @cached_property
    def both(self) -> Any:
        """How often each label is true or predicted, sparse (num_distinct, num_labels)."""
        return self.one_hot[0] + self.one_hot[1]

    @cached_property
    def is_right(self) -> np.ndarray:
        return (self.labels == self.predicted).reshape(len(self.labels), -1).all(axis=1)

    @cached_property
    def distance(self) -> np.ndarray:
        """How many ordered labels, or how much, a prediction is off, (num_distinct,)."""
        return np.abs(self.predicted - self.labels)

    @cached_property
    def nodes(self) -> list[Any]:
        """Nodes of the hierarchy that are right, true, predicted, sparse (num_distinct, num_nodes) each."""
        truth, answered = self.tree.nodes_of(self.labels), self.tree.nodes_of(self.predicted)
        return [truth.multiply(answered).tocsr(), truth, answered]

    @cached_property
    def of_levels(self) -> list[np.ndarray]:
        """How many of `nodes` are at each level, (num_distinct, depth) each."""
        return [np.asarray(of @ np.eye(self.tree.depth)[self.tree.levels]) for of in self.nodes]


@dataclass
class Drawn:
    """Answers that were drawn again: `counts` (num_resamples, num_distinct) is how often. Metrics of them are
    (num_resamples,)."""

    answers: Answers
    counts: np.ndarray

    @cached_property
    def num_rows(self) -> np.ndarray:
        return self.counts.sum(axis=1)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the means of `values`, (num_distinct,)."""
        return self.counts @ values.astype(np.float64) / self.num_rows

    @cached_property
    def right(self) -> np.ndarray:
        """How often each label is right, (num_resamples, num_labels)."""
        return self.counts @ self.answers.right

    @cached_property
    def both(self) -> np.ndarray:
        """How often each label is true or predicted, (num_resamples, num_labels)."""
        return self.counts @ self.answers.both

    @cached_property
    def nodes(self) -> list[np.ndarray]:
        """How many nodes of the hierarchy are right, true and predicted, (num_resamples, depth) each."""
        return [self.counts @ of for of in self.answers.of_levels]


def one_hot(labels: np.ndarray, num_labels: int) -> Any:
    """Return 0 and 1 for each label, sparse (num_rows, num_labels), of class ids or of 0 and 1."""
    from scipy.sparse import csr_array

    if labels.ndim == 2:
        return csr_array(labels.astype(np.float64))
    rows = np.arange(len(labels))
    return csr_array((np.ones(len(labels)), (rows, labels)), (len(labels), num_labels))


def f1(right: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Return 2 right / both; 0 where there is nothing."""
    return 2 * right / np.maximum(both, 1)


def macro_f1(drawn: Drawn) -> np.ndarray:
    return f1(drawn.right, drawn.both).mean(axis=1)


def weighted_f1(drawn: Drawn) -> np.ndarray:
    true = drawn.counts @ drawn.answers.one_hot[0]
    return (f1(drawn.right, drawn.both) * true).sum(axis=1) / np.maximum(true.sum(axis=1), 1)


def row_f1(drawn: Drawn) -> np.ndarray:
    """The mean F1 of the rows, of each over its labels; 1 for a row without labels that gets none."""
    right, both = (np.asarray(of.sum(axis=1)).ravel() for of in (drawn.answers.right, drawn.answers.both))
    return drawn.mean(np.where(both > 0, f1(right, both), 1.0))


def rare_f1(drawn: Drawn) -> np.ndarray:
    """The F1 of the rarer of two classes."""
    rare, answers = drawn.answers.rare, drawn.answers
    if rare is None:
        rare = int((answers.counts @ answers.one_hot[0]).argmin())
    return f1(drawn.right, drawn.both)[:, rare]


def average_precision(rare: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The mean precision down to each row of the rarer class, the most probable rows first."""
    right, shown = rare.cumsum(axis=1), (rare + others).cumsum(axis=1)
    return (rare * right / np.maximum(shown, 1)).sum(axis=1) / np.maximum(right[:, -1], 1)


def roc_auc(rare: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How often a row of the rarer class is more probable than one of the other; 0.5 without such a pair."""
    above = (others * (rare.cumsum(axis=1) - rare / 2)).sum(axis=1)
    pairs = rare.sum(axis=1) * others.sum(axis=1)
    return np.where(pairs > 0, above / np.maximum(pairs, 1), 0.5)


def recall(rare: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The largest share of the rarer class that is found with a precision of `PRECISION`."""
    right, shown = rare.cumsum(axis=1), (rare + others).cumsum(axis=1)
    is_precise = right >= PRECISION * shown
    return np.where(is_precise, right, 0).max(axis=1) / np.maximum(right[:, -1], 1)


def ranked(is_rare: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, Callable]:
    """Return how many rows there are of each cell and class, (num_kinds,), and what makes of such counts,
    (num_resamples, num_kinds), the rows of the rarer class and the others, (num_resamples, num_cells) each.
    `cells` (num_rows,) are numbers, the smaller the more probable."""
    kinds, counts = np.unique(np.unique(cells, return_inverse=True)[1] * 2 + is_rare, return_counts=True)

    def tables(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.zeros((2, len(drawn), kinds[-1] // 2 + 1))
        found[kinds % 2, :, kinds // 2] = drawn.T
        return found[1], found[0]

    return counts, tables


def macro_mae(drawn: Drawn) -> np.ndarray:
    """The mean number of labels that predictions are off, as the mean over the true labels."""
    of_label = drawn.answers.one_hot[0]
    support = drawn.counts @ of_label
    means = drawn.counts @ of_label.multiply(drawn.answers.distance[:, None]) / np.maximum(support, 1)
    return means.sum(axis=1) / (support > 0).sum(axis=1)


def kappa(drawn: Drawn) -> np.ndarray:
    """The quadratic weighted kappa; 0 where all labels and predictions are one label."""
    truth, predicted, mean = drawn.answers.labels, drawn.answers.predicted, drawn.mean
    by_chance = mean(truth**2) + mean(predicted**2) - 2 * mean(truth) * mean(predicted)
    is_constant = by_chance < 1e-12
    found = 1 - mean(drawn.answers.distance**2) / np.where(is_constant, 1.0, by_chance)
    # What rounding leaves where all predictions are one label is 0, and not -0.0000
    return np.where(is_constant | (np.abs(found) < 1e-12), 0.0, found)


def rmse(drawn: Drawn) -> np.ndarray:
    return np.sqrt(drawn.mean(drawn.answers.distance**2))


def paired(statistic: str) -> Callable[[Drawn], np.ndarray]:
    """Return what measures drawn rows by a correlation of scipy.stats; 0 where one of both is constant."""

    def values(drawn: Drawn) -> np.ndarray:
        from scipy import stats

        found = []
        for counts in drawn.counts:
            # Around 0, so that products of large numbers lose nothing
            pair = [
                np.repeat(of - of.mean(), counts) for of in (drawn.answers.labels, drawn.answers.predicted)
            ]
            is_constant = any(np.ptp(of) <= 1e-12 * np.abs(of).max() for of in pair)
            found.append(0.0 if is_constant else getattr(stats, statistic)(*pair).statistic)
        return np.array(found)

    return values


def level_accuracy(level: int) -> Callable[[Drawn], np.ndarray]:
    """Return what measures the share of rows that are right down to a level, the highest is 1."""

    def values(drawn: Drawn) -> np.ndarray:
        right, true, answered = (of[:, :level].sum(axis=1) for of in drawn.answers.of_levels)
        return drawn.mean((right == true) & (right == answered))

    return values


def of_nodes(kind: str, level: int | None = None) -> Callable[[Drawn], np.ndarray]:
    """Return what measures precision, recall or F1 over the nodes of all paths, or of a level: Kiritchenko et
    al. 2006, https://doi.org/10.1007/11766247_34"""

    def values(drawn: Drawn) -> np.ndarray:
        right, true, answered = (of.sum(axis=1) if level is None else of[:, level - 1] for of in drawn.nodes)
        below = {"precision": answered, "recall": true, "f1": (true + answered) / 2}[kind]
        return right / np.maximum(below, 1 if kind != "f1" else 0.5)

    return values


@dataclass(frozen=True)
class Metric:
    """One metric of the values `tasks` of data.task; `label` is its English name, for a `level` of a
    hierarchy where it has one.

    One of these says what it is: `of_answers` gives the values of drawn answers; `of_rows` one value for each
    row, whose mean is the metric; `of_confidence` measures how sure and how right rows are; `of_ranking` gets
    the rows of the rarer of two classes and the others in cells, the most probable first. Without any of
    them it is the metric of a task without labels. `has_interval`: a 95 % bootstrap interval stands beside
    it; with `is_centred` resampled values are moved so that their mean is the metric, which rare labels make
    too low. `compared`: it is shown of each fold and each seed, and compared between two runs. `headline`: it
    is among the first numbers of the page.
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
    level: int = 0

    @property
    def english(self) -> str:
        """The name in English, for files."""
        return self.label.format(level=self.level)

    @property
    def name(self) -> str:
        """The name for people."""
        return _(self.label).format(level=self.level)

    @property
    def title(self) -> str:
        """The name with a capital letter."""
        return self.name[0].upper() + self.name[1:]


LOWER, ALONE = {"higher_is_better": False}, {"compared": False}
RANKING = {"of_two_classes": True, "compared": False}
SHOWN_ONLY = {"compared": False, "has_interval": False}
LEVELS = range(1, MAX_LEVELS + 1)
LEVEL_ACCURACY, LEVEL_F1 = N_("accuracy at level {level}"), N_("micro F1 at level {level}")
METRICS = (
    Metric("kappa", N_("quadratic weighted kappa"), (ORDERED,), kappa),
    Metric("macro_mae", N_("macro-averaged absolute error"), (ORDERED,), macro_mae, **LOWER),
    Metric("within_one", N_("accuracy within one"), (ORDERED,), lambda of: of.mean(of.answers.distance <= 1)),
    Metric("mae", N_("mean absolute error"), (NUMBER,), lambda of: of.mean(of.answers.distance), **LOWER),
    Metric("rmse", N_("root mean squared error"), (NUMBER,), rmse, **LOWER),
    Metric("pearson", N_("Pearson correlation"), (NUMBER,), paired("pearsonr")),
    Metric("spearman", N_("Spearman correlation"), (NUMBER,), paired("spearmanr")),
    Metric(
        "near",
        N_("share of rows at most half a standard deviation off"),
        (NUMBER,),
        of_rows=lambda scores: scores.correct,
        headline=False,
        **SHOWN_ONLY,
    ),
    *(Metric(f"level_{at}_accuracy", LEVEL_ACCURACY, (PATH,), level_accuracy(at), level=at) for at in LEVELS),
    *(Metric(f"level_{at}_f1", LEVEL_F1, (PATH_LISTS,), of_nodes("f1", at), level=at) for at in LEVELS),
    Metric("hierarchical_f1", N_("hierarchical F1"), PATHS, of_nodes("f1")),
    Metric(
        "hierarchical_precision", N_("hierarchical precision"), PATHS, of_nodes("precision"), headline=False
    ),
    Metric("hierarchical_recall", N_("hierarchical recall"), PATHS, of_nodes("recall"), headline=False),
    Metric("accuracy", N_("accuracy"), ONE_LABEL, lambda drawn: drawn.mean(drawn.answers.is_right)),
    Metric("micro_f1", N_("micro F1"), LISTS, lambda of: f1(of.right.sum(axis=1), of.both.sum(axis=1))),
    Metric("macro_f1", N_("macro F1"), WITH_CLASSES, macro_f1, is_centred=True),
    Metric("rare_f1", N_("F1 of the rarer class"), (SINGLE,), rare_f1, of_two_classes=True),
    Metric("average_precision", N_("average precision"), (SINGLE,), of_ranking=average_precision, **RANKING),
    Metric("roc_auc", N_("ROC-AUC"), (SINGLE,), of_ranking=roc_auc, **RANKING),
    Metric("recall_at_precision", N_("recall at precision 0.9"), (SINGLE,), of_ranking=recall, **RANKING),
    Metric("weighted_f1", N_("weighted F1"), WITH_CLASSES, weighted_f1, headline=False, **SHOWN_ONLY),
    Metric("samples_f1", N_("samples F1"), LISTS, row_f1),
    Metric("subset_accuracy", N_("subset accuracy"), LISTS, lambda drawn: drawn.mean(drawn.answers.is_right)),
    Metric(
        "hamming_loss",
        N_("Hamming loss"),
        LISTS,
        of_rows=lambda scores: scores.num_wrong / scores.labels.shape[1],
        **LOWER,
        **SHOWN_ONLY,
    ),
    Metric("loss", N_("loss"), (*WITH_CLASSES, NUMBER), of_rows=lambda scores: scores.loss, **LOWER),
    Metric("brier", N_("Brier score"), ONE_LABEL, of_rows=lambda scores: scores.brier, **LOWER, **ALONE),
    Metric(
        "ece",
        N_("calibration error"),
        ONE_LABEL,
        of_confidence=lambda *rows: confidence_bins(*rows).error,
        **LOWER,
        **ALONE,
    ),
    Metric("loss", N_("loss"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("perplexity", N_("perplexity"), (MASKED,), **LOWER, **SHOWN_ONLY),
    Metric("accuracy", N_("accuracy"), (MASKED,), **SHOWN_ONLY),
)
BY_KEY = {metric.key: metric for metric in METRICS}
# The names of baselines in report.json, and what a page calls them
BASELINES = {
    N_("majority class"): N_("Always the most frequent class"),
    N_("most frequent set"): N_("Always the most frequent set of labels"),
    N_("mean"): N_("Always the mean"),
    N_("TF-IDF + logistic regression"): N_("Character TF-IDF + logistic regression"),
    N_("TF-IDF + naive Bayes"): N_("Character TF-IDF + naive Bayes"),
    N_("TF-IDF + ridge"): N_("Character TF-IDF + ridge regression"),
    N_("shared TF-IDF + ridge"): N_("TF-IDF of what both texts share + ridge regression"),
}


def metrics_of(task: Objective) -> list[Metric]:
    """Return the metrics of a task in the order in which they are shown; of the levels of a hierarchy those
    above the lowest one."""
    depth = task.tree.depth if task.has_labels and task.tree else 1
    has_two = len(task.label_names) == 2
    shown = [one for one in METRICS if has_two or not one.of_two_classes]
    return [one for one in shown if task.name in one.tasks and one.level < depth]


def distinct_rows(*arrays: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the rows of arrays (num_rows, ...) that differ in any of them, and how often each is there; of
    numbers all rows, as hardly two of them are the same."""
    if arrays[0].dtype.kind == "f":
        return list(arrays), np.ones(len(arrays[0]), np.int64)
    table = np.concatenate([array.reshape(len(array), -1) for array in arrays], axis=1)
    if table.dtype == bool:
        table = np.packbits(table, axis=1)
    _, first, counts = np.unique(table, axis=0, return_index=True, return_counts=True)
    return [array[first] for array in arrays], counts


def answer_values(task: Task, labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the metrics that follow from labels and predictions alone, and have an interval."""
    drawn = _drawn(task, labels, predicted)
    counted = [metric for metric in metrics_of(task) if metric.of_answers and metric.has_interval]
    return {metric.key: float(metric.of_answers(drawn)[0]) for metric in counted}


def _drawn(task: Task, labels: np.ndarray, predicted: np.ndarray) -> Drawn:
    """Return all rows, each drawn once."""
    (truth, decided), counts = distinct_rows(labels, predicted)
    return Drawn(Answers(task, truth, decided, counts), counts[None])


def measure(task: Task, scores: Scores) -> dict:
    """Return all metrics of rows as report.json has them: those of the table, precision, recall, F1 and
    support of each label in `classes`, their averages, confusions, and `parents` of a hierarchy."""
    drawn = _drawn(task, scores.labels, scores.predicted)
    metrics: dict = {"rows": len(scores)} | scores.figures
    for metric in metrics_of(task):
        if metric.of_answers:
            metrics[metric.key] = float(metric.of_answers(drawn)[0])
        elif metric.of_rows:
            metrics[metric.key] = float(metric.of_rows(scores).mean())
        elif metric.of_ranking:
            counts, tables = ranked(scores.is_rare, -scores.rare_chance)
            metrics[metric.key] = float(metric.of_ranking(*tables(counts[None]))[0])
        else:
            metrics[metric.key] = metric.of_confidence(scores.confidence, scores.correct)
    if scores.error is not None:
        return metrics
    answers = drawn.answers
    counted = [answers.counts @ of for of in (answers.right, *answers.one_hot)]
    metrics["classes"] = class_table(task.label_names, *counted)
    if scores.thresholds is not None:
        for name, threshold in zip(task.label_names, scores.thresholds.tolist(), strict=True):
            metrics["classes"][name]["threshold"] = threshold
    metrics |= {average: averaged(average, *counted) for average in task.averages}
    if task.tree:
        counts = (answers.counts @ of for of in answers.nodes)
        names = [task.tree.name(node) for node in task.tree.parents]
        metrics["parents"] = class_table(names, *(of[task.tree.parents] for of in counts))
    if scores.labels.ndim == 1:
        metrics |= confusions(scores.labels, scores.predicted, task.label_names)
    return metrics


def class_table(names: list[str], right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict:
    """Return precision, recall, F1 and support by name, of the rows that are right, true and predicted."""
    shares = zip(*_shares(right, true, predicted), true, strict=True)
    return {
        name: dict(zip(SCORES, map(float, values), strict=True)) | {"support": int(support)}
        for name, (*values, support) in zip(names, shares, strict=True)
    }


def _shares(right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    """Return precision, recall and F1; 0 for a label that is never predicted, or in no row."""
    return [right / np.maximum(predicted, 1), right / np.maximum(true, 1), f1(right, true + predicted)]


def averaged(average: str, right: np.ndarray, true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the micro, macro or weighted averages of precision, recall and F1 over the labels."""
    if average == "micro":
        values = _shares(right.sum(), true.sum(), predicted.sum())
    else:
        weights = true if average == "weighted" and true.any() else np.full(len(true), average == "macro")
        values = [(of * weights).sum() / max(weights.sum(), 1) for of in _shares(right, true, predicted)]
    return dict(zip(SCORES, map(float, values), strict=True))


def confusions(labels: np.ndarray, predicted: np.ndarray, label_names: list[str]) -> dict:
    """Return `confusion_matrix[i][j]`, the rows of class i predicted as j; with more than `MAX_CLASSES`
    classes `confusions` instead, [label, predicted, rows] of each wrong pair, the most frequent first."""
    num_labels = len(label_names)
    if num_labels <= MAX_CLASSES:
        cells = np.bincount(labels * num_labels + predicted, minlength=num_labels**2)
        return {"confusion_matrix": cells.reshape(num_labels, num_labels).tolist()}
    pairs = confused_pairs(labels, predicted, num_labels)
    return {"confusions": [[label_names[label], label_names[other], rows] for label, other, rows in pairs]}


def confused_pairs(labels: np.ndarray, predicted: np.ndarray, num_labels: int) -> list[tuple[int, int, int]]:
    """Return the pairs of true and predicted class that differ, with their rows, the most frequent first."""
    wrong = labels != predicted
    pairs, counts = np.unique(labels[wrong] * num_labels + predicted[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(int(pairs[at]) // num_labels, int(pairs[at]) % num_labels, int(counts[at])) for at in order]


def worst_labels(classes: dict, count: int) -> dict:
    """Return the `count` labels with the lowest F1 among those with rows; of equal ones the larger first."""
    with_rows = [
        (scores["f1"], -scores["support"], name) for name, scores in classes.items() if scores["support"]
    ]
    return {name: classes[name] for _, _, name in sorted(with_rows)[:count]}


def metrics_in_training(task: Objective, split: Split, results: np.ndarray) -> dict:
    """Return the metrics of a split whose `row_results` are `results`, in the order of its rows; with the
    thresholds that are best for these rows, but without a temperature, which changes no decision."""
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
