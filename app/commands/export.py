"""Export a trained model for ONNX Runtime, and compare it with the original on its own dev rows.

python -m app export checkpoints/sample-001
python -m app export checkpoints/sample-001 --precision int8 --output small-model
python predict.py --checkpoint small-model 今天真开心

Writes a new folder with the graph, the tokenizer and a record of the comparison: the largest difference of a
logit, how many labels changed, also of the rows of which the model was sure, macro F1 before and after.
predict and serve take the folder like a run, and do not need torch for it. Exit status: 0, 1 where more
changed than allowed (nothing is then written), 2 for bad input.
"""

from pathlib import Path

from ..config.shipped import PROGRAM
from . import say
from .parser import Parser, number


def run(argv: list[str], program: str) -> int:
    """Export and print the comparison; return the exit status."""
    add = (parser := Parser(program, __doc__)).add_argument
    model = "a run, or a checkpoint of another program (then with --rows)"
    add("model", type=Path, metavar="RUN", help=model)
    precision = "int8 is smaller, and faster on most CPUs (default: fp32)"
    add("--precision", choices=["fp32", "int8"], default="fp32", help=precision)
    output = "folder to write (default: RUN-onnx, or RUN-onnx-int8)"
    add("--output", type=Path, metavar="FOLDER", help=output)
    tolerance = "largest share of the labels with a probability of at least 0.6 that may change"
    tolerance += " (default: 0.001, for int8 0.01)"
    add("--tolerance", type=number(float, 0, 1), metavar="SHARE", help=tolerance)
    add("--rows", metavar="FILE", help="file of texts to compare on (default: the dev rows of the run)")
    args = parser.parse_args(argv)
    from ..export.export import export

    ending = "-onnx" if args.precision == "fp32" else f"-onnx-{args.precision}"
    output = args.output or Path(f"{args.model}{ending}")
    proof, problem = export(args.model, output, say, args.precision, args.tolerance, args.rows)
    print(proof)
    if problem is None:
        print(f"Saved in {output}; classify text with: python predict.py --checkpoint {output} 今天真开心")
        return 0
    remedy = f"Predict with the run itself: python predict.py --checkpoint {args.model} --input FILE"
    if args.precision == "int8":
        remedy = f"In fp32 it is exact, and larger and slower: {PROGRAM} export {args.model}"
    say(f"error: {problem}; nothing is written. {remedy}")
    return 1
