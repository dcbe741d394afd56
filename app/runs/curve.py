"""Seeds, and parts of the training rows: how far the figures of one configuration vary, and with what."""

from dataclasses import replace
from pathlib import Path

from ..config.data_settings import VerbArguments
from ..data.dataset import open_dataset
from ..errors import InputError
from ..report.bootstrap import all_metrics, differences, seed_variance
from ..report.logits_file import check_same_rows, read_run, split_of_report
from ..report.metrics import BY_KEY
from ..tasks.task import Scores, Task
from ..words import _, pgettext
from .folds import CROSS_VALIDATION, note_of
from .series import Series, rendered, table

SHARES = (0.12, 0.25, 0.5, 1.0)  # of the training rows
FLAT = 0.01  # below this change by twice the rows, more rows hardly help


def scores_of_runs(folder: Path, names: list[str]) -> tuple[Task, dict, list[Scores]]:
    """Return the task of finished runs, the split of their reports with its rows, and the scores of each run;
    raises InputError where they were tested on other rows."""
    first, scores = None, []
    for name in names:
        task, splits = read_run(folder / name)
        split = split_of_report(splits)
        rows = splits[split]
        first = first or rows
        try:
            check_same_rows(first, rows)
        except InputError as error:
            raise InputError(f"{folder}: {names[0]}, {name}: {error}") from error
        scores.append(task.score(rows.labels, rows.logits))
    return task, {"split": split, "rows": len(rows)}, scores


def train_seeds(series: Series, count: int) -> str:
    """Train `count` seeds from train.seed on, write the figures and return them as text."""
    # Data that cannot be opened is an error before anything is trained
    open_dataset(series.config.data)
    series.open()
    seeds = [series.config.train.seed + number for number in range(count)]
    for seed in seeds:
        series.run(f"seed-{seed}", ["--train.seed", str(seed)])
    figures = seed_figures(series.folder, seeds)
    text = render_seeds(figures)
    series.write(CROSS_VALIDATION, figures, text)
    return text


def seed_figures(folder: Path, seeds: list[int]) -> dict:
    """Return the spread of the runs of several seeds, kept apart from the error of sampling test rows."""
    task, tested, scores = scores_of_runs(folder, [f"seed-{seed}" for seed in seeds])
    about_dev = _("These are the rows above; a test file or data.test_size gives figures of other rows.")
    note = note_of(task, about_dev if tested["split"] == "dev" else "")
    return note | {"seeds": seeds} | tested | seed_variance(task, scores)


def render_seeds(figures: dict) -> str:
    """Return the figures of the seeds as text."""
    spreads = {key: figures[key] for key in figures if key in BY_KEY}
    rows = {
        _("seed {seed}").format(seed=seed): [spread["values"][at] for spread in spreads.values()]
        for at, seed in enumerate(figures["seeds"])
    }
    rows[pgettext("of runs", "mean")] = [spread["mean"] for spread in spreads.values()]
    shown = table([BY_KEY[key].name for key in spreads], rows)
    return rendered("seeds", table=shown, spreads=spreads, **{"note": ""} | figures)


def train_shares(series: Series) -> str:
    """Train parts of the training rows and test each on the same rows; write the figures, return the text."""
    series.open()
    verbs = [VerbArguments(train_share=share) for share in SHARES]
    datasets = [open_dataset(replace(series.config.data, verb=verb)) for verb in verbs]
    names = [f"part-{share * 100:.0f}" for share in SHARES]
    for name, share in zip(names, SHARES, strict=True):
        series.run(name, ["--verb", f"{{train_share: {share}}}"])
    task, tested, scores = scores_of_runs(series.folder, names)
    key, points = task.main_metric, []
    for share, dataset, of_run in zip(SHARES, datasets, scores, strict=True):
        metrics = all_metrics(task, of_run)
        point = {"share": share, "train_rows": len(dataset.splits["train"]), key: metrics[key]}
        points.append(point | {"interval": list(metrics["intervals"][key])})
    change, interval = differences(task, *scores[-2:])[key]
    last = {"last_change": change, "last_change_interval": list(interval)}
    figures = {"metric": key} | tested | {"points": points} | last
    text = render_shares(figures)
    series.write("learning_curve", figures, text)
    return f"{text}\nWritten into {series.folder}"


def render_shares(figures: dict) -> str:
    """Return the figures of a learning curve as text, and what it says in one sentence."""
    key = figures["metric"]
    rows = {
        f"{one['share']:.0%}": [one["train_rows"], one[key], "{:.4f} … {:.4f}".format(*one["interval"])]
        for one in figures["points"]
    }
    shown = table([_("training rows"), BY_KEY[key].name, "95 %"], rows)
    return rendered("curve", table=shown, flat=FLAT, **figures)
