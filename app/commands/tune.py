"""Search for good settings by Optuna, and say by how much the search was optimistic.

    python -m app tune --trials 20 --data.train reviews.csv
    python -m app tune --data.train reviews.csv --space.train.learning_rate '[1e-5, 5e-4, log]'
    python -m app tune --data.train reviews.csv --space space.yaml --pruner none

Each trial is a run that sees no test row; it is judged by train.best_metric on dev. Then one final run with
the best settings is measured on test. [1e-5, 5e-4] is a range, [1e-5, 5e-4, log] one by orders of magnitude,
[cross_entropy, focal] a choice, [16, 32, choice] a choice of two numbers. Without a space, learning rate,
epochs and loss are searched. The same command again continues what was interrupted, with the same trials; run
it in several terminals, and they share the trials. Needs Optuna. Any setting of the trainer (--group.key) may
follow.
"""

from pathlib import Path

from ..config.data_settings import TASKS
from ..errors import InputError
from .mode_options import plan_series, run_series, series_parser
from .parser import between, number

CONTINUES = "the same command continues with the same trials"
INTERRUPTED = f"interrupted; {CONTINUES}"
NEEDS_OPTUNA = "python -m app tune needs Optuna: pip install -r requirements/tune.txt -c constraints.txt"
USES = {"dev": "judges the trials", "test": "measures the final run, and chooses nothing"}


def run(argv: list[str], program: str) -> int:
    """Run the search and print the result; return the exit status, 128 + a signal that stopped it."""
    add = (parser := series_parser(program, __doc__)).add_argument
    trials = "trials of the whole search, in all its processes (default: 20)"
    add("--trials", type=number(int, between(2, 10_000)), default=20, help=trials)
    add("--space", type=Path, metavar="FILE", help="YAML file of settings and their values to search")
    pruner = "whether trials that are below the median of the others are stopped (default: median)"
    add("--pruner", choices=["median", "none"], default="median", help=pruner)
    options, words = parser.parse_known_args(argv)
    try:
        from ..runs.search_space import read_space, split_words
    except ImportError as error:
        raise InputError(NEEDS_OPTUNA) from error

    spaces, settings = split_words(words)
    series = plan_series("tune", "tune", options, settings)
    task_name = series.config.data.task
    space = read_space(options.space, spaces, settings, TASKS[task_name].losses)

    def search() -> str:
        from ..data.dataset import open_dataset
        from ..runs.search import Search

        dataset = open_dataset(series.config.data)
        for split, use in USES.items():
            if split not in dataset.splits:
                raise InputError(
                    f"tune needs {split} rows: {split} {use}; give data.{split} or data.{split}_size"
                )
        chosen = series.config.train.best_metric
        metric = TASKS[task_name].metrics[0] if chosen == "auto" else chosen
        return Search(series, space, metric, options.trials, options.pruner).run()

    return run_series(search, CONTINUES)
