"""Classify texts with a trained checkpoint.

python predict.py 今天真开心                                        with the run that finished last
python predict.py --checkpoint checkpoints/sample-001 今天真开心 气死我了
python predict.py --input reviews.csv --output labels.csv           a file; one that ends in .txt is one text a line
cat lines.txt | python predict.py --input - --output_format jsonl

The output has a row for each row of the input, in its order: line (the row's number in its file), text, text_pair where
there is one, label, probability, and p_<label> for each label. Rows are cut at the length, and spaces removed, as in the
run's training. Exit status: 0, 2 for bad input, 130 when interrupted, 141 when the reader of the output is gone.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.data.readers import ReadOptions, file_format
from app.errors import InputError, nearest
from app.prediction.files import WRITERS, Source, check_output, is_pipe, open_file, open_output, open_texts, progress

if TYPE_CHECKING:
    from app.prediction.predictor import Predictor  # imports torch, which --help does without

OUTPUT_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
# The trainer's name of a setting, as messages of the shared reading code have it; here it has no group.
TRAINER_NAMES = re.compile(
    r"(?<![\w./-])(?:--)?(?:data|train)\.(format|encoding|quoting|header|text_column|text_pair_column|device)\b"
)


class Parser(argparse.ArgumentParser):
    """argparse's parser, with errors in this project's form."""

    def error(self, message: str) -> None:
        raise InputError(f"command line: {message} (--help lists all options)")


def build_parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        "predict.py",
        "python predict.py [--checkpoint FOLDER] [OPTION ...] TEXT ... | --input FILE",
        __doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("texts", nargs="*", metavar="TEXT", help="texts to classify; behind -- they may begin with a dash")
    folder = "a run, or any transformers checkpoint for sequence classification (default: the newest finished run)"
    add("--checkpoint", metavar="FOLDER", help=folder)
    add_input_options(parser.add_argument_group("input").add_argument)
    group = parser.add_argument_group("output")
    group.add_argument("--output", metavar="FILE", help="file to write, in UTF-8 (default: standard output)")
    formats = (
        "format of the output (default: auto, by its file's name; standard output: csv, TEXTs to a terminal: lines)"
    )
    group.add_argument("--output_format", choices=["auto", *WRITERS], default="auto", help=formats)
    add = parser.add_argument_group("computing").add_argument
    add(
        "--device",
        default="auto",
        help="auto, cpu, cuda, cuda:N or mps (default: auto, the first there is of CUDA, MPS, CPU)",
    )
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast (default: fp32)")
    tokens = "most tokens in a batch, rows times the longest (default: 1024 on the CPU, 32768 elsewhere)"
    add("--batch_tokens", type=int, metavar="TOKENS", help=tokens)
    return parser


def add_input_options(add: Callable) -> None:
    """Add the options that decide what the rows are; they mean what they mean in training."""
    add("--input", metavar="FILE", help="file of texts; - is standard input (default: none)")
    formats = ["auto", "text", "csv", "tsv", "json", "jsonl", "parquet"]
    text = "text is one text a line (default: auto, by the file's name; .txt and standard input are text)"
    add("--format", choices=formats, default="auto", help=text)
    column = "column of the text, by name or by number from 0 (default: found by its usual name, else 0)"
    add("--text_column", type=_column, metavar="COLUMN", help=column)
    add(
        "--text_pair_column", type=_column, metavar="COLUMN", help="column of the second text of a pair (default: none)"
    )
    header = "whether the first line of CSV or TSV names the columns (default: where the names say so)"
    add("--header", choices=["true", "false"], help=header)
    add("--encoding", default="utf-8", help="encoding of text files: utf-8, gb18030, ... (default: utf-8)")
    quoting = "whether double quotes enclose fields (default: auto, in CSV they do, in TSV they are text)"
    add("--quoting", choices=["auto", "none", "double"], default="auto", help=quoting)
    bad = "what a row that breaks a rule does: stop with an error, or be left out and listed (default: error)"
    add("--on_bad_row", choices=["error", "skip"], default="error", help=bad)


def _column(value: str) -> int | str:
    return int(value) if value.removeprefix("-").isdecimal() else value


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values, formats resolved; raises InputError for values that do not go together."""
    parser = build_parser()
    words = list(sys.argv[1:] if argv is None else argv)
    dashes = words.index("--") if "--" in words else len(words)
    args, unknown = parser.parse_known_intermixed_args(words[:dashes])
    args.texts += words[dashes + 1 :]
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
        parser.error("plain text has no columns; leave out --text_column and --text_pair_column, or set --format tsv")
    if args.output_format == "auto":
        args.output_format = _output_format(args, parser)
    return args


