"""Classify texts with a trained checkpoint.

python -m app predict 今天真开心                                        with the run that finished last
python -m app predict --checkpoint checkpoints/sample-001 今天真开心 气死我了
python -m app predict --input reviews.csv --output labels.csv           a file; .txt is one text a line
cat lines.txt | python -m app predict --input - --output_format jsonl
python -m app predict --input new.csv --label_column 标签 --report out/   rows with labels: how good is it?

The output has a row for each row of the input, in its order: all columns of the input as they are (of plain
text, and with --only_labels: line, the row's number in its file, text, and of pairs text_pair); then label,
probability, and p_<label> for each label (of a model with several labels a row: labels, a JSON list,
and p_<label>); with --threshold or --abstain also decision and margin, or confidence; with --reject usual
and rejected; with --evidence support and evidence, a JSON list. Where the input has a column of such a name,
the new one is called predicted_<name>. An invalid row has no label, but a reason in the last column.

Files are read as in the run's training: its columns, separators and encoding, unless an option says
otherwise; long texts and spaces too. Exit status: 0, 1 for a full disk or a model that gives no numbers, 2
for bad input, 130 when interrupted, 141 when the reader of the output is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..config.shipped import MODULE, PROGRAM
from ..data.json_values import json_layout
from ..data.run_options import LABEL_SETTINGS
from ..errors import InputError, listed
from ..prediction.beside import add_beside
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
    total = source.count(args.on_bad_row)
    if source.format == "text" and "\t" in source.first.text:
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
    """Return the folder of the model, as named, else that of the run that finished last; say what it is."""
    from ..prediction.choose_run import choose_run, describe_model

    folder, notes = (Path(args.checkpoint), []) if args.checkpoint else choose_run()
    known = describe_model(folder)
    for note in [*([f"model {known}"] if known else []), *notes]:
        say(note)
    return folder


def open_chosen(args: argparse.Namespace, folder: Path) -> OpenedModel:
    """Return the model in `folder`, computing as the command line says."""
    compute = ComputeOptions(
        args.device, args.precision, args.batch_tokens, args.calibrate == "auto", args.runtime
    )
    with quick_imports(f"{MODULE}.prediction.torch_runtime"):
        opened = open_model(folder, compute)
    add_beside(opened, args.evidence, args.reject)
    return opened


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
    opened.predictor.outcome.check_threshold(args.threshold, args.abstain)
    if args.abstain is None:
        return args.threshold
    threshold = choose_run_threshold(opened.folder, opened.predictor.outcome, args.abstain)
    say(threshold.describe(args.abstain))
    if threshold.bound < args.abstain:
        say(f"warning: that bound is below {args.abstain:g}; more dev rows, or a higher precision, help")
    return threshold.value


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def open_source(args: argparse.Namespace, recorded: Mapping[str, Any]) -> Source:
    """Return the rows that the command line asks for, of a run that was trained with the settings
    `recorded`; raises InputError where they cannot be opened, or not be written as asked."""
    if args.texts:
        return open_texts(args.texts, recorded)
    keeps_columns = not args.only_labels and args.output_format not in ("lines", "parquet")
    source = open_file(args.input, recorded, asked_settings(args), keeps_columns=keeps_columns)
    if args.output_format == "parquet" and source.format != "parquet":
        raise InputError(
            f"--output {args.output}: Parquet is written for Parquet, whose columns have types, found "
            f"{source.format}; write .csv, .xlsx or .jsonl"
        )
    return source


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
    source = open_source(args, recorded)
    check_pairs(folder, recorded, source.has_pairs, PAIRS_REMEDY)
    check_output(args.output, args.input)
    if args.output_format == "xlsx":
        check_excel()
    total = count_rows(source, args)
    opened = open_chosen(args, folder)
    write_predictions(args, source, opened, total)
    if args.input is not None or source.num_bad:
        say(source.summary("without label" if args.on_bad_row == "keep" else "skipped"))
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


def write_predictions(
    args: argparse.Namespace, source: Source, opened: OpenedModel, total: int | None
) -> None:
    """Classify the rows of a source, and write them as the command line says."""
    from ..prediction.prediction_writer import PredictionWriter

    threshold = choose_threshold(args, opened)
    place = source.place if source.has_reasons(args.on_bad_row) else None
    rows = source.started(args.on_bad_row)
    columns = source.table_columns if args.output_format == "parquet" else source.columns
    # A person who types texts wants an answer after each line.
    chunk = {"chunk_rows": 1} if source.is_terminal else {}
    shown = _is_terminal(sys.stderr) and not (args.output is None and _is_terminal(sys.stdout))
    with open_output(args.output) as file, progress(total, shown) as on_batch:
        if args.bom:
            file.write("\ufeff")
        predictions = opened.predictor.predict(rows, on_batch=on_batch, **chunk)
        predictor = opened.predictor
        writer = PredictionWriter(predictor.outcome, columns, threshold, place, predictor.beside)
        if args.output_format == "parquet":
            writer.write_parquet(file, Path(args.input), predictions)
        else:
            writer.write(args.output_format, file, predictions)
    if columns.left_out and args.output_format != "jsonl":
        keys = listed(sorted(columns.left_out))
        say(f"warning: keys that no early row has are left out: {keys}; write JSON Lines to keep them")


def check_label_settings(args: argparse.Namespace, opened: OpenedModel) -> None:
    """Raise InputError for options of several labels a row that do not fit together, or not the model."""
    if not opened.predictor.outcome.form.has_several:
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
        rows = source.rows(args.on_bad_row)
        text = report_on(opened, rows, source, folder, threshold, args.language, on_batch)
    print(text)
    say(source.summary())
    say(f"Saved in {folder}")


def main(argv: list[str], program: str = f"{PROGRAM} predict") -> int:
    """Run the command line; return the exit status."""
    description = __doc__.replace("python -m app predict", program)
    return exit_status(lambda: run(parse(build_parser(program, description, "all" in argv), argv)))
