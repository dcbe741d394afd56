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

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..config.data_settings import TASKS
from ..config.language import spoken
from ..config.shipped import PROGRAM
from ..errors import InputError
from .exit_status import exit_status
from .mode_options import PlannedMode, add_mode_options, plan_mode

if TYPE_CHECKING:
    from ..config.schema import Config

MAX_TRIALS = 10_000
SAMPLERS, PRUNERS = ("tpe", "gp", "random"), ("median", "halving", "none")
NEEDS_OPTUNA = "python -m app tune needs Optuna: pip install -r requirements-tune.txt -c constraints.txt"


def main(argv: list[str], program: str = f"{PROGRAM} tune") -> int:
    """Run the command line; return the exit status: 2 for bad input, 1 for a search that failed, 128 + a
    signal that stopped it."""
    parser = argparse.ArgumentParser(
        program,
        description=__doc__.replace("python -m app tune", program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--trials",
        type=int,
        default=20,
        help="trials of the whole search, in all its processes (default: 20)",
    )
    add("--space", metavar="FILE", help="YAML file of settings and their values to search")
    add("--sampler", choices=SAMPLERS, default="tpe", help="how settings are drawn (default: tpe)")
    add("--pruner", choices=PRUNERS, default="median", help="how poor trials are stopped (default: median)")
    add("--seed", type=int, default=0, help="random seed of the draws (default: 0)")
    add_mode_options(parser)
    options, settings = parser.parse_known_args(argv)
    return exit_status(
        lambda: work(options, settings), "interrupted; the same command continues with the same trials"
    )


def work(options: argparse.Namespace, words: list[str]) -> int:
    """Run the search and print the result; return the exit status."""
    from ..run.many_runs.search_space import read_space, split_words

    if not 2 <= options.trials <= MAX_TRIALS:
        raise InputError(f"--trials must be from 2 to {MAX_TRIALS:,}, found {options.trials}")
    spaces, settings = split_words(words)
    config = load_config(settings)
    check_config(config)
    path = Path(options.space) if options.space else None
    space = read_space(path, spaces, settings, TASKS[config.data.task].losses)
    planned = plan_mode(options, config)
    from ..runtime.signals import Stopped

    try:
        print(search(options, settings, config, space, planned))
    except Stopped as stop:
        print(f"Stopped by {stop}; the same command continues with the same trials.", file=sys.stderr)
        return 128 + stop.number
    return 0


def check_config(config: Config) -> None:
    """Raise InputError for settings with which nothing can be searched."""
    from ..outcomes import outcome_class

    if not outcome_class(config.data.task).has_labels:
        raise InputError(f"tune needs labels, found data.task {config.data.task}; choose another data.task")
    if config.data.folds is not None:
        raise InputError("tune needs one split into train, dev and test; leave data.folds and data.fold out")
    if not config.data.use_test:
        raise InputError("data.use_test is set by tune: only the final run is measured on test; leave it out")
    if config.output.overwrite:
        raise InputError(
            "a search is not replaced; leave output.overwrite out, and choose another output.dir"
        )


def search(
    options: argparse.Namespace, settings: list[str], config: Config, space: list, planned: PlannedMode
) -> str:
    """Run all trials and the final run; return the result as text."""
    try:
        from ..run.many_runs.search import Search, run_trials
        from ..run.many_runs.study import open_study, study_lock
    except ImportError as error:
        raise InputError(NEEDS_OPTUNA) from error
    from ..data.dataset import open_dataset
    from ..outcomes import open_outcome
    from ..run.many_runs.search_report import finish_once
    from ..run.many_runs.series import Series, default_folder, open_series

    dataset = open_dataset(config.data)
    for split, use in (("dev", "judges the trials"), ("test", "measures the final run, and chooses nothing")):
        if split not in dataset.splits:
            raise InputError(
                f"tune needs {split} rows: {split} {use}; give data.{split} or data.{split}_size"
            )
    outcome = open_outcome(config.data.task, dataset.label_names)
    metric = outcome.choose_best_metric(config.train.best_metric)
    kind = f"a search by {options.sampler}, pruner {options.pruner}, seed {options.seed}"
    folder = default_folder(config, "tune")
    series = Series(folder, kind, planned.name, planned.processes, settings)
    with study_lock(folder):
        open_series(series, config, {one.name: f"searched in {one}" for one in space})
        study = open_study(folder, metric, options.sampler, options.pruner, options.seed)
    one_search = Search(series, space, metric, options.trials, study)
    run_trials(one_search)
    return finish_once(one_search, spoken(config.output.language))
