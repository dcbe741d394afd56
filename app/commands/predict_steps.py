"""What the verb predict does with its options: choose a model, open it, decide."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.read import LABEL_SETTINGS
from ..errors import InputError
from ..prediction.open_model import ComputeOptions, OpenedModel, open_model
from ..runtime.processes import ended_by_ctrl_c
from .exit_status import say

if TYPE_CHECKING:
    # They import NumPy, which --help does without
    from ..report.confidence import Threshold
    from ..tasks.task import Task

PAIRS_REMEDY = "pairs are read from a file, with the columns of the run's training or --text_pair_column"
# Options that say how a file is read; where one is not given, the file is read as in the run's training
READING = ("format", "encoding", "quoting", "text_column", "text_pair_column", *LABEL_SETTINGS)


def asked_settings(args: argparse.Namespace) -> dict:
    """Return the settings of reading that the command line asks for, None for each that it does not."""
    header = None if args.header is None else args.header == "true"
    return {name: getattr(args, name) for name in READING} | {"header": header}


def keeps_columns(args: argparse.Namespace) -> bool:
    """Return whether the output has the columns of the input as they are read, and not copied as Parquet."""
    return not args.only_labels and args.output_format not in ("lines", "parquet")


def chosen_folder(args: argparse.Namespace) -> Path:
    """Return the folder of the model, as named, else that of the run that finished last; tell what it is."""
    from ..prediction.choose_run import choose_run, describe_model

    folder, notes = (Path(args.checkpoint), []) if args.checkpoint else choose_run()
    known = describe_model(folder)
    for note in [*([f"model {known}"] if known else []), *notes]:
        say(note)
    return folder


def compute_options(args: argparse.Namespace) -> ComputeOptions:
    """Return on what the model computes, as the command line says."""
    return ComputeOptions(args.device, args.precision, args.batch_tokens, args.calibrate == "auto")


def open_chosen(args: argparse.Namespace, folder: Path) -> OpenedModel:
    """Return the model in `folder`, computing as the command line says."""
    with ended_by_ctrl_c():
        opened = open_model(folder, compute_options(args))
    if args.evidence is not None:
        from ..prediction.nearest_rows import NearestRows

        opened.predictor.evidence = NearestRows(opened, args.evidence)
    return opened


def choose_run_threshold(folder: Path, task: Task, precision: float) -> Threshold:
    """Return the threshold for a precision, chosen on a run's dev rows; raises InputError without these."""
    from ..report.confidence import choose_threshold
    from ..report.logits_file import LOGITS, read_logits
    from ..tasks.task import FITTED_ON

    path = folder / LOGITS
    remedy = "set --threshold yourself"
    if not path.exists():
        raise InputError(
            f"--abstain needs the logits of a run, and there is no {path}; train again, or {remedy}"
        )
    splits = read_logits(path).splits
    if FITTED_ON not in splits:
        raise InputError(f"--abstain needs a run with dev rows, and {path} has none; {remedy}")
    dev = splits[FITTED_ON]
    return choose_threshold(*task.held_out(dev.labels, dev.logits, dev.hashes), dev.hashes, precision)


def choose_threshold(args: argparse.Namespace, opened: OpenedModel) -> float | None:
    """Return the threshold for decisions, or None; say how well a chosen one does on other rows."""
    if not opened.predictor.task.has_confidence and (args.threshold, args.abstain) != (None, None):
        raise InputError("this model gives no probability; leave out --threshold and --abstain")
    if args.abstain is None:
        return args.threshold
    threshold = choose_run_threshold(opened.folder, opened.predictor.task, args.abstain)
    say(threshold.describe(args.abstain))
    if threshold.bound < args.abstain:
        say(f"warning: that bound is below {args.abstain:g}; more dev rows, or a higher precision, help")
    return threshold.value
