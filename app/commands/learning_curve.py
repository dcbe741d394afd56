"""Would more training rows help? Train 12, 25, 50 and 100 % of them, and test on the same rows.

    python -m app learning-curve --data.train reviews.csv
    python -m app learning-curve --mode ddp --processes 2 --data.train reviews.csv

Each part holds the smaller ones, and has the classes in the same proportions; dev and test rows are the same
for all. Written: the table with 95 % intervals, what the curve says in one sentence (learning_curve.txt and
.json), and a picture (learning_curve.html). The same command again continues what was interrupted. Any
setting of the trainer (--group.key) may follow.
"""

from __future__ import annotations

import argparse
import sys

from ..config.command_line import load_config
from ..config.language import spoken
from ..config.shipped import PROGRAM
from ..errors import InputError
from .exit_status import exit_status
from .mode_options import add_mode_options, plan_mode


def main(argv: list[str], program: str = f"{PROGRAM} learning-curve") -> int:
    """Run the command line; return the exit status: 2 for bad input, 1 for a run that failed, 128 + a signal
    that stopped it."""
    parser = argparse.ArgumentParser(
        program,
        description=__doc__.replace("python -m app learning-curve", program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_mode_options(parser)
    options, settings = parser.parse_known_args(argv)
    return exit_status(lambda: work(options, settings))


def work(options: argparse.Namespace, settings: list[str]) -> int:
    """Train the parts and print the curve; return the exit status."""
    config = load_config(settings)
    from ..outcomes import outcome_class

    task = config.data.task
    if not outcome_class(task).has_labels:
        raise InputError(f"learning-curve needs labels, found data.task {task}; choose another data.task")
    if config.data.train_share != 1:
        raise InputError("data.train_share is set by learning-curve; leave it out")
    planned = plan_mode(options, config)
    from ..run.many_runs.learning_curve import train_parts, write_curve
    from ..run.many_runs.series import Series, default_folder, open_series
    from ..runtime.signals import Stopped

    kind = "learning curve"
    folder = default_folder(config, kind)
    series = Series(folder, kind, planned.name, planned.processes, settings, config.output.overwrite)
    open_series(series, config)
    try:
        print(write_curve(folder, train_parts(series, config), spoken(config.output.language)))
    except Stopped as stop:
        print(f"Stopped by {stop}; the same command continues.", file=sys.stderr)
        return 128 + stop.number
    print(f"Written into {folder}")
    return 0
