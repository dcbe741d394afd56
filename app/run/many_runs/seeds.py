"""The same split with several seeds: their spread, kept apart from the error of sampling the test rows."""

from dataclasses import replace

from ...config.language import say, spoken
from ...config.schema import Config
from ...data.dataset import open_dataset
from ...evaluation.text_table import text_table
from ...outcomes.metrics import BY_KEY
from ...outcomes.resampling import seed_variance
from .cross_validation import SENTENCES, note_of
from .series import Series, scores_of_runs

# English and Chinese
WORDS = {
    "seed": ("seed {0}", "种子 {0}"),
    "seeds": ("{0} seeds, the same {1:,} rows of {2}", "{0} 个种子，{2} 的相同 {1:,} 行"),
    "spread": (
        "{0}: another seed moves it by ±{seed_standard_deviation:.4f} (standard deviation of a single run, "
        "same rows)\n  other test rows move the mean by ±{sampling_standard_deviation:.4f}; 95 % interval of "
        "the mean {low:.4f} to {high:.4f} (bootstrap over the rows)",
        "{0}：换一个种子变动 ±{seed_standard_deviation:.4f}（同样的行，单次训练的标准差）\n"
        "  换一批测试样本，平均值变动 ±{sampling_standard_deviation:.4f}；平均值的 95% 区间 {low:.4f} 到 "
        "{high:.4f}（对行做自助法）",
    ),
}


def check_seeds(config: Config) -> None:
    """Raise InputError for data that cannot be opened, before anything is trained."""
    open_dataset(replace(config.data, folds=None, fold=None))


def train_seeds(series: Series, config: Config, count: int) -> dict:
    """Train the configuration with `count` seeds from train.seed on; return the figures as JSON has them."""
    seeds = [config.train.seed + number for number in range(count)]
    for seed in seeds:
        series.run(f"seed-{seed}", ["--train.seed", str(seed)])
    outcome, name, num_rows, scores = scores_of_runs(series.folder, [f"seed-{seed}" for seed in seeds])
    language = spoken(config.output.language)
    return note_of(outcome, language, "dev_rows_above" if name == "dev" else None) | {
        "seeds": seeds,
        "split": name,
        "rows": num_rows,
        **seed_variance(outcome, scores),
    }


def render_seeds(figures: dict, language: str = "en") -> str:
    """Return the figures as text."""
    keys = [key for key in figures if key in BY_KEY]
    names = {key: BY_KEY[key].name(language) for key in keys}
    rows = [
        [say(WORDS, language, "seed", seed), *(f"{figures[key]['values'][at]:.4f}" for key in keys)]
        for at, seed in enumerate(figures["seeds"])
    ]
    rows.append([say(SENTENCES, language, "mean"), *(f"{figures[key]['mean']:.4f}" for key in keys)])
    lines = [
        say(WORDS, language, "seeds", len(rows) - 1, figures["rows"], figures["split"]),
        text_table(["", *names.values()], rows),
        "",
    ]
    for key in keys:
        low, high = figures[key]["sampling_interval"]
        lines.append(say(WORDS, language, "spread", names[key], low=low, high=high, **figures[key]))
    return "\n".join([*lines, *([figures["note"]] if "note" in figures else [])])
