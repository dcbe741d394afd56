"""The table of metrics: what each one is, and where it is shown. A new metric is one entry of `METRICS`.

The report, the page and the card show the metrics of the task, with intervals; folds, seeds and comparisons
show those that are `compared`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..tasks.scores import Scores
from ..tasks.task import Task
from ..tasks.thresholds import RARE_F1
from ..words import N_, _
from .confidence import calibration_error
from .drawn_rows import DrawnRows
from .ranking import RankedRows, average_precision, recall_at_precision, roc_auc

SINGLE = "single_label"
ORDERED = "ordinal"
PATH = "single_path"
MULTI = "multi_label"
PATH_LIST = "multi_path"
NUMBER = "regression"
MASKED = "masked_language_modelling"
ONE_LABEL = (SINGLE, ORDERED, PATH)
SEVERAL_LABELS = (MULTI, PATH_LIST)
PATHS = (PATH, PATH_LIST)
WITH_CLASSES = (*ONE_LABEL, *SEVERAL_LABELS)

MAX_LEVELS = 8  # levels of a hierarchy that have a metric of their own
RECALL_AT_PRECISION = "recall_at_precision"
# The metric that is the share of rows that are right, by the name of the column of answers in files
RIGHT = {"label": "accuracy", "labels": "subset_accuracy", "score": "near"}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. It is computed by one of `from_answers`, `from_scores` and `from_ranking`, or by the task
    itself where that has no labels."""

    key: str
    label: str  # its name in English
    tasks: tuple[str, ...]  # values of data.task
    from_answers: Callable[[DrawnRows], np.ndarray] | None = None
    # The function returns a value for each row, whose mean is the metric; without an interval it may return a
    # single number
    from_scores: Callable[[Scores], np.ndarray] | None = None
    # The function gets `precision` too
    from_ranking: Callable[[RankedRows, float], np.ndarray] | None = None
    needs_two_classes: bool = False  # one of them the rarer class
    has_interval: bool = True  # 95 %, by bootstrap
    # A mean over classes needs this, because draws of rows that miss a rare class have other values: too low
    # where the class counts as 0, too high where it does not count. All draws are moved so that their mean is
    # the metric, and stay between 0 and 1.
    is_centred: bool = False
    higher_is_better: bool = True
    compared: bool = True  # of each fold and each seed, and between two runs
    level: int = 0  # of a hierarchy, from 1, that the metric is about
    precision: float = 0  # that the metric is about

    def applies_to(self, task: Task) -> bool:
        """Return whether rows of a task have this metric. The lowest level of a hierarchy has none of its
        own, because all levels together are the accuracy."""
        if task.name not in self.tasks:
            return False
        if self.needs_two_classes and not task.has_rare_class:
            return False
        if self.level == 0:
            return True
        return task.tree is not None and self.level < task.tree.depth

    @property
    def english(self) -> str:
        """The name in English, for files; `name` is that for people."""
        return self.label.format(level=self.level, precision=self.precision)

    @property
    def name(self) -> str:
        return _(self.label).format(level=self.level, precision=self.precision)

    @property
    def title(self) -> str:
        return self.name[0].upper() + self.name[1:]


def accuracy_at_level(level: int) -> Metric:
    return Metric(
        key=f"level_{level}_accuracy",
        label=N_("accuracy at level {level}"),
        tasks=(PATH,),
        from_answers=lambda rows: rows.accuracy_at_level(level),
        level=level,
    )


