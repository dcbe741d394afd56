"""Folds: each row is tested by a model that was trained without it, which shows labels that may be wrong."""

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..config.data_settings import VerbArguments
from ..data.dataset import Dataset, open_dataset
from ..data.relabel import written_hash
from ..data.table import Table
from ..errors import InputError
from ..report.bootstrap import all_metrics
from ..report.label_issues import check_cleanlab, find_issues, judge, render_issues
from ..report.logits_file import LOGITS, SplitLogits, read_run
from ..report.metrics import BY_KEY, measure, metrics_of
from ..runtime.disk import whole_file
from ..tasks.task import Scores, Task
from ..text_table import columns_of
from ..words import _, pgettext
from .series import Series, rendered, say, table

CROSS_VALIDATION = "cross_validation"


@dataclass(frozen=True)
class OutOfFold:
    """Rows with the logits of the model that was trained without them, in the order of their ids; `folds`
    (num_rows,) is the fold of each row, `predicted` the answers of the fold's run, by its own decision."""

    table: Table
    task: Task
    folds: np.ndarray
    split: SplitLogits
    predicted: np.ndarray

    def scores(self, rows: np.ndarray | slice = slice(None)) -> Scores:
        """Return the scores of all rows, or of those at `rows`."""
        split = self.split
        return self.task.score(split.labels[rows], split.logits[rows], self.predicted[rows])


def train_folds(series: Series, folds: int) -> str:
    """Train all folds, write oof.parquet, the label issues and the figures; return these as text. Raises what
    `Series.open`, `Series.run` and `gather_folds` raise."""
    no_issues = None
    try:
        check_cleanlab()
    except InputError as error:
        no_issues = _("There will be no label_issues.csv: {why}").format(why=error)
        say(no_issues)
    datasets = fold_datasets(series, folds)
    series.open()
    for fold in range(folds):
        series.run(f"fold-{fold}", ["--verb", f"{{folds: {folds}, fold: {fold}}}"])
    oof_rows = gather_folds([series.folder / f"fold-{fold}" for fold in range(folds)], datasets)
    write_oof(series.folder / "oof.parquet", oof_rows)
    figures = fold_figures(oof_rows)
    texts = [render_folds(figures)]
    if not no_issues:
        figures["labels"] = list_issues(series.folder / "label_issues.csv", oof_rows)
        texts.append(render_issues(figures["labels"], oof_rows.task))
    series.write(CROSS_VALIDATION, figures, "\n\n".join(texts))
    where = no_issues or _("Written into {folder}").format(folder=series.folder)
    if figures.get("labels", {}).get("can_judge"):
        where += _("; what is filled in under `label` there is for --data.relabel")
    return "\n\n".join([*texts, where])


def fold_datasets(series: Series, folds: int) -> list[Dataset]:
    """Return the dataset of each fold."""
    data = series.config.data
    verbs = [VerbArguments(folds=folds, fold=fold) for fold in range(folds)]
    return [open_dataset(replace(data, verb=verb)) for verb in verbs]


def gather_folds(runs: list[Path], datasets: list[Dataset]) -> OutOfFold:
    """Return the out-of-fold rows of the finished run of each fold. Raises InputError for a run that has
    tested other rows or labels than those of its fold."""
    parts, predicted = [], []
    for fold, (run, dataset) in enumerate(zip(runs, datasets, strict=True)):
        task, splits = read_run(run)
        tested, part = dataset.splits["test"], splits.get("test")
        is_same = part is not None and all(
            np.array_equal(getattr(part, name), getattr(tested, name)) for name in ("rows", "labels")
        )
        if task.label_names != datasets[0].label_names or not is_same:
            raise InputError(
                f"{run / LOGITS}: the rows and labels of fold {fold} are needed, found others; remove this "
                "run, or choose another output.dir"
            )
        parts.append(part)
        predicted.append(task.decide(part.logits))
    order = np.argsort(np.concatenate([part.rows for part in parts]), kind="stable")
    folds = np.repeat(np.arange(len(runs)), [len(part) for part in parts])[order]
    names = ("rows", "labels", "hashes", "logits")
    arrays = (np.concatenate([getattr(part, name) for part in parts])[order] for name in names)
    table = datasets[0].splits["test"].table
    return OutOfFold(table, task, folds, SplitLogits(*arrays), np.concatenate(predicted)[order])


