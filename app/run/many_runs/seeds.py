"""The same split with several seeds: their spread, kept apart from the error of sampling the test rows."""

from dataclasses import replace

from ...config.schema import Config
from ...data.dataset import open_dataset
from ...evaluation.text_table import text_table
from ...outcomes.metrics import BY_KEY
from ...outcomes.resampling import seed_variance
from .series import Series, scores_of_runs


def check_seeds(config: Config) -> None:
    """Raise InputError for data that cannot be opened, before anything is trained."""
    open_dataset(replace(config.data, folds=None, fold=None))


def train_seeds(series: Series, config: Config, count: int) -> dict:
    """Train the configuration with `count` seeds from train.seed on; return the figures as JSON has them."""
    seeds = [config.train.seed + number for number in range(count)]
    for seed in seeds:
        series.run(f"seed-{seed}", ["--train.seed", str(seed)])
    outcome, name, num_rows, scores = scores_of_runs(series.folder, [f"seed-{seed}" for seed in seeds])
    variances = seed_variance(outcome, scores)
    same = (
        " These are the rows above; a test file or data.test_size gives figures of other rows."
        if name == "dev"
        else ""
    )
    return ({"note": outcome.note + same} if outcome.note else {}) | {
        "seeds": seeds,
        "split": name,
        "rows": num_rows,
        **{key: variance.to_dict() for key, variance in variances.items()},
    }


def render_seeds(figures: dict) -> str:
    """Return the figures as text."""
    keys = [key for key in figures if key in BY_KEY]
    rows = [
        [f"seed {seed}", *(f"{figures[key]['values'][at]:.4f}" for key in keys)]
        for at, seed in enumerate(figures["seeds"])
    ]
    rows.append(["mean", *(f"{figures[key]['mean']:.4f}" for key in keys)])
    lines = [f"{len(rows) - 1} seeds, the same {figures['rows']:,} rows of {figures['split']}"]
    lines += [text_table(["", *(BY_KEY[key].english for key in keys)], rows), ""]
    for key in keys:
        spread, (low, high) = figures[key], figures[key]["sampling_interval"]
        lines.append(
            f"{BY_KEY[key].english}: another seed moves it by ±{spread['seed_standard_deviation']:.4f} "
            "(standard deviation of a single run, same rows)\n  other test rows move the mean by "
            f"±{spread['sampling_standard_deviation']:.4f}; 95 % interval of the mean {low:.4f} to "
            f"{high:.4f} (bootstrap over the rows)"
        )
    return "\n".join([*lines, *([figures["note"]] if "note" in figures else [])])
