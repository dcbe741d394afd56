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

from ..config.data_settings import TASKS
from ..errors import InputError
from .mode_options import plan_series, run_series, series_parser
from .parser import between, number


def run(argv: list[str], program: str) -> int:
    """Run the search and print the result; return the exit status, 128 + a signal that stopped it."""
    add = (parser := series_parser(program, __doc__)).add_argument
    trials = "trials of the whole search, in all its processes (default: 20)"
    add("--trials", type=number(int, between(2, 10_000)), default=20, help=trials)
    space = "a setting to search, and its values; several times for several settings"
    add("--space", nargs=2, action="append", default=[], metavar=("SETTING", "VALUES"), help=space)
    options, settings = parser.parse_known_args(argv)
    try:
        from ..runs.search import Search, read_space
    except ImportError as error:
        raise InputError(
            "python -m app tune needs Optuna: pip install -r requirements/tune.txt -c constraints.txt"
        ) from error
    from ..data.dataset import open_dataset

    series = plan_series("tune", "tune", options, settings)
    task_name = series.config.data.task
    space = read_space(dict(options.space), settings, TASKS[task_name].losses)

    def search() -> str:
        dataset = open_dataset(series.config.data)
        for split, use in (("dev", "judges the trials"), ("test", "measures the final run")):
            if split not in dataset.splits:
                raise InputError(
                    f"tune needs {split} rows: {split} {use}; give data.{split} or data.{split}_size"
                )
        chosen = series.config.train.best_metric
        metric = TASKS[task_name].metrics[0] if chosen == "auto" else chosen
        return Search(series, space, metric, options.trials).run()

    return run_series(search)
