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

SINGLE, MULTI, MASKED = "single_label", "multi_label", "masked_language_modelling"
NUMBER, ORDERED, PATH, PATH_LISTS = "regression", "ordinal", "single_path", "multi_path"
ONE_LABEL, LISTS, PATHS = (SINGLE, ORDERED, PATH), (MULTI, PATH_LISTS), (PATH, PATH_LISTS)
# Levels of a hierarchy with a metric of their own
MAX_LEVELS = 8


@dataclass(frozen=True)
class Metric:
    """One metric of the values `tasks` of data.task; `english` and `chinese` are its names.

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
    english: str
    chinese: str
    tasks: tuple[str, ...]
    of_counts: Callable[[Any], np.ndarray] | None = None
    of_rows: Callable[[Any], np.ndarray] | None = None
    of_scores: Callable[[Any], float] | None = None
    interval: Callable[[Any, np.random.Generator], Interval] | None = None
    is_centred: bool = False
    higher_is_better: bool = True
    compared: bool = True
    headline: bool = True

    @property
    def has_interval(self) -> bool:
        """Whether the table says how the interval is made."""
        return any((self.of_counts, self.of_rows, self.of_scores))

    def name(self, language: str) -> str:
        """Return the name in a language, en or zh."""
        return self.chinese if language == "zh" else self.english

    def title(self, language: str) -> str:
        """Return the name with a capital letter."""
        name = self.name(language)
        return name[0].upper() + name[1:]


def counted(key: str, english: str, chinese: str, tasks: tuple[str, ...], **options: bool) -> Metric:
    """Return the metric that drawn rows have as the attribute `key`."""
    return Metric(key, english, chinese, tasks, attrgetter(key), **options)


def level_accuracy(level: int) -> Metric:
    """Return the share of rows that are right down to a level of a hierarchy, the highest is 1."""
    names = f"level_{level}_accuracy", f"accuracy at level {level}", f"第 {level} 级准确率"
    return Metric(*names, (PATH,), lambda drawn: drawn.level_accuracy(level))


def level_f1(level: int) -> Metric:
    """Return the micro F1 of what is at a level of a hierarchy, the highest is 1."""
    names = f"level_{level}_f1", f"micro F1 at level {level}", f"第 {level} 级微平均 F1"
    return Metric(*names, (PATH_LISTS,), lambda drawn: drawn.level_f1(level))


# Options
LOWER, ALONE = {"higher_is_better": False}, {"compared": False}
METRICS = (
    counted("kappa", "quadratic weighted kappa", "二次加权 kappa", (ORDERED,)),
    counted("macro_mae", "macro-averaged absolute error", "宏平均绝对误差", (ORDERED,), **LOWER),
    counted("within_one", "accuracy within one", "误差不超过一级的比例", (ORDERED,)),
    counted("mae", "mean absolute error", "平均绝对误差", (NUMBER,), **LOWER),
    counted("rmse", "root mean squared error", "均方根误差", (NUMBER,), **LOWER),
    counted("pearson", "Pearson correlation", "Pearson 相关系数", (NUMBER,)),
    counted("spearman", "Spearman correlation", "Spearman 相关系数", (NUMBER,)),
    Metric(
        "near",
        "share of rows at most half a standard deviation off",
        "误差不超过半个标准差的比例",
        (NUMBER,),
        headline=False,
        **ALONE,
    ),
    *map(level_accuracy, range(1, MAX_LEVELS + 1)),
    *map(level_f1, range(1, MAX_LEVELS + 1)),
    counted("hierarchical_f1", "hierarchical F1", "层次 F1", PATHS),
    counted("hierarchical_precision", "hierarchical precision", "层次精确率", PATHS, headline=False),
    counted("hierarchical_recall", "hierarchical recall", "层次召回率", PATHS, headline=False),
    counted("accuracy", "accuracy", "准确率", ONE_LABEL),
    counted("micro_f1", "micro F1", "微平均 F1", LISTS),
    Metric(
        "macro_f1",
        "macro F1",
        "宏平均 F1",
        (*ONE_LABEL, *LISTS),
        of_counts=lambda drawn: drawn.label_f1.mean(axis=1),
        is_centred=True,
    ),
    Metric("weighted_f1", "weighted F1", "加权平均 F1", (*ONE_LABEL, *LISTS), headline=False, **ALONE),
    Metric("samples_f1", "samples F1", "按行平均的 F1", LISTS, of_counts=lambda drawn: drawn.row_f1),
    Metric(
        "subset_accuracy",
        "subset accuracy",
        "标签全部正确的行",
        LISTS,
        of_counts=lambda drawn: drawn.accuracy,
    ),
    Metric("hamming_loss", "Hamming loss", "汉明损失", LISTS, **LOWER, **ALONE),
    Metric(
        "loss",
        "loss",
        "损失",
        (*ONE_LABEL, *LISTS, NUMBER),
        of_rows=lambda scores: scores.loss,
        **LOWER,
    ),
    Metric(
        "brier",
        "Brier score",
        "Brier 分数",
        ONE_LABEL,
        of_rows=lambda scores: scores.brier,
        **LOWER,
        **ALONE,
    ),
    Metric(
        "ece",
        "calibration error",
        "校准误差",
        ONE_LABEL,
        of_scores=lambda scores: confidence_bins(scores.confidence, scores.correct).error,
        interval=lambda scores, draws: calibration_interval(scores.confidence, scores.correct, draws),
        **LOWER,
        **ALONE,
    ),
    Metric("loss", "loss", "损失", (MASKED,), **LOWER, **ALONE),
    Metric("perplexity", "perplexity", "困惑度", (MASKED,), **LOWER, **ALONE),
    Metric("accuracy", "accuracy", "准确率", (MASKED,), **ALONE),
)
BY_KEY = {metric.key: metric for metric in METRICS}


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
