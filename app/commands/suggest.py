"""Choose the rows of a pool without labels that are worth labelling next, with the model's guess.

python -m app suggest pool.csv next.csv                    50 rows, by the run that finished last
python -m app suggest pool.csv next.csv --checkpoint checkpoints/sample-001 --num 100
python -m app suggest pool.csv next.csv --strategy embedding_kmeans

Rows that the run was trained or evaluated with are left out, and repeated texts. The strategies have the
names of the library small-text: random; by the probabilities, least_confidence, prediction_entropy,
breaking_ties; by the vectors of the texts, embedding_kmeans, greedy_coreset. highest_confidence is for
self-training: the surest rows of each label, to be trained on with the guess as label. CSV, JSON Lines and
Excel have all columns of the pool, then the guess and its probabilities, as predict writes them. No file is
overwritten. Exit status: 0, 1 for a full disk, 2 for bad input.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.output import SUFFIXES, AddedColumns, check_output, write_predictions
from ..prediction.sources import Source, open_file
from ..runtime.processes import ended_by_ctrl_c
from ..vectors import STRATEGIES
from .exit_status import say
from .parser import DEVICES, Parser, at_least, number

if TYPE_CHECKING:
    from ..data.rows import Row
    from ..prediction.open_model import OpenedModel
    from ..prediction.predictor import Prediction

FORMATS = {suffix: format for suffix, format in SUFFIXES.items() if format != "parquet"}


def run(argv: list[str], program: str) -> None:
    """Choose and write; raises InputError for bad input, TrainingError where it cannot be done."""
    add = (parser := Parser(program, __doc__)).add_argument
    add("pool", metavar="POOL", help="file of texts without labels, read as in the run's training")
    add("target", metavar="OUT", type=Path, help="the new file; .csv, .jsonl or .xlsx")
    add("--checkpoint", type=Path, metavar="RUN", help="a run (default: the one that finished last)")
    add("--num", type=number(int, at_least(1)), default=50, help="rows to choose (default: 50)")
    add("--strategy", choices=STRATEGIES, default="breaking_ties", help="(default: breaking_ties)")
    add("--device", default="auto", help=DEVICES)
    args = parser.parse_args(argv)
    if args.target.suffix.lower() not in FORMATS:
        raise InputError(f"{args.target}: the name must end in {', '.join(FORMATS)}")
    from ..prediction.choose_run import choose_run
    from ..prediction.recorded_settings import check_pairs, recorded_settings

    check_output(str(args.target), args.pool)
    folder = args.checkpoint or choose_run()[0]
    recorded = recorded_settings(folder)
    source = open_file(args.pool, recorded, {}, keeps_columns=True)
    rows = new_rows(source, folder)
    check_pairs(folder, recorded, source.has_pairs, "name a pool of the same form")
    with ended_by_ctrl_c():
        opened = open_model(folder, ComputeOptions(args.device))
    chosen = choose(opened, rows, args.strategy, args.num)
    added = AddedColumns(opened.predictor.task, source.names)
    write_predictions(args.target, FORMATS[args.target.suffix.lower()], source, added, chosen)
    say(f"{len(chosen):,} rows in {args.target}")


def new_rows(source: Source, folder: Path) -> list[Row]:
    """Return a pool's rows that the run does not know, each text once; raises InputError without any."""
    from ..prediction.run_data import dataset_of_run

    dataset = dataset_of_run(folder, "suggest needs", "name another run with --checkpoint")
    known = {(table.text(row), table.pair(row)) for table in dataset.tables for row in range(table.num_rows)}
    rows: dict[tuple, Row] = {}
    for row in source.rows("skip"):
        rows.setdefault((row.text, row.pair), row)
    new = [row for texts, row in rows.items() if texts not in known]
    repeated, in_run = source.num_good - len(rows), len(rows) - len(new)
    notes = {"repeated": repeated, "known to the run": in_run, "invalid": source.num_bad}
    said = ", ".join(f"{count:,} {what}" for what, count in notes.items() if count)
    if not new:
        raise InputError(
            f"{source.name}: the pool has no new row ({said or 'it is empty'}); name another file"
        )
    say(f"{source.name}: {len(new):,} new rows" + (f"; left out: {said}" if said else ""))
    return new


def choose(opened: OpenedModel, rows: list[Row], strategy: str, count: int) -> list[Prediction]:
    """Return the chosen rows with the model's guesses."""
    import numpy as np

    from ..prediction.run_data import RunVectors
    from ..vectors.strategies import choose_rows

    predictor = opened.predictor
    if not predictor.task.has_confidence:
        raise InputError(f"{opened.folder}: suggest needs a model that says how sure it is, not a number")
    if count >= len(rows):
        say(f"{count:,} rows were asked for, and the pool has {len(rows):,}: all of them are chosen")
    guesses = list(predictor.predict(rows))
    probabilities = np.stack([guess.probabilities for guess in guesses])
    vectors = labelled = np.empty((len(rows), 0), np.float32)
    if strategy in ("embedding_kmeans", "greedy_coreset"):
        of_run = RunVectors(opened, "--strategy")
        vectors, labelled = of_run.of(rows), of_run.of_split(of_run.dataset.splits["train"])
    confidence = predictor.task.confidence(probabilities)
    chosen = choose_rows(strategy, min(count, len(rows)), probabilities, confidence, vectors, labelled)
    return [guesses[index] for index in chosen]
