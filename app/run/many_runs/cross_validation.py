"""A cross-validation: every row of the train file is tested once, by a model that was trained without it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ...config.language import say
from ...config.schema import Config
from ...config.shipped import GUIDE
from ...data.dataset import Dataset, open_dataset
from ...evaluation.text_table import text_table
from ...outcomes.labelled_outcome import LabelledOutcome
from ...outcomes.metrics import BY_KEY
from ...outcomes.resampling import all_metrics, values
from ...runtime.disk import write_json, write_text
from .out_of_fold import OOF, OutOfFold, gather_folds, write_oof
from .series import Series

FIGURES, TEXT = "cross_validation.json", "cross_validation.txt"
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
}


def fold_datasets(config: Config, folds: int) -> list[Dataset]:
    """Return the dataset of each fold; raises InputError, before any training, where one cannot be made."""
    return [open_dataset(replace(config.data, folds=folds, fold=fold)) for fold in range(folds)]


def train_folds(
    series: Series, folds: int, chosen: range, words: list[str], prefix: str = ""
) -> dict[int, Path]:
    """Train the chosen folds, in their order, and return their run folders by fold."""
    for fold in chosen:
        series.run(f"{prefix}fold-{fold}", ["--data.folds", str(folds), "--data.fold", str(fold), *words])
    return {fold: series.path(f"{prefix}fold-{fold}") for fold in chosen}


def cross_validate(series: Series, datasets: list[Dataset]) -> tuple[OutOfFold, dict]:
    """Train all folds and write oof.parquet; return the out-of-fold rows, and the figures for JSON."""
    runs = train_folds(series, len(datasets), range(len(datasets)), [])
    oof_rows = gather_folds(runs, datasets)
    write_oof(series.folder / OOF, oof_rows)
    return oof_rows, fold_figures(oof_rows)


def fold_figures(oof_rows: OutOfFold) -> dict:
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
    return figures | (
        {"note": f"{outcome.note} Dev rows are never rows of the fold."} if outcome.note else {}
    )


def render_folds(figures: dict) -> str:
    """Return the figures as text."""
    shown = list(figures["mean"])
    rows = [
        [f"fold {one['fold']}", f"{one['rows']:,}", *(f"{one[name]:.4f}" for name in shown)]
        for one in figures["folds"]
    ]
    for name in ("mean", "standard_deviation"):
        rows.append([name.replace("_", " "), "", *(f"{figures[name][key]:.4f}" for key in shown)])
    pooled = figures["all_rows"]
    lines = [text_table(["", "rows", *(BY_KEY[name].english for name in shown)], rows), ""]
    lines.append(
        f"All {pooled['rows']:,} rows together, each by the model that was trained without it; 95 % intervals"
    )
    width = max(len(BY_KEY[name].english) for name in pooled["intervals"])
    lines += [
        f"  {BY_KEY[name].english:{width}} {pooled[name]:.4f}   {low:.4f} to {high:.4f}"
        for name, (low, high) in pooled["intervals"].items()
    ]
    lines.append(
        "The standard deviation is that of single folds. Folds share most of their training rows, so it says "
        "little about the mean."
    )
    return "\n".join([*lines, *([figures["note"]] if "note" in figures else [])])


def render_label_issues(figures: dict, outcome: LabelledOutcome) -> str:
    """Return what was found about labels as text."""
    what = "issues_found" if figures["can_judge"] else "cannot_judge"
    first = say(SENTENCES | outcome.own_words, "en", what, **figures)
    if not figures["can_judge"]:
        return (
            f"{first} Models that are not better than that cannot judge labels: no rows are listed. "
            f"How to get a better model: {GUIDE}"
        )
    return "\n".join([first, *outcome.pattern_lines(figures)])


def render_injected(figures: dict, fraction: float, folds: int) -> str:
    """Return how well injected errors were found as text."""
    if not figures["k"]:
        return (
            f"No error could be injected: {fraction:.1%} of the rows is less than one text, "
            "or all classes are small."
        )
    low, high = figures["interval"]
    return (
        f"How good is this ranking? In {fraction:.1%} of the rows a label was made wrong at random, and "
        f"{folds} fold(s) trained and tested so.\n"
        f"  Of the first {figures['k']:,} places {figures['found']:,} are injected errors: precision "
        f"{figures['precision_at_k']:.4f} (95 % interval {low:.4f} to {high:.4f}); "
        f"in random order {figures['random']:.4f}\n"
        f"  Of the first {figures['half_k']:,} places: precision {figures['precision_at_half_k']:.4f}\n"
        "  The other places may be real errors of the data. Real errors are harder to find than these, "
        "because they are more plausible."
    )


def write_figures(folder: Path, figures: dict, text: str) -> None:
    """Write cross_validation.txt and cross_validation.json."""
    write_text(folder / TEXT, text + "\n")
    write_json(folder / FIGURES, figures)
