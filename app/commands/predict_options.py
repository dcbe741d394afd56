"""The command line of `predict`: its options, which of them go together, and the formats that file names stand for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from app.data.readers import file_format
from app.errors import InputError, nearest
from app.prediction.output import WRITERS
from app.prediction.sources import is_pipe

OUTPUT_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


class Parser(argparse.ArgumentParser):
    """argparse's parser, with errors in this project's form."""

    def error(self, message: str) -> None:
        raise InputError(f"command line: {message} (--help lists all options)")


def build_parser(program: str, description: str) -> Parser:
    """Return the parser of the command line of `program`."""
    parser = Parser(
        program,
        f"{program} [--checkpoint FOLDER] [OPTION ...] TEXT ... | --input FILE",
        description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts to classify; after -- they may begin with a dash")
    folder = "a run, or any transformers checkpoint for sequence classification (default: the newest finished run)"
    add("--checkpoint", metavar="FOLDER", help=folder)
    _add_input_options(parser.add_argument_group("input").add_argument)
    _add_output_options(parser.add_argument_group("output").add_argument)
    _add_device_options(parser.add_argument_group("computing").add_argument)
    return parser


def _add_input_options(add: Callable) -> None:
    """Add the options that decide what the rows are; they mean what they mean in training."""
    add("--input", metavar="FILE", help="file of texts; - is standard input (default: none)")
    formats = ["auto", "text", "csv", "tsv", "json", "jsonl", "parquet"]
    text = "text is one text a line (default: auto, by the file's name; .txt and standard input are text)"
    add("--format", choices=formats, default="auto", help=text)
    column = "column of the text, by name or by number from 0 (default: by its usual name, else 0)"
    add("--text_column", type=_column, metavar="COLUMN", help=column)
    pair = "column of the second text of a pair (default: none)"
    add("--text_pair_column", type=_column, metavar="COLUMN", help=pair)
    header = "whether the first line of CSV or TSV names the columns (default: if it contains usual names)"
    add("--header", choices=["true", "false"], help=header)
    add("--encoding", default="utf-8", help="encoding of text files: utf-8, gb18030, ... (default: utf-8)")
    quoting = "whether double quotes enclose fields (default: auto, in CSV they do, in TSV they are text)"
    add("--quoting", choices=["auto", "none", "double"], default="auto", help=quoting)
    bad = "how invalid rows are handled: stop with an error, or skip and list them (default: error)"
    add("--on_bad_row", choices=["error", "skip"], default="error", help=bad)


def _add_output_options(add: Callable) -> None:
    add("--output", metavar="FILE", help="file to write, in UTF-8 (default: standard output)")
    formats = (
        "format of the output (default: auto, by its file's name; standard output: csv, TEXTs to a terminal: lines)"
    )
    add("--output_format", choices=["auto", *WRITERS], default="auto", help=formats)


def _add_device_options(add: Callable) -> None:
    devices = "auto, cpu, cuda, cuda:N or mps (default: auto, CUDA if available, else MPS, else CPU)"
    add("--device", default="auto", help=devices)
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast (default: fp32)")
    tokens = (
        "maximum tokens in a batch, its rows times its longest row (default: 1024 on the CPU, 32768 on other devices)"
    )
    add("--batch_tokens", type=int, metavar="TOKENS", help=tokens)


def _column(value: str) -> int | str:
    return int(value) if value.removeprefix("-").isdecimal() else value


def parse(parser: Parser, argv: list[str]) -> argparse.Namespace:
    """Return the command line's values, formats resolved; raises InputError for values that do not go together."""
    dashes = argv.index("--") if "--" in argv else len(argv)
    args, unknown = parser.parse_known_intermixed_args(argv[:dashes])
    args.texts += argv[dashes + 1 :]
    if args.output in ("-", "/dev/stdout"):
        args.output = None
    if unknown:
        parser.error(f"there is no option {unknown[0]}{nearest(unknown[0], parser._option_string_actions)}")
    if bool(args.texts) == (args.input is not None):
        parser.error("texts are needed, or --input FILE (- is standard input), not both")
    if args.batch_tokens is not None and args.batch_tokens < 1:
        parser.error(f"--batch_tokens must be at least 1, found {args.batch_tokens}")
    if args.input is not None and args.format == "auto":
        path = Path(args.input)
        is_text = args.input == "-" or path.suffix.lower() == ".txt" or is_pipe(path)
        args.format = "text" if is_text else file_format(path, "auto")
    has_columns = args.texts == [] and args.format != "text"
    if not has_columns and (args.text_column, args.text_pair_column) != (None, None):
        parser.error("plain text has no columns; remove --text_column and --text_pair_column, or set --format tsv")
    if args.output_format == "auto":
        args.output_format = _output_format(args, parser)
    return args


def _output_format(args: argparse.Namespace, parser: Parser) -> str:
    if args.output is None:
        return "lines" if args.texts and sys.stdout is not None and sys.stdout.isatty() else "csv"
    suffix = Path(args.output).suffix.lower()
    if suffix not in OUTPUT_SUFFIXES:
        parser.error(
            f"--output {args.output}: the name must end in {', '.join(OUTPUT_SUFFIXES)}; or set --output_format"
        )
    return OUTPUT_SUFFIXES[suffix]
