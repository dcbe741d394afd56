"""The same split with several seeds: the spread of the seeds, kept apart from the error of sampling the test
rows."""

from __future__ import annotations

from dataclasses import replace

from ...config.schema import Config
from ...data.dataset import open_dataset
from ...errors import InputError
from ...evaluation.comparison import check_same_rows
from ...evaluation.logits_file import LOGITS, read_logits
from ...evaluation.text_table import text_table
from ..comparing import SPLITS
from .outcomes import NAMES, outcomes_of
from .series import Series


def check_seeds(config: Config) -> None:
    """Raise InputError for data that cannot be opened, before anything is trained."""
    open_dataset(replace(config.data, folds=None, fold=None))


def train_seeds(series: Series, config: Config, count: int) -> dict:
    """Train the configuration with `count` seeds from train.seed on; return the figures as JSON has them."""
    seeds = [config.train.seed + number for number in range(count)]
    parts = []
    for seed in seeds:
        series.run(f"seed-{seed}", ["--train.seed", str(seed)])
    for seed in seeds:
        splits, names = read_logits(series.path(f"seed-{seed}") / LOGITS)
        name = next(name for name in SPLITS if name in splits)
        parts.append(splits[name])
        try:
            check_same_rows(parts[0], parts[-1])
        except InputError as error:
            raise InputError(f"{series.folder}: seed-{seeds[0]}, seed-{seed}: {error}") from error
    outcomes = outcomes_of(parts[0].labels)
    predicted = [
        outcomes.predict(part, series.path(f"seed-{seed}"), names)
        for seed, part in zip(seeds, parts, strict=True)
    ]
    spreads = outcomes.spread(parts[0].labels, predicted, len(names))
    same = (
        " These are the rows above; a test file or data.test_size gives figures of other rows."
        if name == "dev"
        else ""
    )
    return ({"note": outcomes.note + same} if outcomes.note else {}) | {
        "seeds": seeds,
        "split": name,
        "rows": len(parts[0]),
        **{key: one.to_dict() for key, one in spreads.items()},
    }


def render_seeds(figures: dict) -> str:
    """Return the figures as text."""
    keys = [key for key in figures if key in NAMES]
    rows = [
        [f"seed {seed}", *(f"{figures[key]['values'][at]:.4f}" for key in keys)]
        for at, seed in enumerate(figures["seeds"])
    ]
    rows.append(["mean", *(f"{figures[key]['mean']:.4f}" for key in keys)])
    lines = [f"{len(rows) - 1} seeds, the same {figures['rows']:,} rows of {figures['split']}"]
    lines += [text_table(["", *(NAMES[key] for key in keys)], rows), ""]
    for key in keys:
        spread, (low, high) = figures[key], figures[key]["sampling_interval"]
        lines.append(
            f"{NAMES[key]}: another seed moves it by ±{spread['seed_standard_deviation']:.4f} (standard "
            "deviation of a single run, "
            f"same rows)\n  other test rows move the mean by ±{spread['sampling_standard_deviation']:.4f}; "
            "95 % interval of the mean "
            f"{low:.4f} to {high:.4f} (bootstrap over the rows)"
        )
    return "\n".join([*lines, *([figures["note"]] if "note" in figures else [])])
