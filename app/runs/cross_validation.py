"""Cross-validation: each row of the train file is tested once, by a model that was trained without it."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from ..config.schema import VerbArguments
from ..data.dataset import open_dataset
from ..errors import say
from ..program import install_command
from ..report.bootstrap import all_metrics
from ..report.measure import measure
from ..report.metrics import BY_KEY, compared_metrics
from ..text_table import columns_of, padded
from ..words import _, pgettext
from .label_issues import issues_text, list_issues
from .out_of_fold import OutOfFold, gather_folds, write_out_of_fold
from .results import figure_table, metric_names
from .series import Series


def train_folds(series: Series, num_folds: int) -> str:
    """Train all folds, write oof.parquet, the label issues and the figures; return these as text."""
    has_cleanlab = find_spec("cleanlab") is not None
    if not has_cleanlab:
        say(f"There will be no label_issues.csv: cleanlab is needed: {install_command('labels')}")
    # Data that cannot be opened is an error before anything is trained
    first_fold = VerbArguments(folds=num_folds, fold=0)
    dataset = open_dataset(replace(series.config.data, verb=first_fold))
    series.open(dataset)
    runs = []
    for fold in range(num_folds):
        settings = {"verb": {"folds": num_folds, "fold": fold}}
        runs.append(series.run(f"fold-{fold}", settings))
    rows = gather_folds(runs, dataset.splits["test"].table)
    write_out_of_fold(series.folder / "oof.parquet", rows)
    figures = fold_figures(rows)
    text = folds_text(figures)
    if has_cleanlab:
        figures["labels"] = list_issues(series.folder / "label_issues.csv", rows, series.overwrite)
        text += "\n\n" + issues_text(figures["labels"], rows.task.answer_column)
    return series.write("cross_validation", figures, text)


def fold_figures(rows: OutOfFold) -> dict:
    """Return the metrics of each fold, their mean and standard deviation over the folds, and the metrics of
    all rows together with 95 % intervals."""
    task = rows.task
    split = rows.split
    keys = [metric.key for metric in compared_metrics(task)]
    folds = []
    for fold in np.unique(rows.folds):
        positions = np.flatnonzero(rows.folds == fold)
        predicted = rows.scores.predicted[positions]
        scores = task.score(split.labels[positions], split.logits[positions], predicted)
        metrics = measure(task, scores)
        figures = {"fold": int(fold), "rows": len(positions)}
        for key in keys:
            figures[key] = metrics[key]
        folds.append(figures)
    mean = {}
    standard_deviation = {}
    for key in keys:
        values = [metrics[key] for metrics in folds]
        mean[key] = float(np.mean(values))
        standard_deviation[key] = float(np.std(values, ddof=1))
    all_rows = {"rows": len(rows.folds)}
    pooled = all_metrics(task, rows.scores)
    for key, value in pooled.items():
        if key in keys or key in pooled["intervals"] or key in ("intervals", "classes"):
            all_rows[key] = value
    return {"folds": folds, "mean": mean, "standard_deviation": standard_deviation, "all_rows": all_rows}


def folds_text(figures: dict) -> str:
    """Return the figures of `fold_figures` for people: a table of folds, and all rows together."""
    keys = list(figures["mean"])
    heading = [pgettext("of data", "rows"), *metric_names(keys)]
    lines = {}
    for metrics in figures["folds"]:
        name = _("fold {fold}").format(fold=metrics["fold"])
        lines[name] = [metrics["rows"], *(metrics[key] for key in keys)]
    lines[pgettext("of runs", "mean")] = ["", *figures["mean"].values()]
    lines[_("standard deviation")] = ["", *figures["standard_deviation"].values()]

    all_rows = figures["all_rows"]
    sentence = _("All {rows:,} rows together, each by the model that was trained without it; 95 % intervals")
    text = [figure_table(heading, lines), "", sentence.format(rows=all_rows["rows"])]
    widths = map(columns_of, metric_names(all_rows["intervals"]))
    width = max(widths)
    for key, (low, high) in all_rows["intervals"].items():
        interval = _("{low:.4f} to {high:.4f}").format(low=low, high=high)
        text.append(f"  {padded(BY_KEY[key].name, width)}  {all_rows[key]:.4f}   {interval}")
    text.append(
        _(
            "The standard deviation is that of single folds. Folds share most of their training rows, so it "
            "says little about the mean."
        )
    )
    return "\n".join(text)
