"""Classify texts with a trained checkpoint.

python -m app predict 今天真开心                                        with the run that finished last
python -m app predict checkpoints/sample-001 今天真开心 气死我了        with this run
python -m app predict --input reviews.csv --output labels.csv           a file; .txt is one text a line
cat lines.txt | python -m app predict checkpoints/sample-001            one text a line
python -m app predict checkpoints/pairs-001 怎么退款 --text_pair 钱能退吗
python -m app predict --checkpoint a --checkpoint b --input pool.csv --output soft.csv   both together
python -m app predict --engine ray --input posts/ --output labels/      many files or GPUs, see docs/data.md
python -m app predict --input new.csv --label_column 标签 --report out/   rows with labels: how good is it?
python -m app predict --input new.csv --report out/ --teacher gpt         and what a teacher adds

The output has a row for each row of the input, in its order: all columns of the input as they are (of plain
text: line, the row's number in its file, text, and of pairs text_pair); then label, probability, and
p_<label> for each label, of more than 50 labels most_probable, a JSON list of ten (of a model with several
labels a row: labels, a JSON list, and these); with --threshold also decision and margin, or confidence. Where
the input has a column of such a name, the new one is called predicted_<name>. An invalid row has no label,
but a reason in the last column.

No file or folder that exists is written to without --overwrite. The new file is written beside the old one
and takes its place when it is complete. In a folder of --report its four files are replaced, and others stay.

Files are read as in the run's training: its columns, separators and encoding, unless an option says
otherwise; long texts and spaces too. Further settings of reading have their names of training:
--data.sheet 反馈, --data.encoding gb18030, --data.header, --data.quoting, --data.label_separator,
--data.label_columns. Exit status: 0, 1 for an output that cannot be written or a model that gives no numbers,
2 for bad input, 130 when interrupted, 141 when the reader of the output is gone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from ..data.read import FORMATS
from ..errors import InputError, counted, say, show
from ..prediction import OF_LABELS, ON_BAD_ROW, SUFFIXES, WantedPrecision
from ..runtime.processes import ended_by_ctrl_c
from .named_model import (
    AddRun,
    Words,
    add_checkpoint,
    check_one_model,
    check_texts,
    named_model,
    take_first,
    take_model,
)
from .parser import Parser, add_computing, add_overwrite, number, setting

# Options that say how a file is read; where one is not given, the file is read as in the run's training.
COLUMNS = {
    "text_column": "column of the text, by name or number from 0 (default: as in the run, else a usual name)",
    "text_pair_column": "column of the second text of a pair (default: as in the run)",
    "label_column": "column of the label, for --report only (default: as in the run, else its usual name)",
}
MORE_READING = ("sheet", "encoding", "header", "quoting", "label_separator", "label_columns")
CHECKPOINT = (
    "the same as RUN in the first place (default: the newest finished run); given several times, these runs "
    "answer by the mean of their probabilities"
)
PAIRS_REMEDY = (
    "a pair is a TEXT and --text_pair, or a row of a file, with the columns of the run's training or "
    "--text_pair_column"
)


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    usage = f"{program} [RUN] [OPTION ...] TEXT ... | --input FILE"
    parser = Parser(program, __doc__, usage=usage)
    add = parser.add_argument
    words = (
        "a run, an exported folder or a transformers checkpoint (default: the newest finished run); then the "
        "texts to classify, after -- any that begin with a dash or are the name of a file"
    )
    add("words", nargs="*", metavar="RUN TEXT", help=words)
    add_checkpoint(add, CHECKPOINT, action=AddRun)
    pair = "the second text of a pair; for one TEXT (default: none)"
    add("--text_pair", metavar="TEXT", help=pair)
    source = (
        "file of texts, or an address such as s3://bucket/a.csv; for --engine ray also a folder, or a "
        "pattern in quotes; - is standard input (default: standard input, where it is a pipe or a file and "
        "there is no TEXT)"
    )
    add("--input", metavar="FILE", help=source)
    output = (
        "file to write, in UTF-8: .csv, .jsonl, .xlsx or .parquet; with --engine ray a folder, of CSV files "
        "if its name ends in .csv, else of Parquet (default: standard output, as CSV)"
    )
    add("--output", metavar="FILE", help=output)
    overwrite = "replace the file of --output, or the files of --report (default: what exists is an error)"
    add_overwrite(add, overwrite)
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
        "for rows with labels: the folder for report.html, report.txt, report.json and predictions.csv "
        "(default: none)"
    )
    add("--report", metavar="FOLDER", help=folder)
    teacher = (
        "for --report: the column with a teacher's labels, such as those of a language model; rows may have "
        "its label only; --threshold precision=P is then chosen on the rows that a person labelled (default: "
        "teacher_label, where the file has it)"
    )
    add("--teacher", metavar="COLUMN", help=teacher)
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
    return (
        problem_of_checkpoints(args)
        or problem_of_input(args)
        or problem_of_labels(args)
        or problem_of_output(args)
    )


def problem_of_checkpoints(args: argparse.Namespace) -> str | None:
    if len(args.checkpoints) < 2:
        return None
    if args.model is not None:
        return "several runs are named by --checkpoint alone; write --checkpoint before the first RUN too"
    if args.report is not None or args.engine is not None:
        return "several --checkpoint write predictions only; remove --report and --engine, or name one run"
    if isinstance(args.threshold, WantedPrecision):
        return "--threshold precision=P is chosen for one run; set a probability, or name one --checkpoint"
    return None


def problem_of_input(args: argparse.Namespace) -> str | None:
    is_ray = args.engine is not None
    if args.report is not None and (args.input is None or args.output or is_ray):
        return "--report needs a file with labels, --input FILE; remove TEXTs, --output and --engine"
    if bool(args.texts) == (args.input is not None):
        return "texts are needed, or --input FILE, not both"
    if args.text_pair is not None and len(args.texts) != 1:
        return "--text_pair is for one TEXT; pairs are read from --input FILE, with --text_pair_column"
    if is_ray and (args.input in (None, "-") or args.output is None):
        return "--engine ray needs files --input and a new folder --output"
    if args.actors is not None and not is_ray:
        return "--actors is for --engine ray; add it, or remove --actors"
    return None


def problem_of_labels(args: argparse.Namespace) -> str | None:
    is_report = args.report is not None
    label_options = [name for name in OF_LABELS if args.asked[name] is not None]
    if label_options and not is_report:
        return "--label_column and other settings of labels are for --report FOLDER; add it, or remove them"
    if "label_columns" in label_options and len(label_options) > 1:
        return "--data.label_columns is instead of --label_column and --data.label_separator; remove these"
    if args.teacher is not None and not is_report:
        return "--teacher is for --report FOLDER; add it, or remove --teacher"
    if is_report and args.on_bad_row == "keep":
        return "--report: set --on_bad_row to error or skip"
    return None


def problem_of_output(args: argparse.Namespace) -> str | None:
    is_ray = args.engine is not None
    if not is_ray and args.output is not None and Path(args.output).suffix.lower() not in SUFFIXES:
        return f"--output {args.output}: the name must end in {', '.join(SUFFIXES)}, a folder needs --engine"
    if args.overwrite and is_ray:
        return "--engine ray writes into a new folder only; remove --overwrite, and choose another --output"
    if args.overwrite and args.output is None and args.report is None:
        return "--overwrite is for --output FILE or --report FOLDER; add one of them, or remove it"
    return None


def parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    """Return the options, with the `model` that the first word names, the `texts`, and `output_format`;
    raises InputError for values that do not go together."""
    args, words = parser.parse_words(argv)
    args.checkpoints = args.checkpoint or []
    args.checkpoint = next(iter(args.checkpoints), None)
    args.model, args.words = take_model(words)
    if args.model is None and _must_be_model(words, args):
        args.model, args.words = take_first(words)
    check_one_model(args.model, args.checkpoint)
    args.texts = args.words.all
    args.is_piped = _reads_pipe(args)
    if args.is_piped:
        args.input = "-"
    if args.output in ("-", "/dev/stdout"):
        args.output = None
    args.asked = {name: getattr(args, name) for name in ("format", *COLUMNS, *MORE_READING)}
    if args.on_bad_row is None:
        args.on_bad_row = "keep"
        if args.texts or args.report is not None:
            args.on_bad_row = "error"
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


def _must_be_model(words: Words, args: argparse.Namespace) -> bool:
    """Return whether the first word can only be meant as a model, though it is none: --input has the texts,
    or --text_pair takes one TEXT."""
    if args.checkpoint is not None:
        return False
    if args.input is not None:
        return len(words.before) == 1 and not words.after
    return args.text_pair is not None and len(words.before) == 2


def _reads_pipe(args: argparse.Namespace) -> bool:
    """Return whether texts come from standard input because nothing else has any."""
    if args.texts or args.input is not None or args.text_pair is not None:
        return False
    if args.report is not None or args.engine is not None:
        return False
    return sys.stdin is not None and not sys.stdin.isatty()


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
    check_texts(args.words)
    if args.is_piped:
        check_standard_input()
    from ..prediction.open_model import ComputeOptions

    args.compute = ComputeOptions(args.device, args.precision, args.batch_tokens)
    folder = named_model(args.model, args.checkpoint)
    if args.engine == "ray":
        predict_by_ray(args, folder)
    elif args.report is not None:
        return report(args, folder)
    else:
        predict(args, folder)
    return 0


def check_standard_input() -> None:
    """Say that texts are read from standard input; raise InputError where it is empty."""
    say("reading texts from standard input")
    if not sys.stdin.buffer.peek(1):
        raise InputError(
            "no TEXT and no --input FILE is named, and standard input is empty; name texts or a file, or "
            "pipe texts into this command"
        )


def predict(args: argparse.Namespace, folder: Path) -> None:
    """Classify texts or the rows of a file, and write them as the command line says."""
    from ..prediction.averaged import open_averaged
    from ..prediction.open_model import open_model
    from ..prediction.output import write_predictions
    from ..prediction.output_files import check_output
    from ..prediction.sources import open_file, source_of_texts
    from ..prediction.trained_model import read_trained_model

    trained = read_trained_model(folder)
    if args.texts:
        texts = args.texts
        if args.text_pair is not None:
            texts = [(args.texts[0], args.text_pair)]
        source = source_of_texts(texts, trained.reading.remove_spaces)
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
        check_output(args.output, overwrite=args.overwrite, source=args.input)
    # Reading a file twice is cheap, and finds a bad last row before the first one is classified
    total = None
    if not source.is_stream:
        source = source.scanned(args.on_bad_row)
        total = source.scan.num_good
    with ended_by_ctrl_c():
        if len(args.checkpoints) > 1:
            opened = open_averaged(args.checkpoints, args.compute, args.threshold)
        else:
            opened = open_model(folder, args.compute, args.threshold)
    # Lines of predictions on a terminal would be torn apart by a bar
    is_output_seen = args.output is None and _is_terminal(sys.stdout)
    has_bar = _is_terminal(sys.stderr) and not is_output_seen
    with progress_bar(total, has_bar) as bar:
        # Parquet is written with the columns of the file itself
        rows = source.rows(args.on_bad_row, with_records=not is_parquet)
        predictions = opened.predictor.predict(rows, on_batch=bar.update)
        write_predictions(
            args.output,
            format=args.output_format,
            source=source,
            opened=opened,
            predictions=predictions,
            on_bad_row=args.on_bad_row,
            overwrite=args.overwrite,
        )
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
    from ..prediction.teacher_labels import teacher_column, with_threshold

    folder = check_report_folder(args.report, args.overwrite, args.input)
    with ended_by_ctrl_c():
        opened = open_model(model_folder, args.compute)
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
    teacher = teacher_column(source, opened, args.teacher)
    if teacher is not None:
        source.reader.accept_empty_labels()
    opened, teacher = with_threshold(opened, teacher, args.threshold)
    source = source.scanned(args.on_bad_row)
    with progress_bar(source.scan.num_good, _is_terminal(sys.stderr)) as bar:
        rows = source.rows(args.on_bad_row, with_records=True)
        text = report_on(opened, rows, source, folder, bar.update, teacher)
    status = show(f"{text}\n")
    say(source.summary(source.scan))
    say(f"Saved in {folder}")
    return status
