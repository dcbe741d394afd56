"""Several seeds of one configuration, tested on the same rows: how far a seed moves the figures."""

from ..data.dataset import open_dataset
from ..report.bootstrap import seed_variance
from ..report.metrics import BY_KEY
from ..words import _, pgettext, rows_in_words
from .results import figure_table, metric_names, read_scored_runs
from .series import Series


def train_seeds(series: Series, num_seeds: int) -> str:
    """Train `num_seeds` seeds from train.seed on, write the figures and return them as text."""
    series.open(open_dataset(series.config.data))
    first_seed = series.config.train.seed
    seeds = list(range(first_seed, first_seed + num_seeds))
    runs = [series.run(f"seed-{seed}", {"train.seed": seed}) for seed in seeds]
    tested = read_scored_runs(runs)
    # How far seeds move a figure is kept apart from the error of sampling test rows
    spreads = seed_variance(tested.task, tested.scores)
    figures = {"seeds": seeds, "split": tested.split, "rows": tested.num_rows}
    text = seeds_text(spreads, **figures)
    return series.write("cross_validation", figures | spreads, text)


def seeds_text(spreads: dict[str, dict], seeds: list[int], split: str, rows: int) -> str:
    """Return for people what `seed_variance` found, by metric: a table, and a sentence for each metric."""
    sentence = _("{seeds} seeds, the same {rows} of {split}")
    text = [sentence.format(seeds=len(seeds), rows=rows_in_words(rows), split=split)]
    lines = {}
    for position, seed in enumerate(seeds):
        name = _("seed {seed}").format(seed=seed)
        lines[name] = [spread["values"][position] for spread in spreads.values()]
    lines[pgettext("of runs", "mean")] = [spread["mean"] for spread in spreads.values()]
    heading = metric_names(spreads)
    text += [figure_table(heading, lines), ""]
    for key, spread in spreads.items():
        low, high = spread["sampling_interval"]
        sentence = _(
            "{metric}: another seed moves it by ±{seed_standard_deviation:.4f} (standard deviation of a "
            "single run, same rows)\n  other test rows move the mean by ±{sampling_standard_deviation:.4f}; "
            "95 % interval of the mean {low:.4f} to {high:.4f} (bootstrap over the rows)"
        )
        text.append(sentence.format(metric=BY_KEY[key].name, low=low, high=high, **spread))
    return "\n".join(text)
