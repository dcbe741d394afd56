"""The same split with several seeds: their spread, kept apart from the error of sampling the test rows."""

from ...config.schema import Config
from ...data.dataset import open_dataset
from ...report.bootstrap import seed_variance
from ...report.metrics import BY_KEY
from ...text_table import text_table
from ...words import _, pgettext
from .cross_validation import note_of
from .series import Series, scores_of_runs


def check_seeds(config: Config) -> None:
    """Raise InputError for data that cannot be opened, before anything is trained."""
    open_dataset(config.data)


def train_seeds(series: Series, config: Config, count: int) -> dict:
    """Train the configuration with `count` seeds from train.seed on; return the figures as JSON has them."""
    seeds = [config.train.seed + number for number in range(count)]
    for seed in seeds:
        series.run(f"seed-{seed}", ["--train.seed", str(seed)])
    task, name, num_rows, scores = scores_of_runs(series.folder, [f"seed-{seed}" for seed in seeds])
    about_dev = _("These are the rows above; a test file or data.test_size gives figures of other rows.")
    return note_of(task, about_dev if name == "dev" else "") | {
        "seeds": seeds,
        "split": name,
        "rows": num_rows,
        **seed_variance(task, scores),
    }


def render_seeds(figures: dict) -> str:
    """Return the figures as text."""
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
    return "\n".join([*lines, *([figures["note"]] if "note" in figures else [])])
