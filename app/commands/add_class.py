"""Add a class to a trained model from a few texts, without training.

python -m app add-class checkpoints/sample-001 --name 物流 --texts five.txt --output checkpoints/new
python -m app add-class checkpoints/sample-001 --name 物流 --texts five.txt --output new --may_lose 0.02
python predict.py --checkpoint checkpoints/new 快递三天还没有到

five.txt has one text a line; other formats are read as in the run's training. Writes a new folder, which
predict, serve and export take like a run; nothing of the run is changed. It says what the other classes lose
on dev rows of the run. Training again with more rows of the class is better, where there are some. Exit
status: 0, 2 for bad input.
"""

from pathlib import Path

from ..config.rules import Rule
from .exit_status import say
from .parser import Parser, number


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    parser = Parser(program, __doc__)
    add = parser.add_argument
    add("model", type=Path, metavar="RUN", help="a run of one label a row")
    add("--name", required=True, help="the new class")
    add("--texts", required=True, metavar="FILE", help="texts of the new class; five are enough to begin")
    add("--output", type=Path, required=True, metavar="FOLDER", help="the new folder")
    most = Rule("a share from 0 to below 1", lambda share: 0 <= share < 1)
    share = "share of the run's right dev rows that may go to the new class (default: 0.05)"
    add("--may_lose", type=number(float, most), default=0.05, metavar="SHARE", help=share)
    return parser


def run(argv: list[str], program: str) -> None:
    """Add the class; raises InputError for bad input."""
    args = build_parser(program).parse_args(argv)
    from ..export.added_class import add_class

    added = add_class(args.model, args.output, args.name, args.texts, args.may_lose, say)
    print(added.render())
    print(
        f"Saved in {args.output}; classify text with: python predict.py --checkpoint {args.output} 今天真开心"
    )
