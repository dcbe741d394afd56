"""Would more training rows help? Train 12, 25, 50 and 100 % of them, and test on the same rows.

    python -m app learning-curve --data.train reviews.csv
    python -m app learning-curve --mode ddp --processes 2 --data.train reviews.csv

Each part holds the smaller ones, and has the classes in the same proportions; dev and test rows are the same
for all. Written: the table with 95 % intervals, and what the curve says in one sentence (learning_curve.txt
and .json). The same command again continues what was interrupted. Any setting of the trainer (--group.key)
may follow.
"""

from .parser import series_parser


def run(argv: list[str], program: str) -> int:
    """Train the parts and print the curve; return the exit status."""
    options, settings = series_parser(program, __doc__).parse_known_args(argv)
    from ..runs.folds import train_shares
    from ..runs.series import run_series

    return run_series("learning curve", options, settings, train_shares)
