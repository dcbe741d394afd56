"""Export a trained model for ONNX Runtime, and compare it with the original on its own dev rows.

python -m app export checkpoints/sample-001 --to onnx
python -m app export checkpoints/sample-001 --to onnx --precision int8 --output small-model
python predict.py --checkpoint small-model 今天真开心

Writes a new folder with the graph, the tokenizer and a record of the comparison: the largest difference of a
logit, how many labels changed, also of the rows of which the model was sure, macro F1 before and after.
predict and serve take the folder like a run, and do not need torch for it. Exit status: 0, 1 where more
changed than allowed (the folder is then kept under another name), 2 for bad input.
"""

import argparse
from pathlib import Path

from ..config.shipped import PROGRAM
from .exit_status import say
from .parser import SHARE, Parser, at_least, number

TOLERANCE = {"fp32": 0.001, "int8": 0.01}
LOGIT_TOLERANCE = {"fp32": 0.001, "int8": None}


def build_parser(program: str) -> Parser:
    """Return the parser of the command line."""
    parser = Parser(program, __doc__)
    add = parser.add_argument
    model = "a run, or a checkpoint of another program (then with --rows)"
    add("model", type=Path, metavar="RUN", help=model)
    add("--to", choices=["onnx"], default="onnx", help="the form to export to (default: onnx)")
    precision = "int8 is smaller, and faster on most CPUs (default: fp32)"
    add("--precision", choices=list(TOLERANCE), default="fp32", help=precision)
    add("--output", type=Path, metavar="FOLDER", help="folder to write (default: RUN-onnx, or RUN-onnx-int8)")
    share = (
        "largest share that may change of the labels with a probability of at least 0.6 (default: 0.001, for "
        "int8 0.01)"
    )
    add("--tolerance", type=number(float, SHARE), metavar="SHARE", help=share)
    difference = "largest difference that a logit may have (default: 0.001, for int8 any)"
    add("--logit_tolerance", type=number(float, at_least(0)), metavar="DIFFERENCE", help=difference)
    add("--rows", metavar="FILE", help="file of texts to compare on (default: the dev rows of the run)")
    rows = "rows to compare on, chosen at random (default: 1000)"
    add("--num_rows", type=number(int, at_least(1)), default=1000, help=rows)
    return parser


def run(argv: list[str], program: str) -> int:
    """Export and print the comparison; return the exit status."""
    args = build_parser(program).parse_args(argv)
    from ..export.exported_folder import ExportOptions, export

    ending = "-onnx" if args.precision == "fp32" else f"-onnx-{args.precision}"
    output = args.output or Path(f"{args.model}{ending}")
    tolerance = TOLERANCE[args.precision] if args.tolerance is None else args.tolerance
    largest = LOGIT_TOLERANCE[args.precision] if args.logit_tolerance is None else args.logit_tolerance
    options = ExportOptions(args.precision, tolerance, largest, args.rows, args.num_rows)
    done = export(args.model, output, options, say)
    print(done.proof.render())
    if done.problem is None:
        print(
            f"Saved in {done.folder}; classify text with: python predict.py --checkpoint {done.folder} "
            "今天真开心"
        )
        return 0
    say(f"error: {done.problem}; it is kept in {done.folder}, which is not for use. {_next_command(args)}")
    return 1


def _next_command(args: argparse.Namespace) -> str:
    """Return what to do with an export that is not accepted."""
    if args.precision == "int8":
        return f"In fp32 it is exact, and larger and slower: {PROGRAM} export {args.model}"
    return f"Predict with the run itself: python predict.py --checkpoint {args.model} --input FILE"
