"""The command line of `predict`: its options, and which of them go together."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ..data.file_formats import FORMATS
from ..errors import nearest
from ..prediction.open_model import MAX_EVIDENCE
from ..prediction.output import FORMATS as OUTPUT_FORMATS
from ..prediction.sources import ON_BAD_ROW, is_pipe
from ..runtime.processes import launched_number
from ..words import LANGUAGES
from .parser import (
    DEVICES,
    PROBABILITY,
    Parser,
    at_least,
    between,
    column_name,
    column_names,
    number,
    wanted_precision,
)

# --help shows these options; --help all shows the others too.
USUAL = {
    *("help", "texts", "checkpoint", "input", "text_column", "text_pair_column", "on_bad_row", "output"),
    *("only_labels", "engine", "actors", "report", "threshold", "abstain", "evidence"),
    "device",
}
OUTPUT_SUFFIXES = {f".{name}": name for name in ("csv", "xlsx", "jsonl", "parquet")} | {".ndjson": "jsonl"}


def build_parser(program: str, doc: str, all_help: bool = True) -> Parser:
    """Return the parser of the command line of `program`; its help has all options, or the usual ones."""
    parser = Parser(
        program,
        doc if all_help else "\n\n".join(doc.split("\n\n")[:2]),
        usage=f"{program} [--checkpoint FOLDER] [OPTION ...] TEXT ... | --input FILE",
        epilog=None if all_help else "--help all lists all options, and says what is written.",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=105),
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts to classify; after -- they may begin with a dash")
    folder = "a run, an exported folder or a transformers checkpoint (default: the newest finished run)"
    add("--checkpoint", metavar="FOLDER", help=folder)
    _add_input_options(parser.add_argument_group("input").add_argument)
    _add_output_options(parser.add_argument_group("output").add_argument)
    add = parser.add_argument_group("many files, GPUs or machines").add_argument
    engine = (
        "ray: by Ray Data, on this machine or the cluster of RAY_ADDRESS, from files in --input to files in "
        "a new folder --output (default: none)"
    )
    add("--engine", choices=["ray"], help=engine)
    actors = "processes of --engine ray with the model (default: one for each GPU, else for each machine)"
    add("--actors", type=number(int, at_least(1)), metavar="N", help=actors)
    add = parser.add_argument_group("how sure").add_argument
    evidence = (
        "adds the columns support, how many of the training rows with the nearest texts have the label, and "
        "evidence, these rows (default: none)"
    )
    add("--evidence", type=number(int, between(1, MAX_EVIDENCE)), metavar="ROWS", help=evidence)
    add_decision_options(add)
    add_device_options(parser.add_argument_group("computing").add_argument)
    for action in parser._actions:
        if not all_help and action.dest not in USUAL:
            action.help = argparse.SUPPRESS
    return parser


def _add_input_options(add: Callable) -> None:
    """Add the options that decide what the rows are; they mean what they mean in training. Where one is not
    given, the file is read as the run recorded."""
    file = (
        "file of texts, or an address such as s3://bucket/a.csv; for --engine ray also a folder, or a "
        "pattern in quotes; - is standard input (default: none)"
    )
    add("--input", metavar="FILE", help=file)
    text = (
        "text is one text a line (default: auto, by content, the run's format and name; other .txt and "
        "standard input are text)"
    )
    add("--format", choices=["auto", *FORMATS], default="auto", help=text)
    column = "column of the text, by name or by number from 0 (default: as in the run, else its usual name)"
    add("--text_column", type=column_name, metavar="COLUMN", help=column)
    pair = "column of the second text of a pair (default: as in the run)"
    add("--text_pair_column", type=column_name, metavar="COLUMN", help=pair)
    label = "column of the label, for --report only (default: as in the run, else its usual name)"
    add("--label_column", type=column_name, metavar="COLUMN", help=label)
    separator = (
        "for --report on several labels a row: what is between the labels of a cell (default: as in the run)"
    )
    add("--label_separator", metavar="TEXT", help=separator)
    columns = "for --report on several labels a row: columns of 0 and 1, '[A, B]' (default: as in the run)"
    add("--label_columns", type=column_names, metavar="LIST", help=columns)
    header = (
        "whether the first line of CSV, TSV or Excel names the columns (default: as in the run, else if it "
        "has usual names)"
    )
    add("--header", choices=["true", "false"], help=header)
    encoding = "encoding of text files (default: as in the run, else UTF-8, or GB18030 by the content)"
    add("--encoding", help=encoding)
    quoting = "whether double quotes enclose fields (default: as in the run; auto: in CSV yes, in TSV no)"
    add("--quoting", choices=["auto", "none", "double"], default="auto", help=quoting)
    bad = (
        "invalid rows: keep writes them without label, and the column reason says why; skip leaves them out, "
        "and lists them; error stops (default: keep; error for TEXTs and --report)"
    )
    add("--on_bad_row", choices=ON_BAD_ROW, help=bad)


def _add_output_options(add: Callable) -> None:
    file = "file to write, in UTF-8; with --engine ray a folder (default: standard output)"
    add("--output", metavar="FILE", help=file)
    only = "write line, text and predictions, without the other columns of the input (default: with them)"
    add("--only_labels", action="store_true", help=only)
    formats = (
        "format of the output (default: auto, by its file's name; standard output: csv, TEXTs to a terminal: "
        "lines)"
    )
    report = (
        "for rows with labels: a new folder for report.html, report.txt, report.json and predictions.csv "
        "(default: none)"
    )
    add("--report", metavar="FOLDER", help=report)
    add("--language", choices=LANGUAGES, default="auto", help="language of the report (default: auto, LANG)")
    add("--output_format", choices=["auto", *OUTPUT_FORMATS], default="auto", help=formats)
    bom = "begin CSV with a byte order mark, without which Excel shows no Chinese (default: without)"
    add("--bom", action="store_true", help=bom)


def add_decision_options(add: Callable) -> None:
    """Add the options that decide what probabilities are, and which of them are enough."""
    calibrate = (
        "auto: divide logits by the temperature that the run fitted on dev (decision.json), which "
        "changes probabilities and no label; none: probabilities as the model gives them (default: auto)"
    )
    add("--calibrate", choices=["auto", "none"], default="auto", help=calibrate)
    threshold = (
        "adds the columns decision, accept from this probability on and else abstain, and margin, the "
        "distance to the second largest probability; of several labels a row, confidence, how sure the "
        "least certain of them is (default: none)"
    )
    add("--threshold", type=number(float, PROBABILITY), metavar="PROBABILITY", help=threshold)
    abstain = (
        "the same, with the lowest threshold that has this precision on half of the run's dev rows; "
        "says how it does on the other half (default: none)"
    )
    add("--abstain", type=wanted_precision, metavar="precision=P", help=abstain)


def add_device_options(add: Callable) -> None:
    """Add the options that decide on what the model computes."""
    add("--device", default="auto", help=DEVICES)
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast (default: fp32)")
    tokens = (
        "maximum tokens in a batch, its rows times its longest row (default: 1024 on the CPU, with ONNX "
        "Runtime 256, 32768 on other devices)"
    )
    add("--batch_tokens", type=number(int, at_least(1)), metavar="TOKENS", help=tokens)


def parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    """Return the options, formats resolved; raises InputError for values that do not go together."""
    dashes = argv.index("--") if "--" in argv else len(argv)
    # Settings may have the trainer's names, as in the messages of the reading code: --data.text_column
    words = [f"--{word.removeprefix('--data.')}" if word.startswith("--data.") else word for word in argv]
    args, unknown = parser.parse_known_intermixed_args(words[:dashes])
    args.texts += argv[dashes + 1 :]
    if args.output in ("-", "/dev/stdout"):
        args.output = None
    if unknown:
        parser.error(f"there is no option {unknown[0]}{nearest(unknown[0], parser._option_string_actions)}")
    if bool(args.texts) == (args.input is not None):
        parser.error("texts are needed, or --input FILE (- is standard input), not both")
    check_combinations(args, parser)
    if args.engine == "ray":
        check_ray_options(args, parser)
        return args
    launched = launched_number("WORLD_SIZE", 1, least=1) if "RANK" in os.environ else 1
    if launched > 1:
        parser.error(
            f"one process writes a file, found {launched} (WORLD_SIZE); several are for --engine ray, which "
            "starts them itself"
        )
    if args.actors is not None:
        parser.error("--actors is for --engine ray; add it, or remove --actors")
    if args.output is not None and (args.output.endswith(os.sep) or Path(args.output).is_dir()):
        parser.error(f"--output {args.output}: a folder is written with --engine ray; add it, or name a file")
    if args.output_format == "auto":
        args.output_format = _output_format(args, parser)
    check_output_format(args, parser)
    return args


def check_ray_options(args: argparse.Namespace, parser: Parser) -> None:
    """Raise InputError for options that do not go with --engine ray; set the format of its files."""
    if args.input in (None, "-") or args.output is None or args.report is not None:
        parser.error("--engine ray needs files --input and a new folder --output, without --report")
    if args.only_labels or args.bom:
        parser.error("--engine ray writes all columns, in UTF-8; remove --only_labels and --bom")
    if args.output_format not in ("auto", "parquet", "csv"):
        parser.error(f"--engine ray writes parquet or csv, found --output_format {args.output_format}")
    args.output_format = "csv" if args.output_format == "csv" else "parquet"


def check_output_format(args: argparse.Namespace, parser: Parser) -> None:
    """Raise InputError for a format of the output that does not go with the other options."""
    if args.bom and args.output_format != "csv":
        parser.error(f"--bom is for CSV, and the output is {args.output_format}; remove it")
    if args.output_format in ("xlsx", "parquet") and args.output is None:
        kind = {"xlsx": "an Excel", "parquet": "a Parquet"}[args.output_format]
        parser.error(f"{kind} file is not for standard output; name a file with --output")
    if args.output_format == "parquet" and (args.input is None or args.only_labels):
        parser.error("Parquet is for all columns of a Parquet file; choose --output_format csv or jsonl")


def check_combinations(args: argparse.Namespace, parser: Parser) -> None:
    """Raise InputError for options that do not go together; set what is done with invalid rows."""
    if args.threshold is not None and args.abstain is not None:
        parser.error("--threshold sets the threshold and --abstain chooses one; remove one of them")
    if args.on_bad_row is None:
        args.on_bad_row = "error" if args.texts or args.report is not None else "keep"
    if args.report is not None:
        check_report_options(args, parser)
        return
    for name in ("label_column", "label_separator", "label_columns"):
        if getattr(args, name) is not None:
            parser.error(f"--{name} is for --report FOLDER; add it, or remove --{name}")


def check_report_options(args: argparse.Namespace, parser: Parser) -> None:
    """Raise InputError for options that do not go with --report."""
    if args.input is None or args.input == "-" or is_pipe(Path(args.input)):
        parser.error("--report needs a file of rows with labels: --input FILE")
    if args.on_bad_row == "keep":
        parser.error("--report is about rows with labels; set --on_bad_row to error or skip")
    if args.output is not None or args.output_format != "auto":
        parser.error("--report writes predictions.csv into its folder; remove --output and --output_format")


def _output_format(args: argparse.Namespace, parser: Parser) -> str:
    if args.output is None:
        return "lines" if args.texts and sys.stdout is not None and sys.stdout.isatty() else "csv"
    suffix = Path(args.output).suffix.lower()
    if suffix not in OUTPUT_SUFFIXES:
        parser.error(
            f"--output {args.output}: the name must end in {', '.join(OUTPUT_SUFFIXES)}; or set "
            "--output_format"
        )
    return OUTPUT_SUFFIXES[suffix]
