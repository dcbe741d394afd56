"""Folds, seeds, parts of the training rows, pairs of runs: how far figures vary, and with what. Folds test
each row by a model that was trained without it, which also shows labels that may be wrong."""

import json
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from ..checkpoints.run_folder import check_record
from ..config.schema import VerbArguments
from ..data.dataset import open_dataset
from ..data.table import Table
from ..errors import InputError, say
from ..report.bootstrap import all_metrics, differences, seed_variance
from ..report.confidence import mcnemar
from ..report.logits_file import ARRAYS, LOGITS, SplitLogits, check_same_rows, read_run, split_of_report
from ..report.metrics import BY_KEY, distinct_rows, measure, metrics_of
from ..runtime.disk import whole_file, write_text
from ..tasks.task import DECISION, Scores, Task
from ..text_table import columns_of, text_table
from ..words import _, pgettext
from .series import Series, read_report, rendered

SHARES = (0.12, 0.25, 0.5, 1.0)  # of the training rows
FLAT = 0.01  # below this change by twice the rows, more rows hardly help
MAX_P_VALUE = 0.05  # of the test whether models are better than the most frequent answer
FAR_OFF = 4.5  # median errors, about three standard deviations: a number further off may be wrong


@dataclass(frozen=True)
class OutOfFold:
    """Rows with the logits of the model that was trained without them, in the order of their ids; `folds`
    (num_rows,) is the fold of each row. In `scores`, each row has the answer of the run of its fold."""

    table: Table
    task: Task
    folds: np.ndarray
    split: SplitLogits
    scores: Scores


def train_folds(series: Series, count: int) -> str:
    """Train all folds, write oof.parquet, the label issues and the figures; return these as text."""
    if not (has_cleanlab := find_spec("cleanlab") is not None):
        why = "cleanlab is needed: pip install -r requirements/labels.txt -c constraints.txt"
        say(_("There will be no label_issues.csv: {why}").format(why=why))
    # Data that cannot be opened is an error before anything is trained
    first = open_dataset(replace(series.config.data, verb=VerbArguments(folds=count, fold=0)))
    series.open(first)
    runs = [series.run(f"fold-{fold}", {"verb": {"folds": count, "fold": fold}}) for fold in range(count)]
    oof_rows = gather_folds(runs, first.splits["test"].table)
    write_oof(series.folder / "oof.parquet", oof_rows)
    figures, text = fold_figures(oof_rows)
    if has_cleanlab:
        figures["labels"] = list_issues(series.folder / "label_issues.csv", oof_rows)
        text += "\n\n" + rendered("label_issues", found=figures["labels"], kind=oof_rows.task.label_column)
    return series.write("cross_validation", figures, text)


def read_checked(run: Path) -> tuple[Task, dict[str, SplitLogits]]:
    """Return what `read_run` does, of a run whose logits and decision are as the training wrote them."""
    check_record(run, LOGITS, DECISION)
    return read_run(run)


def gather_folds(runs: list[Path], rows_table: Table) -> OutOfFold:
    """Return the out-of-fold rows of the finished runs of the folds of a table."""
    parts, predicted = [], []
    for run in runs:
        task, splits = read_checked(run)
        parts.append(splits["test"])
        predicted.append(task.decide(splits["test"].logits))
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    folds = np.repeat(np.arange(len(runs)), [len(part) for part in parts])[order]
    split = SplitLogits(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in ARRAYS))
    scores = task.score(split.labels, split.logits, np.concatenate(predicted)[order])
    return OutOfFold(rows_table, task, folds, split, scores)


def write_oof(path: Path, oof_rows: OutOfFold) -> None:
    """Write each row to a Parquet file: row_id, file, line, text_hash, fold; label and predicted, whose types
    follow from the task; logits in the order of `label_names`, a JSON list in the file's metadata."""
    import pyarrow as pa
    from pyarrow import parquet

    task, split, rows_table = oof_rows.task, oof_rows.split, oof_rows.table
    rows = split.rows.tolist()
    columns = {
        "row_id": split.rows,
        "file": pa.array(map(rows_table.file_of, rows), pa.string()).dictionary_encode(),
        "line": rows_table.column("line", rows),
        "text_hash": [written_hash(value) for value in split.hashes.tolist()],
        "fold": oof_rows.folds.astype(np.int32),
        task.label_column: task.arrow_array(split.labels),
        "predicted": task.arrow_array(oof_rows.scores.predicted),
        "logits": pa.FixedSizeListArray.from_arrays(split.logits.ravel(), split.logits.shape[1]),
    }
    names = {"label_names": json.dumps(task.label_names, ensure_ascii=False)}
    with whole_file(path) as file:
        parquet.write_table(pa.table(columns, metadata=names), file)


