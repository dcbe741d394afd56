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

import argparse
from pathlib import Path

from ..config.command_line import load_config
from ..config.data_settings import TASKS
from ..config.schema import Config
from ..errors import InputError
from ..words import use_language
from .mode_options import PlannedMode, check_has_labels, plan_mode, run_series, series_parser
from .parser import between, number

SAMPLERS, PRUNERS = ("tpe", "gp", "random"), ("median", "halving", "none")
CONTINUES = "the same command continues with the same trials"
INTERRUPTED = f"interrupted; {CONTINUES}"
NEEDS_OPTUNA = "python -m app tune needs Optuna: pip install -r requirements/tune.txt -c constraints.txt"


def run(argv: list[str], program: str) -> int:
    """Run the search and print the result; return the exit status, 128 + a signal that stopped it."""
    parser = series_parser(program, __doc__)
    add, trials = parser.add_argument, "trials of the whole search, in all its processes (default: 20)"
    add("--trials", type=number(int, between(2, 10_000)), default=20, help=trials)
    add("--space", type=Path, metavar="FILE", help="YAML file of settings and their values to search")
    add("--sampler", choices=SAMPLERS, default="tpe", help="how settings are drawn (default: tpe)")
    add("--pruner", choices=PRUNERS, default="median", help="how poor trials are stopped (default: median)")
    add("--seed", type=int, default=0, help="random seed of the draws (default: 0)")
    options, words = parser.parse_known_args(argv)
    try:
        from ..runs.search_space import read_space, split_words
    except ImportError as error:
        raise InputError(NEEDS_OPTUNA) from error

    spaces, settings = split_words(words)
    config = load_config(settings)
    use_language(config.output.language)
    check_has_labels("tune", config.data.task)
    space = read_space(options.space, spaces, settings, TASKS[config.data.task].losses)
    planned = plan_mode(options, config)
    return run_series(lambda: search(options, settings, config, space, planned), CONTINUES)


def search(
    options: argparse.Namespace, settings: list[str], config: Config, space: dict, planned: PlannedMode
) -> str:
    """Run all trials and the final run; return the result as text."""
    from ..data.dataset import open_dataset
    from ..runs.search import Search, run_search
    from ..runs.series import Series, default_folder
    from ..tasks import open_task

    dataset = open_dataset(config.data)
    for split, use in (("dev", "judges the trials"), ("test", "measures the final run, and chooses nothing")):
        if split not in dataset.splits:
            raise InputError(
                f"tune needs {split} rows: {split} {use}; give data.{split} or data.{split}_size"
            )
    task = open_task(config.data.task, dataset.label_names)
    metric = task.choose_best_metric(config.train.best_metric)
    kind = f"a search by {options.sampler}, pruner {options.pruner}, seed {options.seed}"
    series = Series(default_folder(config, "tune"), kind, planned.name, planned.processes, settings)
    drawn = (options.sampler, options.pruner, options.seed)
    return run_search(Search(series, space, metric, options.trials, *drawn), config)
