"""Train several times, to know how good a configuration is and which labels may be wrong.

    python -m app cross-validate --folds 5 --config configs/small_bert.yaml
    python -m app cross-validate --folds 5 --mode ddp --processes 2 --data.train reviews.csv
    python -m app cross-validate --seeds 5 --config configs/small_bert.yaml

--folds tests each row of the train file once, by a model that was trained without it. It writes mean,
standard deviation, the logits of all rows (oof.parquet), and label_issues.csv (needs cleanlab). --seeds
trains one split with several seeds. The same command again continues what was interrupted. Any setting of the
trainer (--group.key) may follow.
"""

from .parser import number, series_parser


def run(argv: list[str], program: str) -> int:
    """Train the folds or seeds and print the result; return the exit status."""
    parser = series_parser(program, __doc__)
    add = parser.add_mutually_exclusive_group().add_argument
    folds = "parts of the train file; each is tested once (default: 5)"
    add("--folds", type=number(int, 2, 1000), default=5, help=folds)
    seeds = "train the same split with this many seeds, from train.seed on"
    add("--seeds", type=number(int, 2, 100), help=seeds)
    options, settings = parser.parse_known_args(argv)
    from ..runs.folds import train_folds, train_seeds
    from ..runs.series import run_series

    if count := options.seeds:
        return run_series(f"{count} seeds", options, settings, lambda series: train_seeds(series, count))
    count = options.folds
    return run_series(f"{count} folds", options, settings, lambda series: train_folds(series, count))
