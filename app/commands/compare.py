"""Is run B better than run A? Both must have been evaluated on the same rows.

python -m app compare checkpoints/sample-001 checkpoints/sample-002
python -m app compare checkpoints/sample-001 checkpoints/sample-002 checkpoints/sample-003

Each run is compared with the first one: the differences of accuracy, macro F1 and loss with their 95 % paired
bootstrap intervals; how many rows it has won and lost; and the p-value of McNemar's exact test. Other values
of data.task have other metrics: of several labels a row micro F1, macro F1, samples F1, subset accuracy and
loss, and a row is right where all its labels are; of numbers the errors, the correlations and loss, and a row
is right where it is at most half a standard deviation of these rows off. The differences do not contain the
variance of random seeds. Exit status: 0, 2 for bad input.
"""

from pathlib import Path

from ..errors import InputError
from .parser import Parser


def run(argv: list[str], program: str) -> None:
    """Print each run's comparison with the first; raises InputError for runs that cannot be compared."""
    parser = Parser(program, __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    first, *others = parser.parse_args(argv).runs
    if not others:
        raise InputError(f"two or more runs are needed, found {first} only")
    from ..runs.comparing import compare_runs

    print("\n\n".join(compare_runs(first, other) for other in others))