def _output_format(args: argparse.Namespace, parser: Parser) -> str:
    if args.output is None:
        return "lines" if args.texts and sys.stdout.isatty() else "csv"
    suffix = Path(args.output).suffix.lower()
    if suffix not in OUTPUT_SUFFIXES:
        parser.error(
            f"--output {args.output}: the name must end in {', '.join(OUTPUT_SUFFIXES)}; or set --output_format"
        )
    return OUTPUT_SUFFIXES[suffix]


def open_source(args: argparse.Namespace) -> Source:
    """Return the rows that the command line asks for."""
    if args.texts:
        return open_texts(args.texts)
    header = None if args.header is None else args.header == "true"
    columns = {"text_column": args.text_column, "text_pair_column": args.text_pair_column, "header": header}
    return open_file(args.input, ReadOptions(args.format, encoding=args.encoding, quoting=args.quoting, **columns))


def say(message: object) -> None:
    """Tell the user on standard error, with the names that settings have here."""
    text = str(message).replace(" and --data.label_column", "")
    print(TRAINER_NAMES.sub(r"--\1", text), file=sys.stderr)


def count_rows(source: Source, args: argparse.Namespace) -> int | None:
    """Return the rows of a source, None for a stream; raises InputError for bad rows, unless they are skipped.

    To read a file twice is cheap next to classifying it, and tells of a bad last row before the first is classified.
    """
    if source.is_stream:
        return None
    total = source.count(args.on_bad_row == "skip")
    if args.format == "text" and "\t" in next(source.good_rows(False, skip=True)).text:
        say(f"warning: {source.name} is read as plain text, and has tabs; is it a table (--format tsv)?")
    return total


def open_predictor(args: argparse.Namespace) -> tuple[Predictor, bool]:
    """Return the predictor of the chosen checkpoint, and whether spaces are removed from its texts."""
    from app.prediction.predictor import load_predictor
    from app.prediction.saved_model import newest_run, run_settings

    folder = Path(args.checkpoint) if args.checkpoint else newest_run()
    if not args.checkpoint:
        say(f"checkpoint {folder}")
    settings = run_settings(folder)
    has_pairs = args.text_pair_column is not None
    if settings and has_pairs != (settings.get("text_pair_column") is not None):
        trained, given = ("single texts", "pairs") if has_pairs else ("pairs", "single texts")
        say(f"warning: {folder} was trained on {trained}, and these are {given} (--text_pair_column)")
    device = {"device": args.device, "precision": args.precision, "batch_tokens": args.batch_tokens}
    return load_predictor(folder, settings.get("max_length"), **device), bool(settings.get("remove_spaces"))


def run(args: argparse.Namespace) -> None:
    """Classify what the command line asks for; raises InputError for bad input."""
    source = open_source(args)
    if args.output is not None:
        check_output(args.output, args.input)
    total = count_rows(source, args)
    predictor, remove_spaces = open_predictor(args)
    rows = source.good_rows(remove_spaces, args.on_bad_row == "skip")
    shown = sys.stderr.isatty() and not (args.output is None and sys.stdout.isatty())
    with open_output(args.output) as file, progress(total, shown) as on_batch:
        # Somebody who types texts wants an answer to each.
        predictions = predictor.predict(rows, on_batch=on_batch, **({"chunk_rows": 1} if source.is_terminal else {}))
        WRITERS[args.output_format](file, predictions, predictor.label_names, args.text_pair_column is not None)
    if args.input is not None or source.num_bad:
        say(source.summary())


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    try:
        run(parse(argv))
    except InputError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:
        # The rest of the output has no reader; Python would complain of it once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
