"""Folds, seeds and parts of the training rows: what several runs of one configuration say of it together."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config.data_settings import VerbArguments
from ..config.schema import Config
from ..data.dataset import Dataset, open_dataset
from ..data.relabel import written_hash
from ..data.table import Table
from ..errors import InputError
from ..report.bootstrap import all_metrics, differences, seed_variance
from ..report.logits_file import LOGITS, SplitLogits, check_same_rows, read_run, split_of_report
from ..report.metrics import BY_KEY, measure, metrics_of
from ..runtime.disk import whole_file
from ..tasks.task import Task
from ..text_table import text_table
from ..words import _, pgettext
from .series import Series

SHARES = (0.12, 0.25, 0.5, 1.0)  # of the training rows, for a learning curve
FLAT = 0.01  # below this change by twice the rows, more rows hardly help


@dataclass(frozen=True)
class OutOfFold:
    """Rows with the logits of the model that was trained without them, in the order of their ids.

    `rows`, `labels`, `hashes` and `logits` as in `SplitLogits`; `folds` (num_rows,) is the fold of each row.
    `predicted` are the answers of the fold's run, by its own decision. `task` has not decided them.
    """

    table: Table
    task: Task
    folds: np.ndarray
    split: SplitLogits
    predicted: np.ndarray

    def scores(self, rows: np.ndarray | slice = slice(None)) -> Any:
        """Return the scores of all rows, or of those at `rows`."""
        split = self.split
        return self.task.score(split.labels[rows], split.logits[rows], self.predicted[rows])


def fold_datasets(config: Config, folds: int) -> list[Dataset]:
    """Return the dataset of each fold; raises InputError, before any training, where one cannot be made."""
    verbs = [VerbArguments(folds=folds, fold=fold) for fold in range(folds)]
    return [open_dataset(replace(config.data, verb=verb)) for verb in verbs]


def train_folds(series: Series, datasets: list[Dataset]) -> OutOfFold:
    """Train all folds and write oof.parquet; return the out-of-fold rows."""
    names = [f"fold-{fold}" for fold in range(len(datasets))]
    for fold, name in enumerate(names):
        series.run(name, ["--verb", f"{{folds: {len(datasets)}, fold: {fold}}}"])
    oof_rows = gather_folds([series.path(name) for name in names], datasets)
    write_oof(series.folder / "oof.parquet", oof_rows)
    return oof_rows


def gather_folds(runs: list[Path], datasets: list[Dataset]) -> OutOfFold:
    """Return the out-of-fold rows of the finished run of each fold; raises InputError for other rows."""
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
    split = SplitLogits(
        *(
            np.concatenate([getattr(part, name) for part in parts])[order]
            for name in ("rows", "labels", "hashes", "logits")
        )
    )
    table = datasets[0].splits["test"].table
    return OutOfFold(table, task.without_fit(), folds, split, np.concatenate(predicted)[order])


def write_oof(path: Path, oof_rows: OutOfFold) -> None:
    """Write each row to a Parquet file: row_id, file, line, text_hash, fold, label and predicted, typed by
    the task, logits in the order of `label_names`, which the file's metadata have as JSON."""
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
    task = oof_rows.task
    table = metrics_of(task)
    shown = [metric.key for metric in table if metric.compared]
    by_fold = []
    for fold in np.unique(oof_rows.folds):
        rows = np.flatnonzero(oof_rows.folds == fold)
        metrics = measure(task, oof_rows.scores(rows))
        by_fold.append({"fold": int(fold), "rows": len(rows), **{key: metrics[key] for key in shown}})
    pooled = all_metrics(task, oof_rows.scores())
    kept = [*shown, *(metric.key for metric in table if metric.has_interval), "intervals", "classes"]
    figures = {
        "folds": by_fold,
        "mean": {key: float(np.mean([one[key] for one in by_fold])) for key in shown},
        "standard_deviation": {key: float(np.std([one[key] for one in by_fold], ddof=1)) for key in shown},
        "all_rows": {"rows": len(oof_rows.folds)} | {key: pooled[key] for key in kept if key in pooled},
    }
    return figures | note_of(task, _("Dev rows are never rows of the fold."))