METRICS = (
    Metric(
        key="kappa",
        label=N_("quadratic weighted kappa"),
        tasks=(ORDERED,),
        from_answers=DrawnRows.quadratic_kappa,
    ),
    Metric(
        key="macro_mae",
        label=N_("macro-averaged absolute error"),
        tasks=(ORDERED,),
        from_answers=DrawnRows.macro_mae,
        higher_is_better=False,
    ),
    Metric(
        key="within_one",
        label=N_("accuracy within one"),
        tasks=(ORDERED,),
        from_answers=DrawnRows.within_one,
    ),
    Metric(
        key="mae",
        label=N_("mean absolute error"),
        tasks=(NUMBER,),
        from_answers=DrawnRows.mean_absolute_error,
        higher_is_better=False,
    ),
    Metric(
        key="rmse",
        label=N_("root mean squared error"),
        tasks=(NUMBER,),
        from_answers=DrawnRows.root_mean_squared_error,
        higher_is_better=False,
    ),
    Metric(
        key="pearson",
        label=N_("Pearson correlation"),
        tasks=(NUMBER,),
        from_answers=DrawnRows.pearson,
    ),
    Metric(
        key="spearman",
        label=N_("Spearman correlation"),
        tasks=(NUMBER,),
        from_answers=DrawnRows.spearman,
    ),
    Metric(
        key="near",
        label=N_("share of rows at most half a standard deviation off"),
        tasks=(NUMBER,),
        from_scores=lambda scores: scores.correct,
        has_interval=False,
        compared=False,
    ),
    *map(accuracy_at_level, range(1, MAX_LEVELS + 1)),
    Metric(
        key="hierarchical_f1",
        label=N_("hierarchical F1"),
        tasks=PATHS,
        from_answers=DrawnRows.hierarchical_f1,
    ),
    Metric(
        key="hierarchical_precision",
        label=N_("hierarchical precision"),
        tasks=PATHS,
        from_answers=DrawnRows.hierarchical_precision,
    ),
    Metric(
        key="hierarchical_recall",
        label=N_("hierarchical recall"),
        tasks=PATHS,
        from_answers=DrawnRows.hierarchical_recall,
    ),
    Metric(
        key="accuracy",
        label=N_("accuracy"),
        tasks=ONE_LABEL,
        from_answers=DrawnRows.accuracy,
    ),
    Metric(
        key="micro_f1",
        label=N_("micro F1"),
        tasks=SEVERAL_LABELS,
        from_answers=DrawnRows.micro_f1,
    ),
    Metric(
        key="macro_f1",
        label=N_("macro F1"),
        tasks=WITH_CLASSES,
        from_answers=DrawnRows.macro_f1,
        is_centred=True,
    ),
    Metric(
        key=RARE_F1,
        label=N_("F1 of the rarer class"),
        tasks=(SINGLE,),
        from_answers=DrawnRows.rare_f1,
        needs_two_classes=True,
    ),
    Metric(
        key="average_precision",
        label=N_("average precision"),
        tasks=(SINGLE,),
        from_ranking=average_precision,
        needs_two_classes=True,
        compared=False,
    ),
    Metric(
        key="roc_auc",
        label=N_("ROC-AUC"),
        tasks=(SINGLE,),
        from_ranking=roc_auc,
        needs_two_classes=True,
        compared=False,
    ),
    Metric(
        key=RECALL_AT_PRECISION,
        label=N_("recall at precision {precision:g}"),
        tasks=(SINGLE,),
        from_ranking=recall_at_precision,
        needs_two_classes=True,
        compared=False,
        precision=Task.recall_at,
    ),
    Metric(
        key="weighted_f1",
        label=N_("weighted F1"),
        tasks=WITH_CLASSES,
        from_answers=DrawnRows.weighted_f1,
        has_interval=False,
        compared=False,
    ),
    Metric(
        key="samples_f1",
        label=N_("samples F1"),
        tasks=SEVERAL_LABELS,
        from_answers=DrawnRows.samples_f1,
    ),
    Metric(
        key="subset_accuracy",
        label=N_("subset accuracy"),
        tasks=SEVERAL_LABELS,
        from_answers=DrawnRows.accuracy,
    ),
    Metric(
        key="hamming_loss",
        label=N_("Hamming loss"),
        tasks=SEVERAL_LABELS,
        from_answers=DrawnRows.hamming_loss,
        has_interval=False,
        higher_is_better=False,
        compared=False,
    ),
    Metric(
        key="loss",
        label=N_("loss"),
        tasks=(*WITH_CLASSES, NUMBER),
        from_scores=lambda scores: scores.loss,
        higher_is_better=False,
    ),
    Metric(
        key="brier",
        label=N_("Brier score"),
        tasks=ONE_LABEL,
        from_scores=lambda scores: scores.brier,
        higher_is_better=False,
        compared=False,
    ),
    Metric(
        key="ece",
        label=N_("calibration error"),
        tasks=ONE_LABEL,
        from_scores=calibration_error,
        has_interval=False,
        higher_is_better=False,
        compared=False,
    ),
    Metric(
        key="loss",
        label=N_("loss"),
        tasks=(MASKED,),
        has_interval=False,
        higher_is_better=False,
        compared=False,
    ),
    Metric(
        key="perplexity",
        label=N_("perplexity"),
        tasks=(MASKED,),
        has_interval=False,
        higher_is_better=False,
        compared=False,
    ),
    Metric(
        key="accuracy",
        label=N_("accuracy"),
        tasks=(MASKED,),
        has_interval=False,
        compared=False,
    ),
)
# Metrics of several tasks that share a key share their name, and whether higher is better
BY_KEY = {metric.key: metric for metric in METRICS}


def metrics_of(task: Task) -> list[Metric]:
    """Return the metrics of a task in the order in which they are shown. The recall of the rarer of two
    classes is at precision `task.recall_at`."""
    metrics = []
    for metric in METRICS:
        if metric.applies_to(task):
            if metric.key == RECALL_AT_PRECISION:
                metric = replace(metric, precision=task.recall_at)
            metrics.append(metric)
    return metrics


def metrics_with_interval(task: Task) -> list[Metric]:
    return [metric for metric in metrics_of(task) if metric.has_interval]


def compared_metrics(task: Task) -> list[Metric]:
    return [metric for metric in metrics_of(task) if metric.compared]


def best_baseline(metrics: Mapping, key: str) -> tuple[str, Mapping] | None:
    """Return the name and the metrics of the baseline that is best by the metric `key`; None without one."""
    best = None
    for name, values in metrics.get("baselines", {}).items():
        if best is None or is_better(values[key], best[1][key], key):
            best = (name, values)
    return best


def is_better(value: float, best: float | None, key: str) -> bool:
    """Return whether `value` of a metric is better than the best so far; any is better than NaN."""
    if best is None:
        return True
    if math.isnan(best):
        return not math.isnan(value)
    if BY_KEY[key].higher_is_better:
        return value > best
    return value < best
