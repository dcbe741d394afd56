"""Classify texts with a trained checkpoint.

python -m app predict 今天真开心                                        with the run that finished last
python -m app predict --checkpoint checkpoints/sample-001 今天真开心 气死我了
python -m app predict --input reviews.csv --output labels.csv           a file; .txt is one text a line
cat lines.txt | python -m app predict --input -
python -m app predict --engine ray --input posts/ --output labels/      many files or GPUs, see docs/data.md
python -m app predict --input new.csv --label_column 标签 --report out/   rows with labels: how good is it?

The output has a row for each row of the input, in its order: all columns of the input as they are (of plain
text: line, the row's number in its file, text, and of pairs text_pair); then label, probability, and
p_<label> for each label, of more than 50 labels most_probable, a JSON list of ten (of a model with several
labels a row: labels, a JSON list, and these); with --threshold also decision and margin, or confidence; with
--evidence support and evidence, a JSON list. Where the input has a column of such a name, the new one is
called predicted_<name>. An invalid row has no label, but a reason in the last column.

Files are read as in the run's training: its columns, separators and encoding, unless an option says
otherwise; long texts and spaces too. Further settings of reading have their names of training:
--data.encoding gb18030, --data.header, --data.quoting, --data.label_separator, --data.label_columns. Exit
status: 0, 1 for a full disk or a model that gives no numbers, 2 for bad input, 130 when interrupted, 141 when
the reader of the output is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from ..data.read import FORMATS, json_layout
from ..errors import InputError, nearest
from ..prediction.open_model import (
    MAX_EVIDENCE,
    ComputeOptions,
    OpenedModel,
    decision_threshold,
    open_model,
)
from ..prediction.output import SUFFIXES, AddedColumns, check_output, progress, write_predictions
from ..prediction.sources import ON_BAD_ROW, Source, open_file, open_texts
from ..runtime.processes import ended_by_ctrl_c, launched_number
from .exit_status import say
from .parser import (
    Parser,
    add_computing,
    add_threshold,
    at_least,
    between,
    column_name,
    column_names,
    number,
    yes_or_no,
)

# Options that say how a file is read; where one is not given, the file is read as in the run's training.
COLUMNS = {
    "text_column": "column of the text, by name or number from 0 (default: as in the run, else a usual name)",
    "text_pair_column": "column of the second text of a pair (default: as in the run)",
    "label_column": "column of the label, for --report only (default: as in the run, else its usual name)",
}
MORE_READING = {"encoding": str, "header": yes_or_no, "quoting": str, "label_separator": str}
MORE_READING["label_columns"] = column_names
PAIRS_REMEDY = "pairs are read from a file, with the columns of the run's training or --text_pair_column"


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    usage = f"{program} [--checkpoint FOLDER] [OPTION ...] TEXT ... | --input FILE"
    parser = Parser(program, __doc__, usage=usage)
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts to classify; after -- they may begin with a dash")
    add(
        "--checkpoint",
        metavar="FOLDER",
        help="a run, an exported folder or a transformers checkpoint (default: the newest finished run)",
    )
    add(
        "--input",
        metavar="FILE",
        help="file of texts, or an address such as s3://bucket/a.csv; for --engine ray also a folder, or a "
        "pattern in quotes; - is standard input (default: none)",
    )
    add(
        "--output",
        metavar="FILE",
        help="file to write, in UTF-8: .csv, .jsonl, .xlsx or .parquet; with --engine ray a folder, of CSV "
        "files if its name ends in .csv, else of Parquet (default: standard output, as CSV)",
    )
    add(
        "--format",
        "--data.format",
        choices=["auto", *FORMATS],
        default="auto",
        help="text is one text a line (default: auto, by content, the run's format and name; other .txt and "
        "standard input are text)",
    )
    for name, words in COLUMNS.items():
        add(f"--{name}", f"--data.{name}", type=column_name, metavar="COLUMN", help=words)
    for name, kind in MORE_READING.items():
        add(f"--data.{name}", dest=name, type=kind, help=argparse.SUPPRESS)
    add(
        "--on_bad_row",
        choices=ON_BAD_ROW,
        help="invalid rows: keep writes them without label, and the column reason says why; skip leaves them "
        "out, and lists them; error stops (default: keep; error for TEXTs and --report)",
    )
    add(
        "--report",
        metavar="FOLDER",
        help="for rows with labels: a new folder for report.html, report.txt, report.json and "
        "predictions.csv (default: none)",
    )
    add_threshold(add)
    add(
        "--evidence",
        type=number(int, between(1, MAX_EVIDENCE)),
        metavar="ROWS",
        help="adds the columns support, how many of the training rows with the nearest texts have the label, "
        "and evidence, these rows (default: none)",
    )
    add(
        "--engine",
        choices=["ray"],
        help="ray: by Ray Data, on this machine or the cluster of RAY_ADDRESS, from files in --input to "
        "files in a new folder --output (default: none)",
    )
    add(
        "--actors",
        type=number(int, at_least(1)),
        metavar="N",
        help="processes of --engine ray with the model (default: one for each GPU, else for each machine)",
    )
    add_computing(
        add,
        "maximum tokens in a batch, its rows times its longest row (default: 1024 on the CPU, with ONNX "
        "Runtime 256, 32768 on other devices)",
    )
    return parser


def parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    """Return the options, and `output_format`; raises InputError for values that do not go together."""
    dashes = argv.index("--") if "--" in argv else len(argv)
    args, unknown = parser.parse_known_intermixed_args(argv[:dashes])
    args.texts += argv[dashes + 1 :]
    args.output = None if args.output in ("-", "/dev/stdout") else args.output
    if unknown:
        parser.error(f"there is no option {unknown[0]}{nearest(unknown[0], parser._option_string_actions)}")
    if bool(args.texts) == (args.input is not None):
        parser.error("texts are needed, or --input FILE (- is standard input), not both")
    for name in ("label_column", "label_separator", "label_columns"):
        if args.report is None and getattr(args, name) is not None:
            parser.error(f"--{name} is for --report FOLDER; add it, or remove --{name}")
    if args.on_bad_row is None:
        args.on_bad_row = "error" if args.texts or args.report is not None else "keep"
    if args.engine is None:
        args.output_format = _output_format(args, parser)
        return args
    if args.input in (None, "-") or args.output is None or args.report is not None:
        parser.error("--engine ray needs files --input and a new folder --output, without --report")
    args.output_format = "csv" if Path(args.output).suffix.lower() == ".csv" else "parquet"
    return args


def _output_format(args: argparse.Namespace, parser: Parser) -> str:
    """Return the format of what one process writes; raises InputError as `parse` does."""
    launched = launched_number("WORLD_SIZE", 1, least=1) if "RANK" in os.environ else 1
    if launched > 1:
        parser.error(
            f"one process writes a file, found {launched} (WORLD_SIZE); several are for --engine ray, which "
            "starts them itself"
        )
    if args.actors is not None:
        parser.error("--actors is for --engine ray; add it, or remove --actors")
    if args.report is not None and (args.input is None or args.output is not None):
        parser.error(
            "--report needs a file of rows with labels, --input FILE, and writes files; remove --output"
        )
    if args.report is not None and args.on_bad_row == "keep":
        parser.error("--report is about rows with labels; set --on_bad_row to error or skip")
    if args.output is None:
        return "lines" if args.texts and _is_seen(sys.stdout) else "csv"
    target = Path(args.output)
    if args.output.endswith(os.sep) or target.is_dir():
        parser.error(f"--output {args.output}: a folder is written with --engine ray; add it, or name a file")
    # A device such as /dev/null has no ending.
    if target.suffix.lower() not in SUFFIXES and not target.exists():
        parser.error(f"--output {args.output}: the name must end in {', '.join(SUFFIXES)}")
    return SUFFIXES.get(target.suffix.lower(), "csv")


def _is_seen(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def run(argv: list[str], program: str) -> None:
    """Classify what the command line asks for; raises InputError for bad input, TrainingError where it cannot
    be done."""
    args = parse(build_parser(program), argv)
    from ..prediction.choose_run import choose_run, describe_model

    folder, notes = (Path(args.checkpoint), []) if args.checkpoint else choose_run()
    known = describe_model(folder)
    for note in [*([f"model {known}"] if known else []), *notes]:
        say(note)
    asked = {name: getattr(args, name) for name in ("format", *COLUMNS, *MORE_READING)}
    if args.engine == "ray":
        predict_by_ray(args, folder, asked)
    elif args.report is not None:
        report(args, folder, asked)
    else:
        predict(args, folder, asked)


def predict(args: argparse.Namespace, folder: Path, asked: dict) -> None:
    """Classify texts or the rows of a file, and write them as the command line says."""
    from ..prediction.recorded_settings import check_pairs, recorded_settings

    recorded, keeps_columns = recorded_settings(folder), args.output_format != "parquet"
    if args.texts:
        source = open_texts(args.texts, bool(recorded.get("remove_spaces")))
    else:
        source = open_file(args.input, recorded, asked, keeps_columns=keeps_columns)
    if not keeps_columns and source.format != "parquet":
        raise InputError(
            f"--output {args.output}: Parquet is written for Parquet, whose columns have types, found "
            f"{source.format}; write .csv, .xlsx or .jsonl"
        )
    check_pairs(folder, recorded, source.has_pairs, PAIRS_REMEDY)
    check_output(args.output, args.input)
    total = count_rows(source, args.on_bad_row)
    opened = open_chosen(args, folder)
    threshold, predictor = decision_threshold(opened, args.threshold, say), opened.predictor
    rows, place = source.started(args.on_bad_row), source.place_of_reasons(args.on_bad_row)
    taken = source.names if keeps_columns else source.reader.names
    added = AddedColumns(predictor.task, taken, threshold, place, predictor.evidence)
    shown = _is_seen(sys.stderr) and not (args.output is None and _is_seen(sys.stdout))
    # A person who types texts wants an answer after each line.
    chunk = {"chunk_rows": 1} if source.is_terminal else {}
    with progress(total, shown) as on_batch:
        predictions = predictor.predict(rows, on_batch=on_batch, **chunk)
        write_predictions(args.output, args.output_format, source, added, predictions)
    if args.input is not None or source.num_bad:
        say(source.summary("without label" if args.on_bad_row == "keep" else "skipped"))
    is_text = source.is_stream and source.format == "text" and source.first
    if is_text and json_layout(source.first.text):
        say(
            f"warning: {source.name} was read as plain text, and looks like JSON; is it JSON Lines (--format "
            "jsonl)?"
        )


def open_chosen(args: argparse.Namespace, folder: Path) -> OpenedModel:
    """Return the model in `folder`, computing as the command line says."""
    with ended_by_ctrl_c():
        opened = open_model(folder, ComputeOptions(args.device, args.precision, args.batch_tokens))
    if args.evidence is not None:
        from ..prediction.run_data import NearestRows

        opened.predictor.evidence = NearestRows(opened, args.evidence)
    return opened


def count_rows(source: Source, on_bad_row: str) -> int | None:
    """Return the rows of a source, None for a stream; raises InputError for bad rows that are not skipped.
    Reading a file twice is cheap, and finds a bad last row before the first one is classified."""
    if source.is_stream:
        return None
    total = source.count(on_bad_row)
    if source.format == "text" and "\t" in source.first.text:
        say(f"warning: {source.name} is read as plain text, and has tabs; is it a table (--format tsv)?")
    return total


def predict_by_ray(args: argparse.Namespace, folder: Path, asked: dict) -> None:
    """Classify the files that the command line names with Ray, and say how many rows they have."""
    from ..prediction.many_files import predict_files

    compute, threshold = ComputeOptions(args.device, args.precision, args.batch_tokens), args.threshold
    if threshold is not None and not isinstance(threshold, float):
        # The actors open the model themselves, so the threshold is chosen here.
        threshold = decision_threshold(open_model(folder, ComputeOptions("cpu")), threshold, say)
    rows = predict_files(
        args.input,
        args.output,
        folder,
        output_format=args.output_format,
        actors=args.actors,
        on_bad_row=args.on_bad_row,
        threshold=threshold,
        evidence=args.evidence,
        **asdict(compute),
        **asked,
    )
    say(f"{args.output}: {rows:,} rows, each of them once")


def report(args: argparse.Namespace, model_folder: Path, asked: dict) -> None:
    """Classify rows with labels, and write a report on them; raises as `run` does."""
    from ..prediction.labelled_rows import check_report_folder, report_on
    from ..prediction.recorded_settings import check_pairs

    folder = check_report_folder(args.report)
    opened = open_chosen(args, model_folder)
    task = opened.predictor.task
    if not task.form.has_several and (args.label_separator, args.label_columns) != (None, None):
        raise InputError(
            "--data.label_separator and --data.label_columns are for several labels a row, and "
            f"{opened.folder} has one; leave them out"
        )
    if args.label_columns is not None and (args.label_column, args.label_separator) != (None, None):
        raise InputError(
            "--data.label_columns is instead of --label_column and --data.label_separator; remove it, or "
            "these"
        )
    source = open_file(args.input, opened.recorded | {"task": task.name}, asked, need_label=True)
    check_pairs(model_folder, opened.recorded, source.has_pairs, PAIRS_REMEDY)
    total, threshold = count_rows(source, args.on_bad_row), decision_threshold(opened, args.threshold, say)
    with progress(total, _is_seen(sys.stderr)) as on_batch:
        text = report_on(opened, source.rows(args.on_bad_row), source, folder, threshold, on_batch)
    print(text)
    say(source.summary())
    say(f"Saved in {folder}")
