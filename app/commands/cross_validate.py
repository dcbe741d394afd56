"""Train several times, to know how good a configuration is and which labels may be wrong.

    python -m app cross-validate --folds 5 --config configs/small_bert.yaml
    python -m app cross-validate --folds 5 --mode ddp --processes 2 --data.train reviews.csv
    python -m app cross-validate --seeds 5 --config configs/small_bert.yaml

--folds tests each row of the train file once, by a model that was trained without it. It writes mean,
standard deviation, the logits of all rows (oof.parquet), and label_issues.csv (needs cleanlab). --seeds
trains one split with several seeds. The same command again continues what was interrupted. Any setting of the
trainer (--group.key) may follow.
"""

import argparse

from ..config.command_line import load_config
from ..config.schema import Config
from ..errors import InputError
from ..words import _, use_language
from .mode_options import PlannedMode, check_has_labels, plan_mode, run_series, series_parser
from .parser import between, number

NAME = "cross_validation"


def run(argv: list[str], program: str) -> int:
    """Train the folds or seeds and print the result; return the exit status."""
    parser = series_parser(program, __doc__)
    add = parser.add_mutually_exclusive_group().add_argument
    folds = "parts of the train file; each is tested once (default: 5)"
    add("--folds", type=number(int, between(2, 1000)), default=5, help=folds)
    seeds = "train the same split with this many seeds, from train.seed on"
    add("--seeds", type=number(int, between(2, 100)), help=seeds)
    options, settings = parser.parse_known_args(argv)
    config = load_config(settings)
    use_language(config.output.language)
    check_has_labels("cross-validate", config.data.task)
    planned = plan_mode(options, config)
    work = train_seeds if options.seeds else train_folds
    return run_series(lambda: work(options, settings, config, planned))


def train_seeds(
    options: argparse.Namespace, settings: list[str], config: Config, planned: PlannedMode
) -> str:
    """Train all seeds, write the figures and return them as text."""
    from ..data.dataset import open_dataset
    from ..runs import folds
    from ..runs.series import Series, default_folder, open_series, write_figures

    kind = f"{options.seeds} seeds"
    series = Series(default_folder(config, kind), kind, planned.name, planned.processes, settings)
    # Data that cannot be opened is an error before anything is trained
    open_dataset(config.data)
    open_series(series, config)
    figures = folds.train_seeds(series, config, options.seeds)
    text = folds.render_seeds(figures)
    write_figures(series.folder, NAME, figures, text)
    return text


def train_folds(
    options: argparse.Namespace, settings: list[str], config: Config, planned: PlannedMode
) -> str:
    """Train all folds, list the label issues, write the figures and return them as text."""
    from ..report.label_issues import check_cleanlab, render_issues
    from ..runs import folds
    from ..runs.issue_list import ISSUES, filled_rows, list_issues
    from ..runs.series import Series, default_folder, open_series, say, write_figures

    kind = f"{options.folds} folds"
    series = Series(default_folder(config, kind), kind, planned.name, planned.processes, settings)
    issues, without_labels = series.folder / ISSUES, None
    try:
        check_cleanlab()
    except InputError as error:
        without_labels = _("There will be no label_issues.csv: {why}").format(why=error)
        say(without_labels)
    # Before hours of training
    filled_rows(issues)
    datasets = folds.fold_datasets(config, options.folds)
    open_series(series, config)
    oof_rows = folds.train_folds(series, datasets)
    figures = folds.fold_figures(oof_rows)
    texts = [folds.render_folds(figures)]
    write_figures(series.folder, NAME, figures, texts[0])
    if without_labels:
        return f"{texts[0]}\n\n{without_labels}"
    figures["labels"] = list_issues(issues, oof_rows)
    texts.append(render_issues(figures["labels"], oof_rows.task))
    write_figures(series.folder, NAME, figures, "\n\n".join(texts))
    where = _("Written into {folder}").format(folder=series.folder)
    if figures["labels"]["can_judge"]:
        where += _("; what is filled in under `label` there is for --data.relabel")
    return "\n\n".join([*texts, where])
