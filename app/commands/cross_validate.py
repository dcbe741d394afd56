"""Train several times, to know how good a configuration is and which labels may be wrong.

    python -m app cross-validate --folds 5 --config configs/small_bert.yaml
    python -m app cross-validate --folds 5 --mode ddp --processes 2 --data.train reviews.csv
    python -m app cross-validate --seeds 5 --config configs/small_bert.yaml

--folds tests each row of the train file once, by a model that was trained without it. It writes mean,
standard deviation, the logits of all rows (oof.parquet), and label_issues.csv (needs cleanlab). To say how
good that list is, it makes the labels of 5 % of the rows wrong at random, in a second pass over as many folds
as test 100 such rows; --injected_errors 0 leaves that out. --seeds trains one split with several seeds. The
same command again continues what was interrupted. Any setting of the trainer (--group.key) may follow.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..config.shipped import PROGRAM
from ..errors import InputError
from .exit_status import exit_status
from .mode_options import PlannedMode, add_mode_options, plan_mode

if TYPE_CHECKING:
    from ..config.schema import Config
    from ..run.many_runs.series import Series

MAX_SEEDS = 100
MAX_INJECTED = 0.5


def main(argv: list[str], program: str = f"{PROGRAM} cross-validate") -> int:
    """Run the command line; return the exit status: 2 for bad input, 1 for a run that failed, 128 + a signal
    that stopped it."""
    options, settings = parse(argv, program)
    return exit_status(lambda: work(options, settings))


def work(options: argparse.Namespace, settings: list[str]) -> int:
    """Train the folds or seeds and print the result; return the exit status."""
    check_options(options)
    config = load_config(settings)
    check_config(config)
    planned = plan_mode(options, config)
    from ..runtime.signals import Stopped

    try:
        print(run(options, settings, config, planned))
    except Stopped as stop:
        print(f"Stopped by {stop}; the same command continues.", file=sys.stderr)
        return 128 + stop.number
    return 0


def parse(argv: list[str], program: str) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this verb, and the trainer's settings."""
    description = __doc__.replace("python -m app cross-validate", program)
    parser = argparse.ArgumentParser(
        program,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--folds", type=int, help="parts of the train file; each is tested once (default: 5)")
    kinds.add_argument(
        "--seeds", type=int, help="train the same split with this many seeds, from train.seed on"
    )
    add_mode_options(parser)
    add(
        "--injected_errors",
        type=float,
        default=0.05,
        metavar="FRACTION",
        help="rows whose label is made wrong in the second pass (default: 0.05)",
    )
    return parser.parse_known_args(argv)


def check_options(options: argparse.Namespace) -> None:
    """Raise InputError for numbers out of range."""
    if options.folds is None and options.seeds is None:
        options.folds = 5
    for name, count, most in (("folds", options.folds, 1000), ("seeds", options.seeds, MAX_SEEDS)):
        if count is not None and not 2 <= count <= most:
            raise InputError(f"--{name} must be from 2 to {most:,}, found {count}")
    if not 0 <= options.injected_errors <= MAX_INJECTED:
        raise InputError(
            f"--injected_errors must be a fraction from 0 to {MAX_INJECTED}, found {options.injected_errors}"
        )


def check_config(config: Config) -> None:
    """Raise InputError for a task or settings that do not fit."""
    from ..outcomes import outcome_class

    task = config.data.task
    if not outcome_class(task).has_labels:
        raise InputError(f"cross-validate needs labels, found data.task {task}; choose another data.task")
    if config.data.folds is not None:
        raise InputError(
            "data.folds and data.fold are set by cross-validate; leave them out and give --folds"
        )


def run(options: argparse.Namespace, settings: list[str], config: Config, planned: PlannedMode) -> str:
    """Train all runs, write the figures and return them as text."""
    from ..run.many_runs.series import Series, default_folder, open_series

    kind = f"{options.seeds} seeds" if options.seeds else f"{options.folds} folds"
    folder = default_folder(config, kind)
    series = Series(folder, kind, planned.name, planned.processes, settings, config.output.overwrite)
    if options.seeds:
        from ..run.many_runs.cross_validation import write_figures
        from ..run.many_runs.seeds import check_seeds, render_seeds, train_seeds

        check_seeds(config)
        open_series(series, config)
        figures = train_seeds(series, config, options.seeds)
        text = render_seeds(figures)
        write_figures(folder, figures, text)
        return text
    return run_folds(series, options, config)


def run_folds(series: Series, options: argparse.Namespace, config: Config) -> str:
    """Train all folds, list the label issues and measure how good the list is; return what was found as
    text."""
    from ..outcomes.label_issues import check_cleanlab
    from ..run.many_runs.cross_validation import (
        cross_validate,
        fold_datasets,
        render_folds,
        render_injected,
        render_label_issues,
        write_figures,
    )
    from ..run.many_runs.label_issues import list_issues, measure_ranking
    from ..run.many_runs.series import open_series, say

    without_labels = None
    try:
        check_cleanlab()
    except InputError as error:
        without_labels = f"There will be no label_issues.csv: {error}"
        say(without_labels)
    datasets = fold_datasets(config, options.folds)
    open_series(series, config)
    found, figures = cross_validate(series, datasets)
    texts = [render_folds(figures)]
    write_figures(series.folder, figures, texts[0])
    if without_labels:
        return f"{texts[0]}\n\n{without_labels}"
    figures["labels"] = list_issues(series.folder, found)
    texts.append(render_label_issues(figures["labels"], found.outcome))
    if options.injected_errors and figures["labels"]["can_judge"]:
        result, folds = measure_ranking(series, config, datasets, found, options.injected_errors)
        figures["injected_errors"] = result | {"fraction": options.injected_errors, "folds": folds}
        texts.append(render_injected(result, options.injected_errors, folds))
    write_figures(series.folder, figures, "\n\n".join(texts))
    fixes = "; what is filled in under `label` there is for --data.relabel"
    where = f"Written into {series.folder}{fixes if figures['labels']['can_judge'] else ''}"
    return "\n\n".join([*texts, where])