def fold_figures(oof_rows: OutOfFold) -> tuple[dict, str]:
    """Return the figures of each fold, their mean and spread, those of all rows with intervals; and text."""
    task, split, by_fold = oof_rows.task, oof_rows.split, []
    keys = [metric.key for metric in metrics_of(task) if metric.compared]
    for fold in np.unique(oof_rows.folds):
        rows = np.flatnonzero(oof_rows.folds == fold)
        scores = task.score(split.labels[rows], split.logits[rows], oof_rows.scores.predicted[rows])
        by_fold.append({"fold": int(fold), "rows": len(rows)} | measure(task, scores))
    pooled = all_metrics(task, oof_rows.scores)
    kept = {*keys, *pooled["intervals"], "intervals", "classes"}
    figures = {
        "folds": [{key: one[key] for key in ("fold", "rows", *keys)} for one in by_fold],
        "mean": {key: float(np.mean([one[key] for one in by_fold])) for key in keys},
        "standard_deviation": {key: float(np.std([one[key] for one in by_fold], ddof=1)) for key in keys},
        "all_rows": {"rows": len(oof_rows.folds)} | {key: pooled[key] for key in pooled if key in kept},
    }
    rows = {_("fold {fold}").format(**one): [one["rows"], *(one[key] for key in keys)] for one in by_fold}
    rows[pgettext("of runs", "mean")] = ["", *figures["mean"].values()]
    rows[_("standard deviation")] = ["", *figures["standard_deviation"].values()]
    shown = table([pgettext("of data", "rows"), *(BY_KEY[key].name for key in keys)], rows)
    width = max(columns_of(BY_KEY[key].name) for key in pooled["intervals"])
    return figures, rendered("folds", table=shown, width=width, **figures)


def list_issues(path: Path, oof_rows: OutOfFold) -> dict:
    """Write the rows whose label may be wrong as CSV, the least plausible label first; return the figures
    about it. Nothing is written where the models are no better than the most frequent answer. The column
    `label` is for fixes, which data.relabel reads; a list that is there may have some and is not replaced."""
    rows_table, split, task, scores = oof_rows.table, oof_rows.split, oof_rows.task, oof_rows.scores
    judged = judge(scores)
    if not judged["can_judge"]:
        return judged
    order, quality, flagged = find_issues(task, scores, split.logits)
    rows = split.rows[order].tolist()
    columns = {"rank": range(1, len(rows) + 1), "file": map(rows_table.file_of, rows)}
    columns |= {"line": rows_table.column("line", rows), "row_id": rows}
    columns["text"] = rows_table.column("text", rows)
    if rows_table.has_pairs:
        columns["text_pair"] = rows_table.column("pair", rows)
    columns |= {
        "given": map(task.cell, split.labels[order]),
        "suggested": map(task.cell, scores.predicted[order]),
        "score": (f"{score:.6f}" for score in quality[order]),
        "flagged": np.where(flagged[order], "yes", "no"),
        "text_hash": map(written_hash, split.hashes[order].tolist()),
        "label": "",
    }
    if not path.exists():
        write_text(path, pd.DataFrame(columns).to_csv(index=False))
    return judged | {"ranked": len(rows), "flagged": int(flagged[order].sum())}


def written_hash(value: int) -> str:
    """Return the hash of a text as files have it: 16 hexadecimal digits after an h, so that no spreadsheet
    takes it for a number."""
    return f"h{value:016x}"


def judge(scores: Scores) -> dict:
    """Return the accuracy of models without these rows, that of always giving one answer (the most frequent
    one, or the mean), and whether the models may judge labels, `can_judge`: if better by McNemar's test."""
    if scores.error is None:
        (answers,), counts = distinct_rows(scores.labels)
        is_same = scores.labels == answers[counts.argmax()]
        is_constant = is_same.reshape(len(scores), -1).all(axis=1)
    else:
        is_constant = np.abs(scores.labels - scores.labels.mean()) <= scores.figures["near_distance"]
    won, lost = int((scores.correct & ~is_constant).sum()), int((is_constant & ~scores.correct).sum())
    shares = {"accuracy": float(scores.correct.mean()), "majority": float(is_constant.mean())}
    return {"can_judge": won > lost and mcnemar(won, lost) < MAX_P_VALUE, **shares}


