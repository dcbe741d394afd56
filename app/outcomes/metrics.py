"""The table of metrics: all that is known of them; a new metric is one entry. Report, page and card show
those of the task with intervals; folds, seeds and comparisons those that are `compared`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from ..evaluation.measures.calibration_error import confidence_bins
from ..evaluation.measures.intervals import Interval, calibration_interval
from ..words import N_, _

SINGLE, MULTI, MASKED = "single_label", "multi_label", "masked_language_modelling"
NUMBER, ORDERED, PATH, PATH_LISTS = "regression", "ordinal", "single_path", "multi_path"
ONE_LABEL, LISTS, PATHS = (SINGLE, ORDERED, PATH), (MULTI, PATH_LISTS), (PATH, PATH_LISTS)
# Levels of a hierarchy with a metric of their own
MAX_LEVELS = 8


@dataclass(frozen=True)
class Metric:
    """One metric of the values `tasks` of data.task; `label` is its English name, for a `level` of a
    hierarchy where it has one.

    At most one of these is given, and says what the metric is and how its 95 % bootstrap interval is made:
    `of_counts` returns the values for rows drawn again, (num_resamples,); with `is_centred` the resampled
    values are moved so that their mean is the metric, which rare labels make too low. `of_rows` returns one
    value for each row, (num_rows,), whose mean is the metric. `of_scores` returns the metric of all rows, and
    `interval` its interval. Without any of them the outcome computes the metric itself, it has no interval
    and is not compared.

    `compared`: it is shown of each fold and each seed, and compared between two runs. `headline`: it is among
    the first numbers of the page.
    """

    key: str
    label: str
    tasks: tuple[str, ...]
    of_counts: Callable[[Any], np.ndarray] | None = None
    of_rows: Callable[[Any], np.ndarray] | None = None
    of_scores: Callable[[Any], float] | None = None
    interval: Callable[[Any, np.random.Generator], Interval] | None = None
    is_centred: bool = False
    higher_is_better: bool = True
    compared: bool = True
    headline: bool = True
    level: int = 0

    @property
    def has_interval(self) -> bool:
        """Whether the table says how the interval is made."""
        return any((self.of_counts, self.of_rows, self.of_scores))

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


def counted(key: str, label: str, tasks: tuple[str, ...], **options: bool) -> Metric:
    """Return the metric that drawn rows have as the attribute `key`."""
    return Metric(key, label, tasks, attrgetter(key), **options)


def level_accuracy(level: int) -> Metric:
    """Return the share of rows that are right down to a level of a hierarchy, the highest is 1."""
    name, values = N_("accuracy at level {level}"), lambda drawn: drawn.level_accuracy(level)
    return Metric(f"level_{level}_accuracy", name, (PATH,), values, level=level)


def level_f1(level: int) -> Metric:
    """Return the micro F1 of what is at a level of a hierarchy, the highest is 1."""
    name, values = N_("micro F1 at level {level}"), lambda drawn: drawn.level_f1(level)
    return Metric(f"level_{level}_f1", name, (PATH_LISTS,), values, level=level)


# Options
LOWER, ALONE = {"higher_is_better": False}, {"compared": False}
METRICS = (
    counted("kappa", N_("quadratic weighted kappa"), (ORDERED,)),
    counted("macro_mae", N_("macro-averaged absolute error"), (ORDERED,), **LOWER),
    counted("within_one", N_("accuracy within one"), (ORDERED,)),
    counted("mae", N_("mean absolute error"), (NUMBER,), **LOWER),
    counted("rmse", N_("root mean squared error"), (NUMBER,), **LOWER),
    counted("pearson", N_("Pearson correlation"), (NUMBER,)),
    counted("spearman", N_("Spearman correlation"), (NUMBER,)),
    Metric(
        "near",
        N_("share of rows at most half a standard deviation off"),
        (NUMBER,),
        headline=False,
        **ALONE,
    ),
    *map(level_accuracy, range(1, MAX_LEVELS + 1)),
    *map(level_f1, range(1, MAX_LEVELS + 1)),
    counted("hierarchical_f1", N_("hierarchical F1"), PATHS),
    counted("hierarchical_precision", N_("hierarchical precision"), PATHS, headline=False),
    counted("hierarchical_recall", N_("hierarchical recall"), PATHS, headline=False),
    counted("accuracy", N_("accuracy"), ONE_LABEL),
    counted("micro_f1", N_("micro F1"), LISTS),
    Metric(
        "macro_f1",
        N_("macro F1"),
        (*ONE_LABEL, *LISTS),
        of_counts=lambda drawn: drawn.label_f1.mean(axis=1),
        is_centred=True,
    ),
    Metric("weighted_f1", N_("weighted F1"), (*ONE_LABEL, *LISTS), headline=False, **ALONE),
    Metric("samples_f1", N_("samples F1"), LISTS, of_counts=lambda drawn: drawn.row_f1),
    Metric(
        "subset_accuracy",
        N_("subset accuracy"),
        LISTS,
        of_counts=lambda drawn: drawn.accuracy,
    ),
    Metric("hamming_loss", N_("Hamming loss"), LISTS, **LOWER, **ALONE),
    Metric(
        "loss",
        N_("loss"),
        (*ONE_LABEL, *LISTS, NUMBER),
        of_rows=lambda scores: scores.loss,
        **LOWER,
    ),
    Metric(
        "brier",
        N_("Brier score"),
        ONE_LABEL,
        of_rows=lambda scores: scores.brier,
        **LOWER,
        **ALONE,
    ),
    Metric(
        "ece",
        N_("calibration error"),
        ONE_LABEL,
        of_scores=lambda scores: confidence_bins(scores.confidence, scores.correct).error,
        interval=lambda scores, draws: calibration_interval(scores.confidence, scores.correct, draws),
        **LOWER,
        **ALONE,
    ),
    Metric("loss", N_("loss"), (MASKED,), **LOWER, **ALONE),
    Metric("perplexity", N_("perplexity"), (MASKED,), **LOWER, **ALONE),
    Metric("accuracy", N_("accuracy"), (MASKED,), **ALONE),
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


def metrics_of(task: str) -> list[Metric]:
    """Return the metrics of a value of data.task, in the order in which they are shown."""
    return [metric for metric in METRICS if task in metric.tasks]


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