def write_oof(path: Path, oof_rows: OutOfFold) -> None:
    """Write each row to a Parquet file: row_id, file, line, text_hash, fold; label and predicted, whose types
    follow from the task; logits in the order of `label_names`, a JSON list in the file's metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    task, split, table = oof_rows.task, oof_rows.split, oof_rows.table
    rows = split.rows.tolist()
    columns = {
        "row_id": split.rows,
        "file": pa.array(map(table.file_of, rows), pa.string()).dictionary_encode(),
        "line": [table.line(row) for row in rows],
        "text_hash": [written_hash(value) for value in split.hashes.tolist()],
        "fold": oof_rows.folds.astype(np.int32),
        task.label_column: task.arrow_array(split.labels),
        "predicted": task.arrow_array(oof_rows.predicted),
        "logits": pa.FixedSizeListArray.from_arrays(split.logits.ravel(), split.logits.shape[1]),
    }
    names = {"label_names": json.dumps(task.label_names, ensure_ascii=False)}
    with whole_file(path, "wb") as file:
        parquet.write_table(pa.table(columns, metadata=names), file)


def fold_figures(oof_rows: OutOfFold) -> dict:
    """Return the figures of each fold, their mean and spread, and those of all rows with intervals."""
    task, by_fold = oof_rows.task, []
    shown = [metric.key for metric in metrics_of(task) if metric.compared]
    for fold in np.unique(oof_rows.folds):
        rows = np.flatnonzero(oof_rows.folds == fold)
        metrics = measure(task, oof_rows.scores(rows))
        by_fold.append({"fold": int(fold), "rows": len(rows), **{key: metrics[key] for key in shown}})
    pooled = all_metrics(task, oof_rows.scores())
    kept = {*shown, *pooled["intervals"], "intervals", "classes"}
    return {
        "folds": by_fold,
        "mean": {key: float(np.mean([one[key] for one in by_fold])) for key in shown},
        "standard_deviation": {key: float(np.std([one[key] for one in by_fold], ddof=1)) for key in shown},
        "all_rows": {"rows": len(oof_rows.folds)} | {key: pooled[key] for key in pooled if key in kept},
    } | note_of(task, _("Dev rows are never rows of the fold."))


def note_of(task: Task, then: str = "") -> dict[str, str]:
    """Return {"note": how runs decided their rows, and the sentence `then`}; {} without several labels a
    row."""
    several = _(
        "Each run decides by its own thresholds (decision.json), which have the best F1 of each label on its "
        "dev rows; without dev rows they are 0.5."
    )
    note = several if task.form.has_several else ""
    return {"note": f"{note} {then}".rstrip()} if note else {}


def render_folds(figures: dict) -> str:
    """Return the figures of the folds as text."""
    keys, pooled = list(figures["mean"]), figures["all_rows"]
    rows = {
        _("fold {fold}").format(**one): [one["rows"], *(one[key] for key in keys)] for one in figures["folds"]
    }
    rows[pgettext("of runs", "mean")] = ["", *figures["mean"].values()]
    rows[_("standard deviation")] = ["", *figures["standard_deviation"].values()]
    shown = table([pgettext("of data", "rows"), *(BY_KEY[key].name for key in keys)], rows)
    width = max(columns_of(BY_KEY[key].name) for key in pooled["intervals"])
    return rendered("folds", table=shown, width=width, **{"note": ""} | figures)


def list_issues(path: Path, oof_rows: OutOfFold) -> dict:
    """Write the rows whose label may be wrong as CSV, the least plausible label first; return the figures
    about it. Nothing is written where the models are no better than the most frequent answer. The column
    `label` is for fixes, which data.relabel reads; a list that is there may have some and is not replaced."""
    table, split, task, scores = oof_rows.table, oof_rows.split, oof_rows.task, oof_rows.scores()
    judged = judge(task, scores)
    if not judged["can_judge"]:
        return judged
    issues = find_issues(task, scores, split.logits)
    order, rows = issues.order, split.rows[issues.order].tolist()
    columns = {
        "rank": range(1, len(rows) + 1),
        "file": map(table.file_of, rows),
        "line": map(table.line, rows),
        "row_id": rows,
        "text": map(table.text, rows),
        "text_pair": map(table.pair, rows),
        "given": map(task.cell, split.labels[order]),
        "suggested": map(task.cell, oof_rows.predicted[order]),
        "score": (f"{score:.6f}" for score in issues.score[order]),
        "flagged": np.where(issues.flagged[order], "yes", "no"),
        "text_hash": map(written_hash, split.hashes[order].tolist()),
        "label": [""] * len(rows),
    }
    if not table.has_pairs:
        del columns["text_pair"]
    if not path.exists():
        with whole_file(path, encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    return judged | {"ranked": len(rows), "flagged": int(issues.flagged[order].sum())} | issues.patterns
