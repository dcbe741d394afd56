"""The verbs that train a configuration several times, or compare runs; their docstrings are their helps."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..errors import InputError, needed, say, show
from .parser import Parser, number, series_parser

if TYPE_CHECKING:
    from ..runs.series import Series


def compare(argv: list[str], program: str) -> int:
    """Is run B better than run A? Both must have been evaluated on the same rows.

    python -m app compare checkpoints/sample-001 checkpoints/sample-002
    python -m app compare checkpoints/sample-001 checkpoints/sample-002 checkpoints/sample-003

    Each run is compared with the first one: the differences of accuracy, macro F1 and loss with their 95 %
    paired bootstrap intervals; how many rows it has won and lost; and the p-value of McNemar's exact test.
    Other values of data.task have other metrics: of several labels a row micro F1, macro F1, samples F1,
    subset accuracy and loss, and a row is right where all its labels are; of numbers the errors, the
    correlations and loss, and a row is right where it is at most half a standard deviation of these rows off.
    The differences do not contain the variance of random seeds. Exit status: 0, 1 if standard output cannot
    be written, 2 for bad input.
    """
    parser = Parser(program, compare.__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    first, *others = parser.parse_args(argv).runs
    if not others:
        raise InputError(f"two or more runs are needed, found {first} only")
    from ..runs.comparison import compare_runs

    texts = [compare_runs(first, later_run) for later_run in others]
    return show("\n\n".join(texts) + "\n")


def cross_validate(argv: list[str], program: str) -> int:
    """Train several times, to know how good a configuration is and which labels may be wrong.

    python -m app cross-validate --folds 5 --config configs/small_bert.yaml
    python -m app cross-validate --folds 5 --mode ddp --processes 2 --data.train reviews.csv
    python -m app cross-validate --seeds 5 --config configs/small_bert.yaml

    --folds tests each row of the train file once, by a model that was trained without it. It writes mean,
    standard deviation, the logits of all rows (oof.parquet), and label_issues.csv (needs cleanlab). --seeds
    trains one split with several seeds. The same command again continues what was interrupted. Any setting of
    the trainer (--group.key) may follow.
    """
    parser = series_parser(program, cross_validate.__doc__)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--folds",
        type=number(int, 2, 1000),
        default=5,
        help="parts of the train file; each is tested once (default: 5)",
    )
    group.add_argument(
        "--seeds",
        type=number(int, 2, 100),
        help="train the same split with this many seeds, from train.seed on",
    )
    options, settings = parser.parse_known_args(argv)
    from ..runs.cross_validation import train_folds
    from ..runs.seeds import train_seeds

    if options.seeds:
        description = f"{options.seeds} seeds"
        train = partial(train_seeds, num_seeds=options.seeds)
    else:
        description = f"{options.folds} folds"
        train = partial(train_folds, num_folds=options.folds)
    return train_series(description, options, settings, train)


def train_series(
    description: str, options: argparse.Namespace, settings: list[str], train: Callable[[Series], str]
) -> int:
    """Train the runs of a verb with its `options`, which `series_parser` has read; see `run_series`."""
    from ..runs.series import run_series

    return run_series(
        description,
        mode=options.mode,
        processes=options.processes,
        settings=settings,
        train=train,
        overwrite=options.overwrite,
    )


def learning_curve(argv: list[str], program: str) -> int:
    """Would more training rows help? Train 12, 25, 50 and 100 % of them, and test on the same rows.

    python -m app learning-curve --data.train reviews.csv
    python -m app learning-curve --mode ddp --processes 2 --data.train reviews.csv

    Each part holds the smaller ones, and has the classes in the same proportions; dev and test rows are the
    same for all. Written: the table with 95 % intervals, and what the curve says in one sentence
    (learning_curve.txt and .json). The same command again continues what was interrupted. Any setting of the
    trainer (--group.key) may follow.
    """
    parser = series_parser(program, learning_curve.__doc__)
    options, settings = parser.parse_known_args(argv)
    from ..runs.learning_curve import train_shares

    return train_series("learning curve", options, settings, train_shares)


def tune(argv: list[str], program: str) -> int:
    """Search for good settings by Optuna, and say by how much the search was optimistic.

    python -m app tune --trials 20 --data.train reviews.csv
    python -m app tune --data.train reviews.csv --space train.learning_rate '[1e-5, 5e-4, log]'
    python -m app tune --data.train reviews.csv --space train.loss '[cross_entropy, focal]'

    Each trial is a run that sees no test row; it is judged by train.best_metric on dev. Then one final run
    with the best settings is measured on test. [1e-5, 5e-4] is a range, [1e-5, 5e-4, log] one by orders of
    magnitude, [cross_entropy, focal] or [16, 32, 64] a choice; --space may come several times. Without it,
    learning rate, epochs and loss are searched. The same command again continues what was interrupted, with
    the same trials; run it in several terminals, and they share the trials. Needs Optuna. Any setting of the
    trainer (--group.key) may follow.
    """
    parser = series_parser(program, tune.__doc__)
    parser.add_argument(
        "--trials",
        type=number(int, 2, 10_000),
        default=20,
        help="trials of the whole search, in all its processes (default: 20)",
    )
    parser.add_argument(
        "--space",
        nargs=2,
        action="append",
        default=[],
        metavar=("SETTING", "VALUES"),
        help="a setting to search, and its values; several times for several settings",
    )
    options, settings = parser.parse_known_args(argv)
    with needed("tune"):
        from ..runs.search import search

    train = partial(search, asked=dict(options.space), num_trials=options.trials)
    return train_series("tune", options, settings, train)


def verify(argv: list[str], program: str) -> int:
    """Verify that all modes train the same model, or that a device computes what the CPU computes.

    python -m app verify
    python -m app verify --modes ddp fsdp --processes 3 --config configs/weibo_emotion6.yaml --steps 20
    python -m app verify --device npu

    Each mode that this machine can run trains the same steps, with dropout, in real processes; losses, the
    last gradients, weights and logits are compared with those of one process: the L2 norm of the difference,
    divided by that of the values. All is computed in float64, where rounding is near 1e-15 and a difference
    of up to 1e-9 passes. In other precisions, and for DeepSpeed, which has no float64, one process also
    trains with the rows added up in another order; a mode may differ 10 times as much as this control, and
    losses and logits in 16 bits by the rounding of one state (bf16 0.004, fp16 0.0005). On CUDA dropout is
    then off, because kernels for attention draw their own masks. The line "other masks" is one process whose
    masks of dropout are not those of the rows, and must differ.
    --device compares a device with the CPU in the same way, in fp32 and one process. Exit status 1 if any
    mode fails. Any setting of the trainer (--group.key) may follow.
    """
    options, settings = _verify_parser(program).parse_known_args(argv)
    config = load_config(settings)
    if options.worker:
        from ..runs.verify_training import start_worker

        return start_worker(config, options.steps, options.worker, options.nprocs)
    from ..modes import MODES
    from ..runs.verify import comparison_table, verify_device, verify_modes

    for note in config.notes:
        say(note)
    if options.device:
        comparisons = verify_device(options.device, options.steps, settings)
    else:
        comparisons = verify_modes(
            names=options.modes or list(MODES),
            processes=options.processes,
            precision=options.precision,
            steps=options.steps,
            settings=settings,
            config=config,
        )
    status = show(comparison_table(comparisons) + "\n")
    has_failed = any(comparison.verdict == "FAIL" for comparison in comparisons)
    return 1 if has_failed else status


def _verify_parser(program: str) -> Parser:
    parser = Parser(program, verify.__doc__)
    add = parser.add_argument
    add("--modes", nargs="+", metavar="MODE", help="modes to run (default: all)")
    add(
        "--processes",
        type=number(int, 1),
        help="processes of the parallel modes (default: accelerators, or 2)",
    )
    add("--steps", type=number(int, 1), default=3, help="optimizer steps of each mode (default: 3)")
    add(
        "--precision",
        choices=["float64", "fp32", "bf16", "fp16"],
        default="float64",
        help="precision of all modes (default: float64, and fp32 for modes that do not have it)",
    )
    add("--device", help="compare this device with the CPU: cuda, npu, xpu, mps or cuda:1, ...")
    # These are for a worker: its mode, the folder for its results and its trainings; its number of processes
    add("--worker", nargs="+", help=argparse.SUPPRESS)
    add("--nprocs", type=int, help=argparse.SUPPRESS)
    return parser