def note_of(task: Task, then: str = "") -> dict[str, str]:
    """Return {"note": how rows of several runs were decided, and the sentence `then`}, {} without a note."""
    several = _(
        "Each run decides by its own thresholds (decision.json), which have the best F1 of each label on its "
        "dev rows; without dev rows they are 0.5."
    )
    note = several if task.form.has_several else ""
    return {"note": f"{note} {then}".rstrip()} if note else {}


def render_folds(figures: dict) -> str:
    """Return the figures of the folds as text."""

    def line(name: str, rows: str, values: dict) -> list[str]:
        return [name, rows, *(f"{values[key]:.4f}" for key in figures["mean"])]

    heading = ["", pgettext("of data", "rows"), *(BY_KEY[key].name for key in figures["mean"])]
    rows = [line(_("fold {fold}").format(**one), f"{one['rows']:,}", one) for one in figures["folds"]]
    rows.append(line(pgettext("of runs", "mean"), "", figures["mean"]))
    rows.append(line(_("standard deviation"), "", figures["standard_deviation"]))
    pooled, intervals = figures["all_rows"], []
    for key, (low, high) in pooled["intervals"].items():
        ends = _("{low:.4f} to {high:.4f}").format(low=low, high=high)
        intervals.append([f"  {BY_KEY[key].name}", f"{pooled[key]:.4f}", f" {ends}"])
    about = _("All {rows:,} rows together, each by the model that was trained without it; 95 % intervals")
    spread = _(
        "The standard deviation is that of single folds. Folds share most of their training rows, so it "
        "says little about the mean."
    )
    lines = [text_table(heading, rows), "", about.format(rows=pooled["rows"])]
    lines += [text_table(intervals[0], intervals[1:]), spread, *filter(None, [figures.get("note")])]
    return "\n".join(lines)


def scores_of_runs(folder: Path, names: list[str]) -> tuple[Task, str, int, list]:
    """Return the task of finished runs, the split of their reports, its rows, and the scores of each run;
    raises InputError where they were tested on other rows."""
    first, scores = None, []
    for name in names:
        task, splits = read_run(folder / name)
        split = split_of_report(splits)
        rows = splits[split]
        first = rows if first is None else first
        try:
            check_same_rows(first, rows)
        except InputError as error:
            raise InputError(f"{folder}: {names[0]}, {name}: {error}") from error
        scores.append(task.score(rows.labels, rows.logits))
    return task, split, len(rows), scores


def train_seeds(series: Series, config: Config, count: int) -> dict:
    """Train the configuration with `count` seeds from train.seed on; return the figures as JSON has them:
    their spread, kept apart from the error of sampling the test rows."""
    seeds = [config.train.seed + number for number in range(count)]
    for seed in seeds:
        series.run(f"seed-{seed}", ["--train.seed", str(seed)])
    task, split, num_rows, scores = scores_of_runs(series.folder, [f"seed-{seed}" for seed in seeds])
    about_dev = _("These are the rows above; a test file or data.test_size gives figures of other rows.")
    figures = {"seeds": seeds, "split": split, "rows": num_rows} | seed_variance(task, scores)
    return note_of(task, about_dev if split == "dev" else "") | figures


