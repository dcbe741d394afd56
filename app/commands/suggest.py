"""Choose the rows of a pool without labels that are worth labelling next, with the model's guess.

python -m app suggest pool.csv next.csv                    50 rows, by the run that finished last
python -m app suggest pool.csv next.csv --checkpoint checkpoints/sample-001 --num 100
python -m app suggest pool.csv next.csv --strategy embedding_kmeans

Rows that the run was trained or evaluated with are left out, and repeated texts. The strategies have the
names of the library small-text: random; by the probabilities, least_confidence and breaking_ties; by the
vectors of the texts, embedding_kmeans. highest_confidence is for self-training: the surest rows of each
label, to be trained on with the guess as label. CSV, JSON Lines and Excel have all columns of the pool, then
the guess and its probabilities, as predict writes them. No file is overwritten. Exit status: 0, 1 for a full
disk, 2 for bad input.
"""

from pathlib import Path

from ..data.rows import Row
from ..errors import InputError
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.output import SUFFIXES, check_output, write_predictions
from ..prediction.sources import open_file
from ..runtime.processes import ended_by_ctrl_c
from ..vectors import STRATEGIES
from . import say
from .parser import DEVICES, Parser, number

FORMATS = {suffix: format for suffix, format in SUFFIXES.items() if format != "parquet"}


def run(argv: list[str], program: str) -> None:
    """Choose and write; raises InputError for bad input, TrainingError where it cannot be done."""
    add = (parser := Parser(program, __doc__)).add_argument
    add("pool", metavar="POOL", help="file of texts without labels, read as in the run's training")
    add("target", metavar="OUT", type=Path, help="the new file; .csv, .jsonl or .xlsx")
    add("--checkpoint", type=Path, metavar="RUN", help="a run (default: the one that finished last)")
    add("--num", type=number(int, 1), default=50, help="rows to choose (default: 50)")
    add("--strategy", choices=STRATEGIES, default="breaking_ties", help="(default: breaking_ties)")
    add("--device", default="auto", help=DEVICES)
    args = parser.parse_args(argv)
    suffix = args.target.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{args.target}: the name must end in {', '.join(FORMATS)}")
    import numpy as np

    from ..prediction.model_folder import check_pairs, choose_run, dataset_of_run, recorded_settings
    from ..vectors.strategies import choose_rows

    folder = args.checkpoint or choose_run()
    check_output(str(args.target))
    recorded = recorded_settings(folder)
    source = open_file(args.pool, recorded, {}, keeps_columns=True)
    dataset = dataset_of_run(folder, "suggest needs", "name another run with --checkpoint")
    known = {(table.text(row), table.pair(row)) for table in dataset.tables for row in range(table.num_rows)}
    rows: dict[tuple, Row] = {}
    for row in source.rows("skip"):
        rows.setdefault((row.text, row.pair), row)
    new = [row for texts, row in rows.items() if texts not in known]
    counts = (len(new), source.num_good - len(rows), len(rows) - len(new), source.num_bad)
    said = "{:,} new rows; left out: {:,} repeated, {:,} known to the run, {:,} invalid".format(*counts)
    if not new:
        raise InputError(f"{source.name}: the pool has no new row ({said}); name another file")
    say(f"{source.name}: {said}")
    check_pairs(folder, recorded, source.has_pairs, "name a pool of the same form")
    with ended_by_ctrl_c():
        opened = open_model(folder, ComputeOptions(args.device))
    task = opened.predictor.task
    if not task.has_confidence:
        raise InputError(f"{folder}: suggest needs a model that says how sure it is, not a number")
    guesses = list(opened.predictor.predict(new))
    probabilities = np.stack([guess.probabilities for guess in guesses])
    vectors = np.empty((0, 0), np.float32)
    if args.strategy == "embedding_kmeans":
        vectors = opened.vectors(new)
    of_model = probabilities, task.confidence(probabilities), vectors
    chosen = choose_rows(args.strategy, min(args.num, len(new)), *of_model)
    write_predictions(args.target, FORMATS[suffix], source, task, [guesses[at] for at in chosen])
    say(f"{len(chosen):,} rows in {args.target}")
