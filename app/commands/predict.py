"""Classify texts with a trained checkpoint.

python -m app predict 今天真开心                                        with the run that finished last
python -m app predict --checkpoint checkpoints/sample-001 今天真开心 气死我了
python -m app predict --input reviews.csv --output labels.csv           a file; one that ends in .txt is one text a line
cat lines.txt | python -m app predict --input - --output_format jsonl
python -m app predict --input new.csv --label_column 标签 --report out/   rows with labels: how good is the model on them?

The output has a row for each row of the input, in its order: line (the row's number in its file), text,
text_pair where there is one, label, probability, and p_<label> for each label (of a model with any number of
labels a row: labels, a JSON list, and p_<label>); with --threshold or --abstain also decision and margin, or
confidence. Long texts are read, and spaces removed, as in the run's training. Exit status: 0, 1 for a full
disk or a model that gives no numbers, 2 for bad input, 130 when interrupted, 141 when the reader of the
output is gone.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ..config.shipped import MODULE, PROGRAM
from ..data.json_values import json_layout
from ..data.readers import LabelSetOptions, ReadOptions
from ..errors import InputError, TrainingError
from ..prediction.excel import check_excel
from ..prediction.exported_model import is_exported
from ..prediction.open_model import ComputeOptions, OpenedModel, open_model
from ..prediction.output import WRITERS, check_output, open_output, progress
from ..prediction.sources import Source, open_file, open_texts
from ..runtime.quick_imports import quick_imports
from .predict_options import build_parser, find_input_format, parse

if TYPE_CHECKING:
    from ..prediction.label_sets import Abstention
    from ..prediction.predictor import Predictor

# Messages of the reading code have the trainer's names of settings; here the names have no group.
TRAINER_NAMES = re.compile(
    r"(?<![\w./-])(?:--)?(?:data|train)\.(format|encoding|quoting|header|text_column|text_pair_column|label_columns?|label_separator|device)\b"
)


def open_source(args: argparse.Namespace, label_sets: dict | None = None) -> Source:
    """Return the rows that the command line asks for; `label_sets` are the settings of rows with any number
    of labels."""
    if args.texts:
        return open_texts(args.texts)
    header = None if args.header is None else args.header == "true"
    columns = {"text_column": args.text_column, "text_pair_column": args.text_pair_column, "header": header}
    columns["label_column"] = args.label_column
    how = {"encoding": args.encoding, "quoting": args.quoting} | columns
    options = (
        ReadOptions(args.format, **how)
        if label_sets is None
        else LabelSetOptions(args.format, **how, **label_sets)
    )
    return open_file(args.input, options, need_label=args.report is not None)


def say(message: object) -> None:
    """Print a message on standard error, with the names that settings have here; nothing where it is closed
    or full."""
    if sys.stderr is None:
        return
    text = str(message).encode(errors="backslashreplace").decode().replace(" and --data.label_column", "")
    with suppress(OSError):
        print(TRAINER_NAMES.sub(r"--\1", text), file=sys.stderr)


def count_rows(source: Source, args: argparse.Namespace) -> int | None:
    """Return the rows of a source, None for a stream; raises InputError for bad rows, unless they are
    skipped.

    Reading a file twice is cheap next to classifying it, and finds a bad last row before the first one is
    classified.
    """
    if source.is_stream:
        return None
    total = source.count(args.on_bad_row == "skip")
    if args.format == "text" and "\t" in next(source.good_rows(False, skip=True)).text:
        say(f"warning: {source.name} is read as plain text, and has tabs; is it a table (--format tsv)?")
    return total


def open_chosen(args: argparse.Namespace) -> OpenedModel:
    """Return the model of the chosen checkpoint."""
    folder = Path(args.checkpoint) if args.checkpoint else None
    compute = ComputeOptions(
        args.device, args.precision, args.batch_tokens, args.calibrate == "auto", args.runtime
    )
    with quick_imports(f"{MODULE}.prediction.torch_runtime"):
        opened = open_model(folder, compute)
    if not args.checkpoint:
        say(f"checkpoint {opened.folder}")
    has_pairs = args.text_pair_column is not None
    if opened.has_pairs is not None and has_pairs != opened.has_pairs:
        trained, given = ("single texts", "pairs") if has_pairs else ("pairs", "single texts")
        say(f"warning: {opened.folder} was trained on {trained}, and these are {given} (--text_pair_column)")
    return opened


def choose_threshold(args: argparse.Namespace, opened: OpenedModel) -> float | None:
    """Return the threshold from which on rows are decided, None where they are not; says how well a chosen
    one does on other rows."""
    if args.abstain is None:
        return args.threshold
    from ..prediction.decisions import choose_run_threshold

    threshold = choose_run_threshold(opened.folder, opened.predictor, args.abstain)
    say(threshold.describe(args.abstain))
    if threshold.bound < args.abstain:
        say(
            f"warning: that bound is below {args.abstain:g}; more dev rows, or a higher precision, make it "
            "surer"
        )
    return threshold.value


def as_writers_take_it(threshold: float | None, predictor: Predictor) -> float | Abstention | None:
    """Return a threshold as the writers of a model's predictions take it."""
    if threshold is None or not predictor.has_label_sets:
        return threshold
    from ..prediction.label_sets import Abstention

    return Abstention(predictor.rule, threshold)


