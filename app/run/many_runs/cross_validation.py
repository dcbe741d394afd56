"""A cross-validation: every row of the train file is tested once, by a model that was trained without it."""

from dataclasses import replace

import numpy as np

from ...config.language import say
from ...config.schema import Config
from ...config.shipped import GUIDE
from ...data.dataset import Dataset, open_dataset
from ...evaluation.text_table import text_table
from ...outcomes.labelled_outcome import LabelledOutcome
from ...outcomes.metrics import BY_KEY
from ...outcomes.resampling import all_metrics, values
from .out_of_fold import OOF, OutOfFold, gather_folds, write_oof
from .series import Series

NAME = "cross_validation"
# English and Chinese; an outcome may have its own
SENTENCES = {
    "issues_found": (
        "{ranked:,} rows are predicted with other labels than they have, {flagged:,} of them are flagged by "
        "confident learning: label_issues.csv",
        "{ranked:,} 行的预测与标签不同，其中 {flagged:,} 行被 confident learning 标记：label_issues.csv",
    ),
    "cannot_judge": (
        "The models are right in {accuracy:.1%} of the rows, and so is the most frequent answer in "
        "{majority:.1%}.",
        "模型在 {accuracy:.1%} 的行上正确，总是给出最多的答案时是 {majority:.1%}。",
    ),
    "no_rows_listed": (
        " Models that are not better than that cannot judge labels: no rows are listed. How to get a better "
        "model: {0}",
        "不比这更好的模型不能判断标签，所以没有列出任何行。怎样得到更好的模型：{0}",
    ),
    "label_patterns": (
        "Classes that overlap, and in about how many rows:",
        "互相重叠的类别，以及大约的行数：",
    ),
    "rows": ("rows", "行数"),
    "fold": ("fold {0}", "第 {0} 折"),
    "mean": ("mean", "平均"),
    "standard_deviation": ("standard deviation", "标准差"),
    "all_rows": (
        "All {0:,} rows together, each by the model that was trained without it; 95 % intervals",
        "全部 {0:,} 行合在一起，每一行都由没有用它训练的模型预测；95% 区间",
    ),
    "of_single_folds": (
        "The standard deviation is that of single folds. Folds share most of their training rows, so it says "
        "little about the mean.",
        "标准差是单折之间的。各折的训练样本大部分相同，所以它说明不了平均值有多准。",
    ),
    "to": ("to", "到"),
    "never_of_fold": ("Dev rows are never rows of the fold.", "验证集里从来没有这一折的行。"),
    "dev_rows_above": (
        "These are the rows above; a test file or data.test_size gives figures of other rows.",
        "也就是上面这些行；给出测试文件或 data.test_size，就会用别的行来测试。",
    ),
    "no_list": ("There will be no label_issues.csv: {0}", "不会有 label_issues.csv：{0}"),
    "written": ("Written into {0}", "已写入 {0}"),
    "fixes": (
        "; what is filled in under `label` there is for --data.relabel",
        "；在那里的 `label` 列填入正确的标签，再用 --data.relabel 使用它",
    ),
}


def fold_datasets(config: Config, folds: int) -> list[Dataset]:
    """Return the dataset of each fold; raises InputError, before any training, where one cannot be made."""
    return [open_dataset(replace(config.data, folds=folds, fold=fold)) for fold in range(folds)]


def cross_validate(series: Series, datasets: list[Dataset], language: str) -> tuple[OutOfFold, dict]:
    """Train all folds and write oof.parquet; return the out-of-fold rows, and the figures for JSON."""
    names = [f"fold-{fold}" for fold in range(len(datasets))]
    for fold, name in enumerate(names):
        series.run(name, ["--data.folds", str(len(datasets)), "--data.fold", str(fold)])
    oof_rows = gather_folds(list(map(series.path, names)), datasets)
    write_oof(series.folder / OOF, oof_rows)
    return oof_rows, fold_figures(oof_rows, language)


def fold_figures(oof_rows: OutOfFold, language: str = "en") -> dict:
    """Return the figures of each fold, their mean and spread, and those of all rows with intervals."""
    outcome = oof_rows.outcome
    shown = [metric.key for metric in outcome.metrics if metric.compared]
    by_fold = []
    for fold in np.unique(oof_rows.folds):
        rows = np.flatnonzero(oof_rows.folds == fold)
        metrics = values(outcome, oof_rows.scores(rows))
        by_fold.append({"fold": int(fold), "rows": len(rows), **{key: metrics[key] for key in shown}})
    scores = oof_rows.scores()
    pooled = all_metrics(outcome, scores)
    figures = {
        "folds": by_fold,
        "mean": {name: float(np.mean([one[name] for one in by_fold])) for name in shown},
        "standard_deviation": {name: float(np.std([one[name] for one in by_fold], ddof=1)) for name in shown},
        "all_rows": {
            "rows": len(scores),
            **{key: pooled[key] for key in shown},
            **{metric.key: pooled[metric.key] for metric in outcome.metrics if metric.has_interval},
            "intervals": pooled["intervals"],
            **{key: pooled[key] for key in ("classes",) if key in pooled},
        },
    }
    return figures | note_of(outcome, language, "never_of_fold")


def note_of(outcome: LabelledOutcome, language: str, then: str | None) -> dict[str, str]:
    """Return {"note": how rows of several runs were decided, and the sentence `then`}, {} without a note."""
    if "note" not in outcome.own_words:
        return {}
    note = say(outcome.own_words, language, "note")
    return {"note": f"{note} {say(SENTENCES, language, then)}" if then else note}


def render_folds(figures: dict, language: str = "en") -> str:
    """Return the figures as text."""
    shown = list(figures["mean"])
    rows = [
        [say(SENTENCES, language, "fold", one["fold"]), f"{one['rows']:,}", *_cells(one, shown)]
        for one in figures["folds"]
    ]
    rows += [
        [say(SENTENCES, language, name), "", *_cells(figures[name], shown)]
        for name in ("mean", "standard_deviation")
    ]
    pooled = figures["all_rows"]
    heading = ["", say(SENTENCES, language, "rows"), *(BY_KEY[name].name(language) for name in shown)]
    to = say(SENTENCES, language, "to")
    intervals = [
        [f"  {BY_KEY[name].name(language)}", f"{pooled[name]:.4f}", f" {low:.4f} {to} {high:.4f}"]
        for name, (low, high) in pooled["intervals"].items()
    ]
    lines = [
        text_table(heading, rows),
        "",
        say(SENTENCES, language, "all_rows", pooled["rows"]),
        text_table(intervals[0], intervals[1:]),
        say(SENTENCES, language, "of_single_folds"),
    ]
    return "\n".join([*lines, *([figures["note"]] if "note" in figures else [])])


def _cells(figures: dict, shown: list[str]) -> list[str]:
    return [f"{figures[name]:.4f}" for name in shown]


def render_label_issues(figures: dict, outcome: LabelledOutcome, language: str = "en") -> str:
    """Return what was found about labels as text."""
    what = "issues_found" if figures["can_judge"] else "cannot_judge"
    words = SENTENCES | outcome.own_words
    first = say(words, language, what, **figures)
    if not figures["can_judge"]:
        return first + say(SENTENCES, language, "no_rows_listed", GUIDE)
    patterns = outcome.pattern_lines(figures)
    heading = [say(words, language, "label_patterns")] if patterns else []
    return "\n".join([first, *heading, *patterns])
