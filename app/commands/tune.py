"""Search for good settings by Optuna, and say by how much the search was optimistic.

    python -m app tune --trials 20 --data.train reviews.csv
    python -m app tune --data.train reviews.csv --space train.learning_rate '[1e-5, 5e-4, log]'
    python -m app tune --data.train reviews.csv --space train.loss '[cross_entropy, focal]'

Each trial is a run that sees no test row; it is judged by train.best_metric on dev. Then one final run with
the best settings is measured on test. [1e-5, 5e-4] is a range, [1e-5, 5e-4, log] one by orders of magnitude,
[cross_entropy, focal] or [16, 32, 64] a choice; --space may come several times. Without it, learning rate,
epochs and loss are searched. The same command again continues what was interrupted, with the same trials; run
it in several terminals, and they share the trials. Needs Optuna. Any setting of the trainer (--group.key) may
follow.
"""

from ..errors import InputError
from .parser import number, series_parser


def run(argv: list[str], program: str) -> int:
    """Run the search and print the result; return the exit status, 128 + a signal that stopped it."""
    add = (parser := series_parser(program, __doc__)).add_argument
    trials = "trials of the whole search, in all its processes (default: 20)"
    add("--trials", type=number(int, 2, 10_000), default=20, help=trials)
    space = "a setting to search, and its values; several times for several settings"
    add("--space", nargs=2, action="append", default=[], metavar=("SETTING", "VALUES"), help=space)
    options, settings = parser.parse_known_args(argv)
    try:
        from ..runs.search import search
    except ImportError as error:
        remedy = "pip install -r requirements/tune.txt -c constraints.txt"
        raise InputError(f"python -m app tune needs Optuna: {remedy}") from error
    from ..runs.series import run_series

    asked, count = dict(options.space), options.trials
    return run_series("tune", options, settings, lambda series: search(series, asked, count))
