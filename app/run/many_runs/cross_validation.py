"""A cross-validation: every row of the train file is tested once, by a model that was trained without it."""

from dataclasses import replace

import numpy as np

from ...config.data_settings import VerbArguments
from ...config.schema import Config
from ...data.dataset import Dataset, open_dataset
from ...report.bootstrap import all_metrics
from ...report.label_issues import pattern_lines
from ...report.metrics import BY_KEY, measure, metrics_of
from ...tasks.task import Task
from ...text_table import text_table
from ...words import _, pgettext
from .out_of_fold import OOF, OutOfFold, gather_folds, write_oof
from .series import Series

NAME = "cross_validation"


def fold_datasets(config: Config, folds: int) -> list[Dataset]:
    """Return the dataset of each fold; raises InputError, before any training, where one cannot be made."""
    verbs = [VerbArguments(folds=folds, fold=fold) for fold in range(folds)]
    return [open_dataset(replace(config.data, verb=verb)) for verb in verbs]


def cross_validate(series: Series, datasets: list[Dataset]) -> tuple[OutOfFold, dict]:
    """Train all folds and write oof.parquet; return the out-of-fold rows, and the figures for JSON."""
    names = [f"fold-{fold}" for fold in range(len(datasets))]
    for fold, name in enumerate(names):
        series.run(name, ["--verb", f"{{folds: {len(datasets)}, fold: {fold}}}"])
    oof_rows = gather_folds(list(map(series.path, names)), datasets)
    write_oof(series.folder / OOF, oof_rows)
    return oof_rows, fold_figures(oof_rows)


def fold_figures(oof_rows: OutOfFold) -> dict:
    """Return the figures of each fold, their mean and spread, and those of all rows with intervals."""
    task = oof_rows.task
    table = metrics_of(task)
    shown = [metric.key for metric in table if metric.compared]
    by_fold = []
    for fold in np.unique(oof_rows.folds):
        rows = np.flatnonzero(oof_rows.folds == fold)
        metrics = measure(task, oof_rows.scores(rows))
        by_fold.append({"fold": int(fold), "rows": len(rows), **{key: metrics[key] for key in shown}})
    scores = oof_rows.scores()
    pooled = all_metrics(task, scores)
    figures = {
        "folds": by_fold,
        "mean": {name: float(np.mean([one[name] for one in by_fold])) for name in shown},
        "standard_deviation": {name: float(np.std([one[name] for one in by_fold], ddof=1)) for name in shown},
        "all_rows": {
            "rows": len(scores),
            **{key: pooled[key] for key in shown},
            **{metric.key: pooled[metric.key] for metric in table if metric.has_interval},
            "intervals": pooled["intervals"],
            **{key: pooled[key] for key in ("classes",) if key in pooled},
        },
    }
    return figures | note_of(task, _("Dev rows are never rows of the fold."))


def note_of(task: Task, then: str = "") -> dict[str, str]:
    """Return {"note": how rows of several runs were decided, and the sentence `then`}, {} without a note."""
    note = task.word("runs")
    return {"note": f"{note} {then}".rstrip()} if note else {}


def render_folds(figures: dict) -> str:
    """Return the figures as text."""
    shown = list(figures["mean"])
    rows = [
        [_("fold {fold}").format(fold=one["fold"]), f"{one['rows']:,}", *_cells(one, shown)]
        for one in figures["folds"]
    ]
    rows.append([pgettext("of runs", "mean"), "", *_cells(figures["mean"], shown)])
    rows.append([_("standard deviation"), "", *_cells(figures["standard_deviation"], shown)])
    pooled = figures["all_rows"]
    heading = ["", pgettext("of data", "rows"), *(BY_KEY[name].name for name in shown)]
    intervals = []
    for name, (low, high) in pooled["intervals"].items():
        ends = _("{low:.4f} to {high:.4f}").format(low=low, high=high)
        intervals.append([f"  {BY_KEY[name].name}", f"{pooled[name]:.4f}", f" {ends}"])
    about = _("All {rows:,} rows together, each by the model that was trained without it; 95 % intervals")
    lines = [
        text_table(heading, rows),
        "",
        about.format(rows=pooled["rows"]),
        text_table(intervals[0], intervals[1:]),
        _(
            "The standard deviation is that of single folds. Folds share most of their training rows, so it "
            "says little about the mean."
        ),
    ]
    return "\n".join([*lines, *([figures["note"]] if "note" in figures else [])])


def _cells(figures: dict, shown: list[str]) -> list[str]:
    return [f"{figures[name]:.4f}" for name in shown]


def render_label_issues(figures: dict, task: Task) -> str:
    """Return what was found about labels as text."""
    if not figures["can_judge"]:
        none = _(
            " Models that are not better than that cannot judge labels: no rows are listed. How to get a "
            "better model: {guide}"
        )
        return task.word("cannot_judge").format(**figures) + none.format(guide="docs/guide.md")
    patterns = pattern_lines(figures)
    heading = [task.word("patterns")] if patterns else []
    return "\n".join([task.word("issues").format(**figures), *heading, *patterns])