def writers(predictor: Predictor) -> dict[str, Callable]:
    """Return what writes the predictions of a model, by the name of the format."""
    if not predictor.has_label_sets:
        return WRITERS
    from ..prediction.label_sets import LABEL_SET_WRITERS

    return LABEL_SET_WRITERS


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def run(args: argparse.Namespace) -> None:
    """Classify what the command line asks for; raises InputError for bad input, TrainingError where it cannot
    be done."""
    find_input_format(args)
    if args.report is not None:
        report(args)
        return
    source = open_source(args)
    check_output(args.output, args.input)
    if args.output_format == "xlsx":
        check_excel()
    total = count_rows(source, args)
    opened = open_chosen(args)
    predictor = opened.predictor
    threshold = as_writers_take_it(choose_threshold(args, opened), predictor)
    rows = source.good_rows(opened.remove_spaces, args.on_bad_row == "skip")
    shown = _is_terminal(sys.stderr) and not (args.output is None and _is_terminal(sys.stdout))
    with open_output(args.output) as file, progress(total, shown) as on_batch:
        if args.bom:
            file.write("\ufeff")
        # A person who types texts wants an answer after each line.
        predictions = predictor.predict(
            rows, on_batch=on_batch, **({"chunk_rows": 1} if source.is_terminal else {})
        )
        has_pairs = args.text_pair_column is not None
        writers(predictor)[args.output_format](file, predictions, predictor.label_names, has_pairs, threshold)
    if args.input is not None or source.num_bad:
        say(source.summary())
    if (
        source.is_stream
        and args.format == "text"
        and source.first
        and json_layout(source.first.text, True, strict=True)
    ):
        say(
            f"warning: {source.name} was read as plain text, and looks like JSON; is it JSON Lines (--format "
            "jsonl)?"
        )


def label_set_settings(args: argparse.Namespace, opened: OpenedModel) -> dict | None:
    """Return how the labels of a row are written, where there are any number: as asked for, else as in the
    run's training.

    Raises InputError where it is asked for, and the model has one label a row.
    """
    asked = {"label_separator": args.label_separator, "label_columns": args.label_columns}
    if not opened.predictor.has_label_sets:
        for name, value in asked.items():
            if value is not None:
                raise InputError(
                    f"--{name} is for several labels a row, and {opened.folder} has one; leave it out"
                )
        return None
    if args.label_columns is not None and (args.label_column, args.label_separator) != (None, None):
        raise InputError(
            "--label_columns is instead of --label_column and --label_separator; remove it, or these"
        )
    settings = {}
    if not is_exported(opened.folder):
        from ..prediction.saved_model import run_settings

        settings = run_settings(opened.folder)
    if args.label_column is not None or args.label_separator is not None:
        settings = settings | {"label_columns": None}
    return {name: settings.get(name) if value is None else value for name, value in asked.items()}


def report(args: argparse.Namespace) -> None:
    """Classify rows with labels, and write a report on them; raises as `run` does."""
    from ..prediction.labelled_rows import check_report_folder, report_on

    folder = check_report_folder(args.report)
    opened = open_chosen(args)
    source = open_source(args, label_set_settings(args, opened))
    total = count_rows(source, args)
    threshold = as_writers_take_it(choose_threshold(args, opened), opened.predictor)
    with progress(total, _is_terminal(sys.stderr)) as on_batch:
        rows = source.good_rows(opened.remove_spaces, args.on_bad_row == "skip")
        has_pairs = args.text_pair_column is not None
        text = report_on(opened, rows, source, folder, has_pairs, threshold, args.language, on_batch)
    print(text)
    say(source.summary())
    say(f"Saved in {folder}")


def main(argv: list[str], program: str = f"{PROGRAM} predict") -> int:
    """Run the command line; return the exit status."""
    status = 0
    try:
        run(parse(build_parser(program, __doc__.replace("python -m app predict", program)), argv))
    except InputError as error:
        say(f"error: {error}")
        status = 2
    except TrainingError as error:
        say(f"error: {error}")
        status = 1
    except KeyboardInterrupt:
        say("interrupted")
        status = 130
    except BrokenPipeError:
        status = 141
    _drop_unwritten()
    return status


def _drop_unwritten() -> None:
    """Drop what standard output does not take; else Python reports it again when it ends, with another exit
    status."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
