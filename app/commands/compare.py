"""Is run B better than run A? Both must have been evaluated on the same rows.

python -m app compare checkpoints/sample-001 checkpoints/sample-002
python -m app compare checkpoints/sample-001 checkpoints/sample-002 --output rows.csv
python -m app compare checkpoints/sample-001 checkpoints/sample-002 checkpoints/sample-003

Each run is compared with the first one: the differences of accuracy, macro F1 and loss with their 95 % paired
bootstrap intervals; how many rows it has won and lost; and the p-value of McNemar's exact test. --output
writes the rows that the second run has won and lost. Other values of data.task have other metrics: of several
labels a row micro F1, macro F1, samples F1, subset accuracy and loss, and a row is right where all its labels
are; of numbers the errors, the correlations and loss, and a row is right where it is at most half a standard
deviation of these rows off. The differences do not contain the variance of random seeds. Exit status: 0, 2
for bad input.
"""

from pathlib import Path

from ..errors import InputError
from .parser import Parser


def run(argv: list[str], program: str) -> None:
    """Print each run's comparison with the first; raises InputError for runs that cannot be compared."""
    add = (parser := Parser(program, __doc__)).add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs, two or more")
    add("--output", type=Path, metavar="FILE", help="CSV file of the rows won and lost, for two runs")
    args = parser.parse_args(argv)
    (first, *others), output = args.runs, args.output
    if not others or (output is not None and len(others) > 1):
        raise InputError(f"two runs are needed{' for --output' if output else ''}, found {len(args.runs)}")
    from ..runs.comparing import compare_runs, render_comparison, write_changed_rows

    compared = {run: compare_runs(first, run) for run in others}
    if output is not None:
        write_changed_rows(output, first, compared[others[0]])
    print("\n\n".join(render_comparison(first, *one) for one in compared.items()))
