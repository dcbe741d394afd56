"""Classify texts with a trained checkpoint.

python -m app predict 今天真开心                                        with the run that finished last
python -m app predict --checkpoint checkpoints/sample-001 今天真开心 气死我了
python -m app predict --input reviews.csv --output labels.csv           a file; .txt is one text a line
cat lines.txt | python -m app predict --input - --output_format jsonl
python -m app predict --engine ray --input posts/ --output labels/      many files or GPUs, see docs/data.md
python -m app predict --input new.csv --label_column 标签 --report out/   rows with labels: how good is it?

The output has a row for each row of the input, in its order: all columns of the input as they are (of plain
text, and with --only_labels: line, the row's number in its file, text, and of pairs text_pair); then label,
probability, and p_<label> for each label, of more than 50 labels most_probable, a JSON list of ten (of a
model with several labels a row: labels, a JSON list, and these); with --threshold or --abstain also decision
and margin, or confidence; with --evidence support and evidence, a JSON list. Where the input has a column of
such a name, the new one is called predicted_<name>. An invalid row has no label, but a reason in the last
column.

Files are read as in the run's training: its columns, separators and encoding, unless an option says
otherwise; long texts and spaces too. Exit status: 0, 1 for a full disk or a model that gives no numbers, 2
for bad input, 130 when interrupted, 141 when the reader of the output is gone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from ..data.read import json_layout
from ..errors import InputError, listed
from ..prediction.excel_output import check_excel
from ..prediction.open_model import ComputeOptions, OpenedModel, open_model
from ..prediction.output import check_output, open_output, progress
from ..prediction.sources import Source, open_file, open_texts
from ..words import use_language
from .exit_status import say
from .predict_options import build_parser, parse
from .predict_steps import (
    PAIRS_REMEDY,
    asked_settings,
    choose_threshold,
    chosen_folder,
    compute_options,
    keeps_columns,
    open_chosen,
)


def count_rows(source: Source, args: argparse.Namespace) -> int | None:
    """Return the rows of a source, None for a stream; raises InputError for bad rows that are not skipped.
    Reading a file twice is cheap, and finds a bad last row before the first one is classified."""
    if source.is_stream:
        return None
    total = source.count(args.on_bad_row)
    if source.format == "text" and "\t" in source.first.text:
        say(f"warning: {source.name} is read as plain text, and has tabs; is it a table (--format tsv)?")
    return total


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def open_source(args: argparse.Namespace, recorded: Mapping[str, Any]) -> Source:
    """Return the rows that the command line asks for, of a run that was trained with the settings
    `recorded`; raises InputError where they cannot be opened, or not be written as asked."""
    if args.texts:
        return open_texts(args.texts, recorded)
    source = open_file(args.input, recorded, asked_settings(args), keeps_columns=keeps_columns(args))
    if args.output_format == "parquet" and source.format != "parquet":
        raise InputError(
            f"--output {args.output}: Parquet is written for Parquet, whose columns have types, found "
            f"{source.format}; write .csv, .xlsx or .jsonl"
        )
    return source


def run(argv: list[str], program: str) -> int | None:
    """Classify what the command line asks for; return the exit status, None for 0. Raises InputError for bad
    input, TrainingError where it cannot be done."""
    args = parse(build_parser(program, __doc__, "all" in argv), argv)
    use_language(args.language)
    from ..prediction.recorded_settings import check_pairs, recorded_settings

    folder = chosen_folder(args)
    if args.engine == "ray":
        _predict_by_ray(args, folder)
        return None
    if args.report is not None:
        report(args, folder)
        return None
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
    return None


def write_predictions(
    args: argparse.Namespace, source: Source, opened: OpenedModel, total: int | None
) -> None:
    """Classify the rows of a source, and write them as the command line says."""
    from ..prediction.prediction_writer import PredictionWriter

    threshold, predictor = choose_threshold(args, opened), opened.predictor
    rows = source.started(args.on_bad_row)
    place = source.place if source.has_reasons(args.on_bad_row) else None
    columns = source.table_columns if args.output_format == "parquet" else source.columns
    writer = PredictionWriter(predictor.task, columns, threshold, place, predictor.evidence)
    # A person who types texts wants an answer after each line.
    chunk = {"chunk_rows": 1} if source.is_terminal else {}
    shown = _is_terminal(sys.stderr) and not (args.output is None and _is_terminal(sys.stdout))
    with open_output(args.output) as file, progress(total, shown) as on_batch:
        predictions = predictor.predict(rows, on_batch=on_batch, **chunk)
        if args.bom:
            file.write("\ufeff")
        if args.output_format == "parquet":
            writer.write_parquet(file, Path(source.name), predictions)
        else:
            writer.write(args.output_format, file, predictions)
    if columns.replaced:
        say(
            f"warning: {columns.replaced:,} values of the input have bytes that are not in its encoding, "
            "written as U+FFFD; is --encoding right?"
        )
    if columns.left_out and args.output_format != "jsonl":
        keys = listed(sorted(columns.left_out))
        say(f"warning: keys that no early row has are left out: {keys}; write JSON Lines to keep them")


def _predict_by_ray(args: argparse.Namespace, folder: Path) -> None:
    """Classify the files that the command line names with Ray, and say how many rows they have."""
    from ..prediction.many_files import predict_files

    threshold = args.threshold
    if args.abstain is not None:
        # Its actors open the model themselves
        threshold = choose_threshold(args, open_model(folder, ComputeOptions("cpu")))
    rows = predict_files(
        args.input,
        args.output,
        folder,
        output_format=args.output_format,
        actors=args.actors,
        on_bad_row=args.on_bad_row,
        threshold=threshold,
        evidence=args.evidence,
        **asdict(compute_options(args)),
        **asked_settings(args),
    )
    say(f"{args.output}: {rows:,} rows, each of them once")


def check_label_settings(args: argparse.Namespace, opened: OpenedModel) -> None:
    """Raise InputError for options of several labels a row that do not fit together, or not the model."""
    if not opened.predictor.task.form.has_several:
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
    from ..prediction.labelled_rows import check_report_folder, report_on, whole_report
    from ..prediction.recorded_settings import check_pairs

    folder = check_report_folder(args.report)
    opened = open_chosen(args, model_folder)
    check_label_settings(args, opened)
    recorded = opened.recorded | {"task": opened.predictor.task.name}
    source = open_file(args.input, recorded, asked_settings(args), need_label=True)
    check_pairs(model_folder, opened.recorded, source.has_pairs, PAIRS_REMEDY)
    total = count_rows(source, args)
    threshold = choose_threshold(args, opened)
    with progress(total, _is_terminal(sys.stderr)) as on_batch, whole_report(folder) as aside:
        rows = source.rows(args.on_bad_row)
        text = report_on(opened, rows, source, aside, threshold, on_batch)
    print(text)
    say(source.summary())
    say(f"Saved in {folder}")
