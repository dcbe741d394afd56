"""A learning curve: growing parts of the training rows, each tested on the same rows."""

from dataclasses import replace

from ..config.schema import VerbArguments
from ..data.dataset import open_dataset
from ..report.bootstrap import differences
from ..report.metrics import BY_KEY
from ..words import _, rows_in_words
from .results import figure_table, read_scored_runs
from .series import Series, read_report

SHARES = (0.12, 0.25, 0.5, 1.0)  # of the training rows
FLAT = 0.01  # below this change by twice the rows, more rows hardly help


def train_shares(series: Series) -> str:
    """Train parts of the training rows and test each on the same rows; write the figures, return the text."""
    smallest_part = VerbArguments(train_share=SHARES[0])
    series.open(open_dataset(replace(series.config.data, verb=smallest_part)))
    runs = []
    for share in SHARES:
        settings = {"verb": {"train_share": share}}
        runs.append(series.run(f"part-{share * 100:.0f}", settings))
    tested = read_scored_runs(runs)
    key = tested.task.main_metric
    points = []
    for run, share, scores in zip(runs, SHARES, tested.scores, strict=True):
        wanted = {"data": {"train": {"rows": int}}, "intervals": {key: list[float]}, key: float}
        report = read_report(run, wanted)
        train_rows = report["data"]["train"]["rows"]
        points.append(
            {
                "share": share,
                "train_rows": train_rows,
                key: report[key],
                "interval": report["intervals"][key],
                "same_answer": bool((scores.predicted == scores.predicted[0]).all()),
            }
        )
    half, whole = tested.scores[-2:]
    last_change, last_interval = differences(tested.task, half, whole)[key]
    figures = {
        "metric": key,
        "split": tested.split,
        "rows": tested.num_rows,
        "points": points,
        "last_change": last_change,
        "last_change_interval": list(last_interval),
    }
    return series.write("learning_curve", figures, curve_text(figures))


def curve_text(figures: dict) -> str:
    """Return a learning curve for people: a table of its points, and a sentence on whether more rows help."""
    lines = {}
    for point in figures["points"]:
        low, high = point["interval"]
        name = f"{point['share']:.0%}"
        lines[name] = [f"{point['train_rows']:,}", point[figures["metric"]], f"{low:.4f} … {high:.4f}"]
    heading = [_("training rows"), BY_KEY[figures["metric"]].name, "95 %"]
    note = _(
        "95 % bootstrap intervals over the {rows} of {split}, the same for all. They do not contain "
        "the spread of random seeds."
    )
    text = [
        figure_table(heading, lines),
        "",
        note.format(rows=rows_in_words(figures["rows"]), split=figures["split"]),
    ]
    text.append(curve_sentence(figures))
    return "\n".join(text)


def curve_sentence(figures: dict) -> str:
    """Return whether more rows help, by what changed from half of the training rows to all of them."""
    change = figures["last_change"]
    low, high = figures["last_change_interval"]
    with_all_rows = figures["points"][-1][figures["metric"]]
    same_answers = [point.get("same_answer", False) for point in figures["points"]]
    if same_answers[-1]:
        sentence = _(
            "With all rows the model still gives every text the same answer: it has learned nothing, so the "
            "curve does not say whether more rows help. Train for longer, or at another learning rate."
        )
    elif any(same_answers[-2:]):
        sentence = _(
            "With half of the rows the model gives every text the same answer, with all rows it does not: "
            "the change of {metric}, {change:+.4f}, does not say what twice as many rows would give."
        )
    elif low > 0:
        sentence = _(
            "From half of the rows to all, {metric} rose by {change:.4f} ({low:+.4f} to {high:+.4f}): more "
            "rows help. Twice as many would give about {next:.2f}, if it goes on like this."
        )
    elif high < FLAT or (change < FLAT and high < 2 * FLAT):
        sentence = _(
            "From half of the rows to all, {metric} changed by {change:+.4f} ({low:+.4f} to {high:+.4f}): "
            "more rows of this kind hardly help."
        )
    else:
        sentence = _(
            "From half of the rows to all, {metric} changed by {change:+.4f} ({low:+.4f} to {high:+.4f}): "
            "tested on {rows}, too few to say whether more rows help."
        )
    return sentence.format(
        metric=BY_KEY[figures["metric"]].name,
        change=change,
        low=low,
        high=high,
        rows=rows_in_words(figures["rows"]),
        next=min(1.0, with_all_rows + change),
    )
