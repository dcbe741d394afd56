"""A learning curve: parts of the training rows, each trained and tested on the same rows."""

from dataclasses import replace

from ...config.data_settings import VerbArguments
from ...config.schema import Config
from ...data.dataset import open_dataset
from ...report.bootstrap import all_metrics, differences
from ...report.metrics import BY_KEY
from ...text_table import text_table
from ...words import _
from .series import Series, scores_of_runs

SHARES = (0.12, 0.25, 0.5, 1.0)
# Below this change by twice the rows, more rows hardly help
FLAT = 0.01


def train_parts(series: Series, config: Config) -> dict:
    """Train the parts that are not trained yet; return the figures as JSON has them."""
    datasets = [open_dataset(replace(config.data, verb=VerbArguments(train_share=share))) for share in SHARES]
    names = [f"part-{share * 100:.0f}" for share in SHARES]
    for name, share in zip(names, SHARES, strict=True):
        series.run(name, ["--verb", f"{{train_share: {share}}}"])
    task, split, num_rows, scores = scores_of_runs(series.folder, names)
    key, points = task.main_metric, []
    for share, dataset, of_run in zip(SHARES, datasets, scores, strict=True):
        measured = all_metrics(task, of_run)
        points.append(
            {
                "share": share,
                "train_rows": len(dataset.splits["train"]),
                key: measured[key],
                "interval": list(measured["intervals"][key]),
            }
        )
    change, interval = differences(task, *scores[-2:])[key]
    return {
        "metric": key,
        "split": split,
        "rows": num_rows,
        "points": points,
        "last_change": change,
        "last_change_interval": list(interval),
    }


def conclusion(figures: dict) -> str:
    """Return what the curve says, in one sentence."""
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


def render_curve(figures: dict) -> str:
    """Return the figures as text."""
    key = figures["metric"]
    rows = [
        [f"{point['share']:.0%}", f"{point['train_rows']:,}", f"{point[key]:.4f}", _interval(point)]
        for point in figures["points"]
    ]
    heading = ["", _("training rows"), BY_KEY[key].name, "95 %"]
    note = _(
        "95 % bootstrap intervals over the {rows:,} rows of {split}, the same for all. They do not contain "
        "the spread of random seeds."
    ).format(rows=figures["rows"], split=figures["split"])
    return "\n".join([text_table(heading, rows), "", note, conclusion(figures)])


def _interval(point: dict) -> str:
    return "{:.4f} … {:.4f}".format(*point["interval"])
