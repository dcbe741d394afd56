"""Train several times, to know how good a configuration is and which labels may be wrong.

    python -m app cross-validate --folds 5 --config configs/small_bert.yaml
    python -m app cross-validate --folds 5 --mode ddp --processes 2 --data.train reviews.csv
    python -m app cross-validate --seeds 5 --config configs/small_bert.yaml

--folds tests each row of the train file once, by a model that was trained without it. It writes mean,
standard deviation, the logits of all rows (oof.parquet), and label_issues.csv (needs cleanlab). --seeds
trains one split with several seeds. The same command again continues what was interrupted. Any setting of the
trainer (--group.key) may follow.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..config.command_line import load_config
from ..config.schema import Config
from ..errors import InputError
from ..words import _, use_language
from .mode_options import PlannedMode, check_has_labels, plan_mode, run_series, series_parser
from .parser import between, number

if TYPE_CHECKING:
    from ..run.many_runs.series import Series


def run(argv: list[str], program: str) -> int:
    """Train the folds or seeds and print the result; return the exit status."""
    options, settings = parse(argv, program)
    config = load_config(settings)
    use_language(config.output.language)
    check_has_labels("cross-validate", config.data.task)
    planned = plan_mode(options, config)
    return run_series(lambda: train(options, settings, config, planned))


def parse(argv: list[str], program: str) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this verb, and the trainer's settings."""
    parser = series_parser(program, __doc__)
    add = parser.add_mutually_exclusive_group().add_argument
    folds = "parts of the train file; each is tested once (default: 5)"
    add("--folds", type=number(int, between(2, 1000)), default=5, help=folds)
    seeds = "train the same split with this many seeds, from train.seed on"
    add("--seeds", type=number(int, between(2, 100)), help=seeds)
    return parser.parse_known_args(argv)


def train(options: argparse.Namespace, settings: list[str], config: Config, planned: PlannedMode) -> str:
    """Train all runs, write the figures and return them as text."""
    from ..run.many_runs.series import Series, default_folder, open_series, write_figures

    kind = f"{options.seeds} seeds" if options.seeds else f"{options.folds} folds"
    folder = default_folder(config, kind)
    series = Series(folder, kind, planned.name, planned.processes, settings)
    if options.seeds:
        from ..run.many_runs.cross_validation import NAME
        from ..run.many_runs.seeds import check_seeds, render_seeds, train_seeds

        check_seeds(config)
        open_series(series, config)
        figures = train_seeds(series, config, options.seeds)
        text = render_seeds(figures)
        write_figures(folder, NAME, figures, text)
        return text
    return run_folds(series, options, config)


def run_folds(series: Series, options: argparse.Namespace, config: Config) -> str:
    """Train all folds and list the label issues; return that as text."""
    from ..report.label_issues import check_cleanlab
    from ..run.many_runs.cross_validation import (
        NAME,
        cross_validate,
        fold_datasets,
        render_folds,
        render_label_issues,
    )
    from ..run.many_runs.issue_list import ISSUES, filled_rows, list_issues
    from ..run.many_runs.series import open_series, say, write_figures

    without_labels = None
    try:
        check_cleanlab()
    except InputError as error:
        without_labels = _("There will be no label_issues.csv: {why}").format(why=error)
        say(without_labels)
    # Before hours of training
    filled_rows(series.folder / ISSUES)
    datasets = fold_datasets(config, options.folds)
    open_series(series, config)
    oof_rows, figures = cross_validate(series, datasets)
    texts = [render_folds(figures)]
    write_figures(series.folder, NAME, figures, texts[0])
    if without_labels:
        return f"{texts[0]}\n\n{without_labels}"
    figures["labels"] = list_issues(series.folder, oof_rows)
    texts.append(render_label_issues(figures["labels"], oof_rows.task))
    write_figures(series.folder, NAME, figures, "\n\n".join(texts))
    where = _("Written into {folder}").format(folder=series.folder)
    if figures["labels"]["can_judge"]:
        where += _("; what is filled in under `label` there is for --data.relabel")
    return "\n\n".join([*texts, where])
