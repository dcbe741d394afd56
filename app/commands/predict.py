"""Classify texts with a trained checkpoint.

python -m app predict 今天真开心                                        with the run that finished last
python -m app predict --checkpoint checkpoints/sample-001 今天真开心 气死我了
python -m app predict --input reviews.csv --output labels.csv           a file; .txt is one text a line
cat lines.txt | python -m app predict --input - --output_format jsonl
python -m app predict --input new.csv --label_column 标签 --report out/   rows with labels: how good is it?

The output has a row for each row of the input, in its order: line (the row's number in its file), text,
text_pair where there is one, label, probability, and p_<label> for each label (of a model with several labels
a row: labels, a JSON list, and p_<label>); with --threshold or --abstain also decision and margin, or
confidence. Files are read as in the run's training: its columns, separators and encoding, unless an option
says otherwise; long texts and spaces too. Exit status: 0, 1 for a full
disk or a model that gives no numbers, 2 for bad input, 130 when interrupted, 141 when the reader of the
output is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..config.shipped import MODULE, PROGRAM
from ..data.json_values import json_layout
from ..data.label_cells import MULTI_LABEL_TASKS
from ..data.run_options import LABEL_SETTINGS
from ..errors import InputError
from ..prediction.excel import check_excel
from ..prediction.open_model import ComputeOptions, OpenedModel, open_model
from ..prediction.output import check_output, open_output, progress
from ..prediction.sources import Source, open_file, open_texts
from ..runtime.quick_imports import quick_imports
from .exit_status import exit_status, say
from .predict_options import build_parser, parse

if TYPE_CHECKING:
    # They import NumPy, which --help does without
    from ..evaluation.measures.selective import Threshold
    from ..outcomes.labelled_outcome import LabelledOutcome

PAIRS_REMEDY = "pairs are read from a file, with the columns of the run's training or --text_pair_column"
# Options that say how a file is read; where one is not given, the file is read as in the run's training
READING = ("format", "encoding", "quoting", "text_column", "text_pair_column", *LABEL_SETTINGS)


def asked_settings(args: argparse.Namespace) -> dict:
    """Return the settings of reading that the command line asks for, None for each that it does not."""
    header = None if args.header is None else args.header == "true"
    return {name: getattr(args, name) for name in READING} | {"header": header}


def count_rows(source: Source, args: argparse.Namespace) -> int | None:
    """Return the rows of a source, None for a stream; raises InputError for bad rows, unless they are
    skipped.

    Reading a file twice is cheap next to classifying it, and finds a bad last row before the first one is
    classified.
    """
    if source.is_stream:
        return None
    total = source.count(args.on_bad_row == "skip")
    if source.format == "text" and "\t" in next(source.good_rows(skip=True)).text:
        say(f"warning: {source.name} is read as plain text, and has tabs; is it a table (--format tsv)?")
    return total


def check_one_process() -> None:
    """Raise InputError where a launcher such as torchrun has started several processes: all of them would
    write the same output."""
    processes = os.environ.get("WORLD_SIZE", "1")
    if "RANK" in os.environ and processes != "1":
        raise InputError(
            f"predict runs in one process, found {processes} (WORLD_SIZE), as torchrun starts them; start it "
            "with python predict.py"
        )


def chosen_folder(args: argparse.Namespace) -> Path:
    """Return the folder of the model: as named, else that of the run that finished last."""
    if args.checkpoint:
        return Path(args.checkpoint)
    from ..prediction.recorded_settings import newest_run

    folder = newest_run()
    say(f"checkpoint {folder}")
    return folder


def open_chosen(args: argparse.Namespace, folder: Path) -> OpenedModel:
    """Return the model in `folder`, computing as the command line says."""
    compute = ComputeOptions(
        args.device, args.precision, args.batch_tokens, args.calibrate == "auto", args.runtime
    )
    with quick_imports(f"{MODULE}.prediction.torch_runtime"):
        return open_model(folder, compute)


def choose_run_threshold(folder: Path, outcome: LabelledOutcome, precision: float) -> Threshold:
    """Return the threshold for a precision, chosen on the dev rows of a run; raises InputError where there is
    none."""
    from ..evaluation.logits_file import LOGITS, read_logits
    from ..evaluation.measures.selective import choose_threshold
    from ..outcomes.outcome import FITTED_ON

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
    return choose_threshold(outcome.held_out_decisions(dev), dev.hashes, precision)


def choose_threshold(args: argparse.Namespace, opened: OpenedModel) -> float | None:
    """Return the threshold from which on rows are decided, None where they are not; says how well a chosen
    one does on other rows."""
    if args.abstain is None:
        return args.threshold
    threshold = choose_run_threshold(opened.folder, opened.predictor.outcome, args.abstain)
    say(threshold.describe(args.abstain))
    if threshold.bound < args.abstain:
        say(
            f"warning: that bound is below {args.abstain:g}; more dev rows, or a higher precision, make it "
            "surer"
        )
    return threshold.value


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def run(args: argparse.Namespace) -> None:
    """Classify what the command line asks for; raises InputError for bad input, TrainingError where it cannot
    be done."""
    from ..prediction.recorded_settings import check_pairs, recorded_settings

    check_one_process()
    folder = chosen_folder(args)
    if args.report is not None:
        report(args, folder)
        return
    recorded = recorded_settings(folder)
    if args.texts:
        source = open_texts(args.texts, recorded)
    else:
        source = open_file(args.input, recorded, asked_settings(args))
    check_pairs(folder, recorded, source.has_pairs, PAIRS_REMEDY)
    check_output(args.output, args.input)
    if args.output_format == "xlsx":
        check_excel()
    total = count_rows(source, args)
    opened = open_chosen(args, folder)
    from ..prediction.prediction_writer import PredictionWriter

    predictor = opened.predictor
    threshold = choose_threshold(args, opened)
    rows = source.good_rows(args.on_bad_row == "skip")
    shown = _is_terminal(sys.stderr) and not (args.output is None and _is_terminal(sys.stdout))
    with open_output(args.output) as file, progress(total, shown) as on_batch:
        if args.bom:
            file.write("\ufeff")
        # A person who types texts wants an answer after each line.
        predictions = predictor.predict(
            rows, on_batch=on_batch, **({"chunk_rows": 1} if source.is_terminal else {})
        )
        writer = PredictionWriter(predictor.outcome, source.has_pairs, threshold)
        writer.write(args.output_format, file, predictions)
    if args.input is not None or source.num_bad:
        say(source.summary())
    if (
        source.is_stream
        and source.format == "text"
        and source.first
        and json_layout(source.first.text, True, strict=True)
    ):
        say(
            f"warning: {source.name} was read as plain text, and looks like JSON; is it JSON Lines (--format "
            "jsonl)?"
        )


def check_label_settings(args: argparse.Namespace, opened: OpenedModel) -> None:
    """Raise InputError for options of several labels a row that do not fit together, or not the model."""
    if opened.predictor.outcome.task not in MULTI_LABEL_TASKS:
        for name in ("label_separator", "label_columns"):
            if getattr(args, name) is not None:
                raise InputError(
                    f"--{name} is for several labels a row, and {opened.folder} has one; leave it out"
                )
    elif args.label_columns is not None and (args.label_column, args.label_separator) != (None, None):
        raise InputError(
            "--label_columns is instead of --label_column and --label_separator; remove it, or these"
        )


def report(args: argparse.Namespace, model_folder: Path) -> None:
    """Classify rows with labels, and write a report on them; raises as `run` does."""
    from ..prediction.labelled_rows import check_report_folder, report_on
    from ..prediction.recorded_settings import check_pairs

    folder = check_report_folder(args.report)
    opened = open_chosen(args, model_folder)
    check_label_settings(args, opened)
    recorded = opened.recorded | {"task": opened.predictor.outcome.task}
    source = open_file(args.input, recorded, asked_settings(args), need_label=True)
    check_pairs(model_folder, opened.recorded, source.has_pairs, PAIRS_REMEDY)
    total = count_rows(source, args)
    threshold = choose_threshold(args, opened)
    with progress(total, _is_terminal(sys.stderr)) as on_batch:
        rows = source.good_rows(args.on_bad_row == "skip")
        text = report_on(opened, rows, source, folder, threshold, args.language, on_batch)
    print(text)
    say(source.summary())
    say(f"Saved in {folder}")


def main(argv: list[str], program: str = f"{PROGRAM} predict") -> int:
    """Run the command line; return the exit status."""
    description = __doc__.replace("python -m app predict", program)
    return exit_status(lambda: run(parse(build_parser(program, description), argv)))
