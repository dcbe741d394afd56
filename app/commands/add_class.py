"""Add a class to a trained model from a few texts, without training.

python -m app add-class checkpoints/sample-001 --name 物流 --texts five.txt --output checkpoints/new
python -m app add-class checkpoints/sample-001 --name 物流 --texts five.txt --output new --may_lose 0.02
python predict.py --checkpoint checkpoints/new 快递三天还没有到

five.txt has one text a line; other formats are read as in the run's training. Writes a new folder, which
predict, serve and export take like a run; nothing of the run is changed. It says what the other classes lose
on dev rows of the run. Training again with more rows of the class is better, where there are some. Exit
status: 0, 2 for bad input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ..config.shipped import PROGRAM
from ..errors import InputError
from .exit_status import exit_status, say
from .predict_options import Parser


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        program,
        description=__doc__.replace("python -m app add-class", program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("model", type=Path, metavar="RUN", help="a run of one label a row")
    add("--name", required=True, help="the new class")
    add("--texts", required=True, metavar="FILE", help="texts of the new class; five are enough to begin")
    add("--output", type=Path, required=True, metavar="FOLDER", help="the new folder")
    share = "share of the run's right dev rows that may go to the new class (default: 0.05)"
    add("--may_lose", type=float, default=0.05, metavar="SHARE", help=share)
    return parser


def run(args: argparse.Namespace) -> None:
    """Add the class; raises InputError for bad input."""
    if not 0 <= args.may_lose < 1:
        raise InputError(f"--may_lose must be a share from 0 to below 1, found {args.may_lose:g}")
    from ..export.added_class import add_class

    added = add_class(args.model, args.output, args.name, args.texts, args.may_lose, say)
    print(added.render())
    print(
        f"Saved in {args.output}; classify text with: python predict.py --checkpoint {args.output} 今天真开心"
    )


def main(argv: list[str], program: str = f"{PROGRAM} add-class") -> int:
    """Run the command line; return the exit status."""
    return exit_status(lambda: run(build_parser(program).parse_args(argv)))
