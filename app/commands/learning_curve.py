"""Would more training rows help? Train 12, 25, 50 and 100 % of them, and test on the same rows.

    python -m app learning-curve --data.train reviews.csv
    python -m app learning-curve --mode ddp --processes 2 --data.train reviews.csv

Each part holds the smaller ones, and has the classes in the same proportions; dev and test rows are the same
for all. Written: the table with 95 % intervals, and what the curve says in one sentence (learning_curve.txt
and .json). The same command again continues what was interrupted. Any setting of the trainer (--group.key)
may follow.
"""

from ..config.command_line import load_config
from ..words import use_language
from .mode_options import check_has_labels, plan_mode, run_series, series_parser


def run(argv: list[str], program: str) -> int:
    """Train the parts and print the curve; return the exit status."""
    options, settings = series_parser(program, __doc__).parse_known_args(argv)
    config = load_config(settings)
    use_language(config.output.language)
    check_has_labels("learning-curve", config.data.task)
    planned = plan_mode(options, config)
    from ..runs.folds import render_shares, train_shares
    from ..runs.series import Series, default_folder, open_series, write_figures

    kind = "learning curve"
    folder = default_folder(config, kind)
    series = Series(folder, kind, planned.name, planned.processes, settings)
    open_series(series, config)

    def train() -> str:
        figures = train_shares(series, config)
        text = render_shares(figures)
        write_figures(folder, "learning_curve", figures, text)
        return f"{text}\nWritten into {folder}"

    return run_series(train)