def render_seeds(figures: dict) -> str:
    """Return the figures of the seeds as text."""
    keys = [key for key in figures if key in BY_KEY]
    rows = [
        [_("seed {seed}").format(seed=seed), *(f"{figures[key]['values'][at]:.4f}" for key in keys)]
        for at, seed in enumerate(figures["seeds"])
    ]
    rows.append([pgettext("of runs", "mean"), *(f"{figures[key]['mean']:.4f}" for key in keys)])
    about = _("{seeds} seeds, the same {rows:,} rows of {split}")
    about = about.format(seeds=len(figures["seeds"]), rows=figures["rows"], split=figures["split"])
    lines = [about, text_table(["", *(BY_KEY[key].name for key in keys)], rows), ""]
    for key in keys:
        low, high = figures[key]["sampling_interval"]
        spread = _(
            "{metric}: another seed moves it by ±{seed_standard_deviation:.4f} (standard deviation of a "
            "single run, same rows)\n  other test rows move the mean by ±{sampling_standard_deviation:.4f}; "
            "95 % interval of the mean {low:.4f} to {high:.4f} (bootstrap over the rows)"
        )
        lines.append(spread.format(metric=BY_KEY[key].name, low=low, high=high, **figures[key]))
    return "\n".join([*lines, *filter(None, [figures.get("note")])])


def train_shares(series: Series, config: Config) -> dict:
    """Train parts of the training rows and test each on the same rows; return the figures for JSON."""
    verbs = [VerbArguments(train_share=share) for share in SHARES]
    datasets = [open_dataset(replace(config.data, verb=verb)) for verb in verbs]
    names = [f"part-{share * 100:.0f}" for share in SHARES]
    for name, share in zip(names, SHARES, strict=True):
        series.run(name, ["--verb", f"{{train_share: {share}}}"])
    task, split, num_rows, scores = scores_of_runs(series.folder, names)
    key, points = task.main_metric, []
    for share, dataset, of_run in zip(SHARES, datasets, scores, strict=True):
        metrics = all_metrics(task, of_run)
        point = {"share": share, "train_rows": len(dataset.splits["train"]), key: metrics[key]}
        points.append(point | {"interval": list(metrics["intervals"][key])})
    change, interval = differences(task, *scores[-2:])[key]
    last = {"last_change": change, "last_change_interval": list(interval)}
    return {"metric": key, "split": split, "rows": num_rows, "points": points} | last


def conclusion(figures: dict) -> str:
    """Return what a learning curve says, in one sentence."""
    change, (low, high) = figures["last_change"], figures["last_change_interval"]
    if low > 0:
        said = _(
            "From half of the rows to all, {metric} rose by {change:.4f} ({low:+.4f} to {high:+.4f}): more "
            "rows help. Twice as many would give about {next:.2f}, if it goes on like this."
        )
    elif high < FLAT or (change < FLAT and high < 2 * FLAT):
        said = _(
            "From half of the rows to all, {metric} changed by {change:+.4f} ({low:+.4f} to {high:+.4f}): "
            "more rows of this kind hardly help."
        )
    else:
        said = _(
            "From half of the rows to all, {metric} changed by {change:+.4f} ({low:+.4f} to {high:+.4f}): "
            "the {rows:,} rows it is tested on are too few to say whether more rows help."
        )
    key = figures["metric"]
    twice = min(1.0, figures["points"][-1][key] + change)
    values = {"metric": BY_KEY[key].name, "next": twice, "rows": figures["rows"]}
    return said.format(change=change, low=low, high=high, **values)


def render_shares(figures: dict) -> str:
    """Return the figures of a learning curve as text."""
    key = figures["metric"]
    rows = [
        [
            f"{point['share']:.0%}",
            f"{point['train_rows']:,}",
            f"{point[key]:.4f}",
            "{:.4f} … {:.4f}".format(*point["interval"]),
        ]
        for point in figures["points"]
    ]
    heading = ["", _("training rows"), BY_KEY[key].name, "95 %"]
    note = _(
        "95 % bootstrap intervals over the {rows:,} rows of {split}, the same for all. They do not contain "
        "the spread of random seeds."
    ).format(rows=figures["rows"], split=figures["split"])
    return "\n".join([text_table(heading, rows), "", note, conclusion(figures)])
