"""Which rows of a pool without labels are worth labelling next, so that another training learns more."""

from pathlib import Path

import numpy as np

from ..data.dataset import Dataset
from ..data.rows import Row
from ..errors import InputError, counted, say
from ..prediction import SUFFIXES
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.output import write_predictions
from ..prediction.output_files import check_output
from ..prediction.sources import Source, open_file
from ..prediction.suggested_rows import check_strategy, choose_rows, usual_strategy
from ..prediction.trained_model import dataset_of_run
from ..runtime.processes import ended_by_ctrl_c

# People add labels to the file, so it is one that they can open
POOL_FORMATS = {suffix: name for suffix, name in SUFFIXES.items() if name != "parquet"}


def suggest_rows(
    pool: str,
    target: Path,
    run: Path,
    num_rows: int,
    strategy: str | None,
    device: str,
    overwrite: bool = False,
) -> None:
    """Write the most useful rows of the file `pool` into the file `target`, a new one unless `overwrite`,
    with the guess of a run. `strategy` is one of `STRATEGIES`, else the usual one of the task. Raises
    InputError for a model that cannot say how sure it is, and for a pool without new rows."""
    suffix = target.suffix.lower()
    if suffix not in POOL_FORMATS:
        raise InputError(f"{target}: the name must end in {', '.join(POOL_FORMATS)}")
    check_output(target, "OUT", overwrite, pool)
    with ended_by_ctrl_c():
        opened = open_model(run, ComputeOptions(device))
    task = opened.predictor.task
    if task.predicts_number:
        raise InputError(f"{opened.folder}: suggest needs a model that says how sure it is, not a number")
    if strategy is None:
        strategy = usual_strategy(task)
    check_strategy(strategy, task)
    source = open_file(pool, opened.trained, {})
    dataset = dataset_of_run(opened.folder, "suggest needs", "name another run with --checkpoint")
    new_rows = read_new_rows(source, dataset)
    opened.trained.check_pairs(source.has_pairs, "name a pool of the same form")
    predictions = list(opened.predictor.predict(new_rows))
    probabilities = np.stack([prediction.probabilities for prediction in predictions])
    row_ids = choose_rows(
        strategy,
        min(num_rows, len(new_rows)),
        probabilities,
        confidence=task.confidence(probabilities),
        answers=task.decide_by_probabilities(probabilities),
    )
    chosen = [predictions[row_id] for row_id in row_ids]
    write_predictions(
        target,
        format=POOL_FORMATS[suffix],
        source=source,
        opened=opened,
        predictions=chosen,
        overwrite=overwrite,
        keeps_guess=True,
    )
    say(f"{len(chosen):,} rows in {target}, chosen by {strategy}")


def read_new_rows(source: Source, dataset: Dataset) -> list[Row]:
    """Return the valid rows of a pool whose texts are not in a data set, each text once, and say how many
    were left out. Raises InputError where there is none."""
    known_texts: set[str | tuple[str, str]] = set()
    for table in dataset.tables:
        known_texts.update(table.texts(np.arange(table.num_rows)))
    pool = source.rows("skip", with_records=True)
    rows: dict[str | tuple[str, str], Row] = {}
    for row in pool:
        texts = row.text if row.pair is None else (row.text, row.pair)
        rows.setdefault(texts, row)
    new_rows = [row for texts, row in rows.items() if texts not in known_texts]
    num_repeated = pool.num_good - len(rows)
    num_known = len(rows) - len(new_rows)
    message = (
        f"{counted(len(new_rows), 'new row')}; left out: {num_repeated:,} repeated, {num_known:,} known to "
        f"the run, {pool.num_bad:,} invalid"
    )
    if not new_rows:
        raise InputError(f"{source.name}: the pool has no new row ({message}); name another file")
    say(f"{source.name}: {message}")
    return new_rows