def find_issues(task: Task, scores: Scores, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what the scores and logits of models without these rows say about their labels: positions of the
    rows that are predicted otherwise than labelled, the least plausible label first; of all rows how
    plausible it is, and bool, what cleanlab's confident learning takes for wrong. With several labels a row,
    each of them, given or not, is one label."""
    from cleanlab.filter import find_label_issues

    flagged, probabilities = np.zeros(len(scores), bool), task.probabilities(logits, calibrated=False)
    if scores.error is not None:
        quality = np.exp(-scores.error / (2 * scores.figures["near_distance"]))
        flagged = scores.error > FAR_OFF * np.median(scores.error)
    elif scores.labels.ndim == 1:
        quality = probabilities[np.arange(len(scores)), scores.labels]
        flagged = find_label_issues(scores.labels, probabilities, n_jobs=1)
    else:
        quality = np.where(scores.labels, probabilities, 1 - probabilities).min(axis=1)
        for has_label, chances in zip(scores.labels.T.astype(int), probabilities.T, strict=True):
            # A label that all rows have, or none, has nothing to learn from
            if 0 < has_label.sum() < len(scores):
                flagged |= find_label_issues(has_label, np.c_[1 - chances, chances], n_jobs=1)
    wrong = np.flatnonzero(~scores.correct)
    return wrong[np.argsort(quality[wrong], kind="stable")], quality, flagged


def scores_of_runs(runs: list[Path]) -> tuple[Task, dict, list[Scores]]:
    """Return the task of finished runs, the split of their reports with its rows, and the scores of each run;
    raises InputError where they were tested on other rows."""
    first, scores = None, []
    for run in runs:
        task, splits = read_checked(run)
        split = split_of_report(splits)
        first = first or splits[split]
        check_same_rows(first, splits[split])
        scores.append(task.score(splits[split].labels, splits[split].logits))
    return task, {"split": split, "rows": len(first)}, scores


def train_seeds(series: Series, count: int) -> str:
    """Train `count` seeds from train.seed on, write the figures and return them as text."""
    series.open(open_dataset(series.config.data))
    first = series.config.train.seed
    seeds = range(first, first + count)
    runs = {seed: series.run(f"seed-{seed}", {"train.seed": seed}) for seed in seeds}
    task, tested, scores = scores_of_runs(list(runs.values()))
    # Their spread is kept apart from the error of sampling test rows
    spreads = seed_variance(task, scores)
    rows = {
        _("seed {seed}").format(seed=seed): [spread["values"][at] for spread in spreads.values()]
        for at, seed in enumerate(runs)
    }
    rows[pgettext("of runs", "mean")] = [spread["mean"] for spread in spreads.values()]
    shown, figures = table([BY_KEY[key].name for key in spreads], rows), {"seeds": list(runs)} | tested
    text = rendered("seeds", table=shown, spreads=spreads, **figures)
    return series.write("cross_validation", figures | spreads, text)


def train_shares(series: Series) -> str:
    """Train parts of the training rows and test each on the same rows; write the figures, return the text."""
    series.open(open_dataset(replace(series.config.data, verb=VerbArguments(train_share=SHARES[0]))))
    runs = [series.run(f"part-{share * 100:.0f}", {"verb": {"train_share": share}}) for share in SHARES]
    task, tested, scores = scores_of_runs(runs)
    key, points, rows = task.main_metric, [], {}
    for run, share in zip(runs, SHARES, strict=True):
        wanted = {"data": {"train": {"rows": int}}, "intervals": {key: list[float]}, key: float}
        report = read_report(run, wanted)
        num_rows, interval = report["data"]["train"]["rows"], report["intervals"][key]
        points.append({"share": share, "train_rows": num_rows, key: report[key], "interval": interval})
        rows[f"{share:.0%}"] = [f"{num_rows:,}", report[key], "{:.4f} … {:.4f}".format(*interval)]
    change, interval = differences(task, *scores[-2:])[key]
    last = {"last_change": change, "last_change_interval": list(interval)}
    figures = {"metric": key} | tested | {"points": points} | last
    shown = table([_("training rows"), BY_KEY[key].name, "95 %"], rows)
    text = rendered("curve", table=shown, flat=FLAT, **figures)
    return series.write("learning_curve", figures, text)


def compare_runs(one: Path, other: Path) -> str:
    """Return how run `other` does against `one` as text; raises InputError for other rows or labels."""
    first, splits = read_checked(one)
    second, others = read_checked(other)
    rows, other_rows = splits[split_of_report(splits)], others[split_of_report(others)]
    # Ordered labels may be compared with the same ones without order
    common = first if isinstance(first, type(second)) else second
    is_alike = isinstance(common, type(first)) and isinstance(common, type(second))
    if not is_alike or first.label_column != second.label_column or first.label_names != second.label_names:
        found = [f"{task.name} with {len(task.label_names):,} labels" for task in (first, second)]
        raise InputError(
            f"the runs must have the same data.task and labels, found {found[0]} in {one} and {found[1]} in "
            f"{other}"
        )
    check_same_rows(rows, other_rows)
    scores = [task.score(of.labels, of.logits) for task, of in ((first, rows), (second, other_rows))]
    before, now = (of.correct for of in scores)
    won, lost = int((now & ~before).sum()), int((before & ~now).sum())
    found = differences(common, *scores)
    values = {"task": common, "num_rows": len(rows), "won": won, "lost": lost, "p_value": mcnemar(won, lost)}
    width = max(len(BY_KEY[key].english) for key in found) + 1
    return rendered("comparison", one=one, other=other, differences=found, width=width, **values)


def table(heading: list[str], rows: dict[str, list]) -> str:
    """Return numbers and texts, a row for each name, as a table."""
    kinds = {float: "{:.4f}".format, int: "{:,}".format, str: str}
    cells = [[name, *(kinds[type(one)](one) for one in values)] for name, values in rows.items()]
    return text_table(["", *heading], cells)
