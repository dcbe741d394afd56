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
labels a row: labels, a JSON list, and these); with --threshold also decision and margin, or confidence. Where
the input has a column of such a name, the new one is called predicted_<name>. An invalid row has no label,
but a reason in the last column.

Files are read as in the run's training: its columns, separators and encoding, unless an option says
otherwise; long texts and spaces too. Further settings of reading have their names of training:
--data.sheet 反馈, --data.encoding gb18030, --data.header, --data.quoting, --data.label_separator,
--data.label_columns. Exit status: 0, 1 for an output that cannot be written or a model that gives no numbers,
2 for bad input, 130 when interrupted, 141 when the reader of the output is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from ..data.read import FORMATS
from ..errors import InputError, counted, nearest, say, shorten, show
from ..prediction import OF_LABELS, ON_BAD_ROW, SUFFIXES
from ..runtime.processes import ended_by_ctrl_c
from .parser import Parser, add_computing, number, setting

# Options that say how a file is read; where one is not given, the file is read as in the run's training.
COLUMNS = {
    "text_column": "column of the text, by name or number from 0 (default: as in the run, else a usual name)",
    "text_pair_column": "column of the second text of a pair (default: as in the run)",
    "label_column": "column of the label, for --report only (default: as in the run, else its usual name)",
}
MORE_READING = ("sheet", "encoding", "header", "quoting", "label_separator", "label_columns")
PAIRS_REMEDY = "pairs are read from a file, with the columns of the run's training or --text_pair_column"


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    usage = f"{program} [--checkpoint FOLDER] [OPTION ...] TEXT ... | --input FILE"
    parser = Parser(program, __doc__, usage=usage)
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts to classify; after -- they may begin with a dash")
    model = "a run, an exported folder or a transformers checkpoint (default: the newest finished run)"
    add("--checkpoint", metavar="FOLDER", help=model)
    source = (
        "file of texts, or an address such as s3://bucket/a.csv; for --engine ray also a folder, or a "
        "pattern in quotes; - is standard input (default: none)"
    )
    add("--input", metavar="FILE", help=source)
    output = (
        "file to write, in UTF-8: .csv, .jsonl, .xlsx or .parquet; with --engine ray a folder, of CSV files "
        "if its name ends in .csv, else of Parquet (default: standard output, as CSV)"
    )
    add("--output", metavar="FILE", help=output)
    formats = (
        "text is one text a line (default: auto, by content, the run's format and name; other .txt and "
        "standard input are text)"
    )
    add("--format", "--data.format", choices=["auto", *FORMATS], default="auto", help=formats)
    for name, words in COLUMNS.items():
        add(f"--{name}", f"--data.{name}", type=setting(f"data.{name}"), metavar="COLUMN", help=words)
    for name in MORE_READING:
        add(f"--data.{name}", dest=name, type=setting(f"data.{name}"), help=argparse.SUPPRESS)
    bad = (
        "invalid rows: keep writes them without label, and the column reason says why; skip leaves them out, "
        "and lists them; error stops (default: keep; error for TEXTs and --report)"
    )
    add("--on_bad_row", choices=ON_BAD_ROW, help=bad)
    folder = (
        "for rows with labels: a new folder for report.html, report.txt, report.json and predictions.csv "
        "(default: none)"
    )
    add("--report", metavar="FOLDER", help=folder)
    tokens = (
        "maximum tokens in a batch, its rows times its longest row (default: 1024 on the CPU, with ONNX "
        "Runtime 256, 32768 on other devices)"
    )
    add_computing(add, tokens)
    engine = (
        "ray: by Ray Data, on this machine or the cluster of RAY_ADDRESS, from files in --input to files in "
        "a new folder --output (default: none)"
    )
    add("--engine", choices=["ray"], help=engine)
    actors = "processes of --engine ray with the model (default: one for each GPU, else for each machine)"
    add("--actors", type=number(int, 1), metavar="N", help=actors)
    return parser


def problem_of(args: argparse.Namespace) -> str | None:
    """Return what is wrong with options that do not go together, or None."""
    is_report = args.report is not None
    is_ray = args.engine is not None
    label_options = [name for name in OF_LABELS if args.asked[name] is not None]
    if bool(args.texts) == (args.input is not None):
        return "texts are needed, or --input FILE, not both"
    for text in args.texts:
        if os.path.isfile(text):
            return f"there is a file {shorten(text)}; to classify its rows, write --input {shorten(text)}"
    if label_options and not is_report:
        return "--label_column and other settings of labels are for --report FOLDER; add it, or remove them"
    if "label_columns" in label_options and len(label_options) > 1:
        return "--data.label_columns is instead of --label_column and --data.label_separator; remove these"
    if is_report and (args.texts or args.output or is_ray):
        return "--report needs a file with labels, --input FILE; remove TEXTs, --output and --engine"
    if is_report and args.on_bad_row == "keep":
        return "--report: set --on_bad_row to error or skip"
    if is_ray and (args.input in (None, "-") or args.output is None):
        return "--engine ray needs files --input and a new folder --output"
    if args.actors is not None and not is_ray:
        return "--actors is for --engine ray; add it, or remove --actors"
    if not is_ray and args.output is not None and Path(args.output).suffix.lower() not in SUFFIXES:
        return f"--output {args.output}: the name must end in {', '.join(SUFFIXES)}, a folder needs --engine"
    return None


def parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    """Return the options, and `output_format`; raises InputError for values that do not go together."""
    dashes = argv.index("--") if "--" in argv else len(argv)
    args, unknown = parser.parse_known_intermixed_args(argv[:dashes])
    args.texts += argv[dashes + 1 :]
    if args.output in ("-", "/dev/stdout"):
        args.output = None
    args.asked = {name: getattr(args, name) for name in ("format", *COLUMNS, *MORE_READING)}
    if args.on_bad_row is None:
        args.on_bad_row = "keep"
        if args.texts or args.report is not None:
            args.on_bad_row = "error"
    if unknown:
        parser.error(f"there is no option {unknown[0]}{nearest(unknown[0], parser._option_string_actions)}")
    problem = problem_of(args)
    if problem is not None:
        parser.error(problem)
    suffix = Path(args.output or "").suffix.lower()
    args.output_format = SUFFIXES.get(suffix, "csv")
    if args.engine is not None:
        args.output_format = "csv" if suffix == ".csv" else "parquet"
    elif args.output is None and args.texts and args.on_bad_row != "keep" and _is_terminal(sys.stdout):
        args.output_format = "lines"
    return args


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def progress_bar(total: int | None, is_shown: bool) -> tqdm:
    return tqdm(
        total=total,
        disable=not is_shown,
        unit=" rows",
        unit_scale=True,
        dynamic_ncols=True,
        delay=1,  # seconds
    )


def run(argv: list[str], program: str) -> int:
    """Classify what the command line asks for and return the exit status; raises InputError, or TrainingError
    where that fails."""
    args = parse(build_parser(program), argv)
    from ..prediction.open_model import ComputeOptions
    from ..prediction.trained_model import choose_run

    args.compute = ComputeOptions(args.device, args.precision, args.batch_tokens)
    if args.checkpoint:
        folder = Path(args.checkpoint)
    else:
        folder = choose_run()
        say(f"model {folder}")
    if args.engine == "ray":
        predict_by_ray(args, folder)
    elif args.report is not None:
        return report(args, folder)
    else:
        predict(args, folder)
    return 0


def predict(args: argparse.Namespace, folder: Path) -> None:
    """Classify texts or the rows of a file, and write them as the command line says."""
    from ..prediction.open_model import open_model
    from ..prediction.output import write_predictions
    from ..prediction.output_files import check_output
    from ..prediction.sources import open_file, source_of_texts
    from ..prediction.trained_model import read_trained_model

    trained = read_trained_model(folder)
    if args.texts:
        source = source_of_texts(args.texts, trained.reading.remove_spaces)
    else:
        source = open_file(args.input, trained, args.asked)
    is_parquet = args.output_format == "parquet"
    if is_parquet and FORMATS[source.format].batches is None:
        raise InputError(
            f"--output {args.output}: Parquet is written for Parquet and Arrow, whose columns have types, "
            f"found {source.format}; write .csv, .xlsx or .jsonl"
        )
    trained.check_pairs(source.has_pairs, PAIRS_REMEDY)
    if args.output is not None:
        check_output(args.output)
    # Reading a file twice is cheap, and finds a bad last row before the first one is classified
    total = None
    if not source.is_stream:
        source = source.scanned(args.on_bad_row)
        total = source.scan.num_good
    with ended_by_ctrl_c():
        opened = open_model(folder, args.compute, args.threshold)
    # Lines of predictions on a terminal would be torn apart by a bar
    is_output_seen = args.output is None and _is_terminal(sys.stdout)
    has_bar = _is_terminal(sys.stderr) and not is_output_seen
    with progress_bar(total, has_bar) as bar:
        # Parquet is written with the columns of the file itself
        rows = source.rows(args.on_bad_row, with_records=not is_parquet)
        predictions = opened.predictor.predict(rows, on_batch=bar.update)
        write_predictions(args.output, args.output_format, source, opened, predictions, args.on_bad_row)
    if args.input is not None or rows.num_bad:
        without_answer = "without label" if args.on_bad_row == "keep" else "skipped"
        say(source.summary(rows.scan(), without_answer))


def predict_by_ray(args: argparse.Namespace, folder: Path) -> None:
    """Classify the files that the command line names with Ray, and say how many rows they have."""
    from ..prediction.many_files import predict_files
    from ..prediction.open_model import ComputeOptions, open_model

    threshold = args.threshold
    if threshold is not None and not isinstance(threshold, float):
        # The actors open the model themselves, so the threshold is chosen here.
        threshold = open_model(folder, ComputeOptions("cpu"), threshold).threshold
    names = ("output_format", "actors", "on_bad_row", "device", "precision", "batch_tokens")
    options = {name: getattr(args, name) for name in names}
    rows = predict_files(args.input, args.output, folder, threshold=threshold, **options, **args.asked)
    say(f"{args.output}: {counted(rows, 'row')}, each of them once")


def report(args: argparse.Namespace, model_folder: Path) -> int:
    """Classify rows with labels, write a report on them and print it; returns and raises as `run` does."""
    from ..prediction.labelled_rows import check_report_folder, report_on
    from ..prediction.open_model import open_model
    from ..prediction.sources import open_file

    folder = check_report_folder(args.report)
    with ended_by_ctrl_c():
        opened = open_model(model_folder, args.compute, args.threshold)
    has_several = opened.predictor.task.form.has_several
    for name in ("label_separator", "label_columns"):
        if has_several or args.asked[name] is None:
            continue
        raise InputError(
            "--data.label_separator and --data.label_columns are for several labels a row, and "
            f"{opened.folder} has one; leave them out"
        )
    source = open_file(args.input, opened.trained, args.asked, need_label=True)
    opened.trained.check_pairs(source.has_pairs, PAIRS_REMEDY)
    source = source.scanned(args.on_bad_row)
    with progress_bar(source.scan.num_good, _is_terminal(sys.stderr)) as bar:
        rows = source.rows(args.on_bad_row, with_records=True)
        text = report_on(opened, rows, source, folder, bar.update)
    status = show(f"{text}\n")
    say(source.summary(source.scan))
    say(f"Saved in {folder}")
    return status
