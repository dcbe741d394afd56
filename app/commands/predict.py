"""Classify texts with a trained checkpoint.

python -m app predict 今天真开心                                        with the run that finished last
python -m app predict --checkpoint checkpoints/sample-001 今天真开心 气死我了
python -m app predict --input reviews.csv --output labels.csv           a file; one that ends in .txt is one text a line
cat lines.txt | python -m app predict --input - --output_format jsonl

The output has a row for each row of the input, in its order: line (the row's number in its file), text, text_pair where
there is one, label, probability, and p_<label> for each label. Rows are cut at the length, and spaces removed, as in the
run's training. Exit status: 0, 1 for a full disk or a model that gives no numbers, 2 for bad input, 130 when interrupted, 141 when the reader of the output is gone.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from app.commands.predict_options import build_parser, parse
from app.data.readers import ReadOptions
from app.errors import InputError, TrainingError
from app.prediction.output import WRITERS, check_output, open_output, progress
from app.prediction.sources import Source, open_file, open_texts

if TYPE_CHECKING:
    from app.prediction.predictor import Predictor  # imports torch, which --help does without

# Messages of the reading code have the trainer's names of settings; here the names have no group.
TRAINER_NAMES = re.compile(
    r"(?<![\w./-])(?:--)?(?:data|train)\.(format|encoding|quoting|header|text_column|text_pair_column|device)\b"
)


def open_source(args: argparse.Namespace) -> Source:
    """Return the rows that the command line asks for."""
    if args.texts:
        return open_texts(args.texts)
    header = None if args.header is None else args.header == "true"
    columns = {"text_column": args.text_column, "text_pair_column": args.text_pair_column, "header": header}
    return open_file(args.input, ReadOptions(args.format, encoding=args.encoding, quoting=args.quoting, **columns))


def say(message: object) -> None:
    """Print a message on standard error, with the names that settings have here; nothing where it is closed or full."""
    if sys.stderr is None:
        return
    text = str(message).encode(errors="backslashreplace").decode().replace(" and --data.label_column", "")
    with suppress(OSError):
        print(TRAINER_NAMES.sub(r"--\1", text), file=sys.stderr)


def count_rows(source: Source, args: argparse.Namespace) -> int | None:
    """Return the rows of a source, None for a stream; raises InputError for bad rows, unless they are skipped.

    Reading a file twice is cheap next to classifying it, and finds a bad last row before the first one is classified.
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


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def run(args: argparse.Namespace) -> None:
    """Classify what the command line asks for; raises InputError for bad input, TrainingError where it cannot be done."""
    source = open_source(args)
    check_output(args.output, args.input)
    total = count_rows(source, args)
    predictor, remove_spaces = open_predictor(args)
    rows = source.good_rows(remove_spaces, args.on_bad_row == "skip")
    shown = _is_terminal(sys.stderr) and not (args.output is None and _is_terminal(sys.stdout))
    with open_output(args.output) as file, progress(total, shown) as on_batch:
        # A person who types texts wants an answer after each line.
        predictions = predictor.predict(rows, on_batch=on_batch, **({"chunk_rows": 1} if source.is_terminal else {}))
        WRITERS[args.output_format](file, predictions, predictor.label_names, args.text_pair_column is not None)
    if args.input is not None or source.num_bad:
        say(source.summary())


def main(argv: list[str], program: str = "python -m app predict") -> int:
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
    """Drop what standard output does not take; else Python reports it again when it ends, with another exit status."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
