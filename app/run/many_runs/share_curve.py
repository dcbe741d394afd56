"""A learning curve: parts of the training rows, each trained and tested on the same rows."""

from dataclasses import replace

from ...config.language import say
from ...config.schema import Config
from ...data.dataset import open_dataset
from ...evaluation.text_table import text_table
from ...outcomes.metrics import BY_KEY
from ...outcomes.resampling import all_metrics, compare
from .series import Series, scores_of_runs

SHARES = (0.12, 0.25, 0.5, 1.0)
# Below this change by twice the rows, more rows hardly help
FLAT = 0.01
# English and Chinese
SENTENCES = {
    "rises": (
        "From half of the rows to all, {metric} rose by {change:.4f} ({low:+.4f} to {high:+.4f}): more rows "
        "help. Twice as many would give about {next:.2f}, if it goes on like this.",
        "从一半样本到全部样本，{metric} 上升了 {change:.4f}（{low:+.4f} 到 {high:+.4f}）：增加样本有用。"
        "照此趋势，样本再多一倍大约能到 {next:.2f}。",
    ),
    "flat": (
        "From half of the rows to all, {metric} changed by {change:+.4f} ({low:+.4f} to {high:+.4f}): more "
        "rows of this kind hardly help.",
        "从一半样本到全部样本，{metric} 变化 {change:+.4f}（{low:+.4f} 到 {high:+.4f}）："
        "再加同类样本用处不大。",
    ),
    "unclear": (
        "From half of the rows to all, {metric} changed by {change:+.4f} ({low:+.4f} to {high:+.4f}): the "
        "{rows:,} rows it is tested on are too few to say whether more rows help.",
        "从一半样本到全部样本，{metric} 变化 {change:+.4f}（{low:+.4f} 到 {high:+.4f}）："
        "测试的 {rows:,} 行太少，说不清增加样本是否有用。",
    ),
}
WORDS = {
    "rows": ("training rows", "训练样本数"),
    "note": (
        "95 % bootstrap intervals over the {0} rows of {1}, the same for all. They do not contain the spread "
        "of random seeds.",
        "对 {1} 的 {0} 行（各次相同）做自助法得到的 95% 区间，不包含随机种子带来的波动。",
    ),
}


def train_parts(series: Series, config: Config) -> dict:
    """Train the parts that are not trained yet; return the figures as JSON has them."""
    datasets = [open_dataset(replace(config.data, train_share=share)) for share in SHARES]
    names = [f"part-{share * 100:.0f}" for share in SHARES]
    for name, share in zip(names, SHARES, strict=True):
        series.run(name, ["--data.train_share", str(share)])
    outcome, split, num_rows, scores = scores_of_runs(series.folder, names)
    key, points = outcome.main_metric, []
    for share, dataset, of_run in zip(SHARES, datasets, scores, strict=True):
        measured = all_metrics(outcome, of_run)
        points.append(
            {
                "share": share,
                "train_rows": len(dataset.splits["train"]),
                key: measured[key],
                "interval": list(measured["intervals"][key]),
            }
        )
    change, interval = compare(outcome, *scores[-2:]).differences[key]
    return {
        "metric": key,
        "split": split,
        "rows": num_rows,
        "points": points,
        "last_change": change,
        "last_change_interval": list(interval),
    }


def conclusion(figures: dict, language: str) -> str:
    """Return what the curve says, in one sentence."""
    change, (low, high) = figures["last_change"], figures["last_change_interval"]
    key = figures["metric"]
    what = "rises" if low > 0 else "flat" if high < FLAT or (change < FLAT and high < 2 * FLAT) else "unclear"
    last = figures["points"][-1][key]
    values = {"change": change, "low": low, "high": high, "rows": figures["rows"]}
    values |= {"metric": BY_KEY[key].name(language), "next": min(1.0, last + change)}
    return say(SENTENCES, language, what, **values)


def render_curve(figures: dict, language: str = "en") -> str:
    """Return the figures as text."""
    key = figures["metric"]
    name = BY_KEY[key].name(language)
    rows = [
        [f"{point['share']:.0%}", f"{point['train_rows']:,}", f"{point[key]:.4f}", _interval(point)]
        for point in figures["points"]
    ]
    heading = ["", say(WORDS, language, "rows"), name, "95 %"]
    note = say(WORDS, language, "note", f"{figures['rows']:,}", figures["split"])
    return "\n".join([text_table(heading, rows), "", note, conclusion(figures, language)])


def _interval(point: dict) -> str:
    return "{:.4f} … {:.4f}".format(*point["interval"])
