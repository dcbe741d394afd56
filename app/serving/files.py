"""A file that a client sends -> the same file with predictions, as CSV."""

import asyncio
import io
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.exceptions import HTTPException

from ..data.rows import Row
from ..errors import InputError
from ..prediction.open_model import OpenedModel
from ..prediction.output import REPLACED, AddedColumns, write_csv
from ..prediction.predictor import Prediction
from ..prediction.recorded_settings import check_pairs
from ..prediction.sources import Source, open_file
from .requests import MAX_TEXTS

BUSY_SECONDS = 0.5  # before a full queue is asked again


async def labelled_csv(
    model: OpenedModel,
    content: bytes,
    name: str,
    asked: dict[str, Any],
    classify: Callable[[list[Row]], Awaitable[list[Prediction]]],
) -> tuple[str, dict]:
    """Return a file with its predictions, as `predict` writes it, and how many rows it has, how many of them
    are invalid, and how many have each label. `name` is the file's, `asked` are settings of how it is read.
    `classify` is waited for and asked again while the queue is full. Raises InputError for a file that cannot
    be read, and what `classify` raises otherwise."""

    def read() -> tuple[Source, list]:
        suffix = Path(name).suffix.lower()
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix if re.fullmatch('[.][a-z]{1,10}', suffix) else '.txt'}"
            path.write_bytes(content)
            try:
                source = open_file(str(path), model.recorded, asked, keeps_columns=True)
                check_pairs(model.folder, model.recorded, source.has_pairs, "choose a file of that form")
                rows = list(source.rows("keep"))
                if not source.num_good:
                    raise InputError(f"there are no valid rows; {source.summary()}")
            except InputError as error:
                raise InputError(str(error).replace(str(path), name)) from error
        return source, rows

    source, rows = await asyncio.to_thread(read)
    predictions: list[Prediction] = []
    while chunk := rows[len(predictions) : len(predictions) + MAX_TEXTS]:
        good = [row for row in chunk if isinstance(row, Row)]
        try:
            done = iter(await classify(good) if good else ())
        except HTTPException as error:
            if error.status_code != 429:
                raise
            # The queue is full; a file can wait, so the same rows are asked for again
            await asyncio.sleep(BUSY_SECONDS)
            continue
        predictions += [next(done) if isinstance(row, Row) else Prediction(row, None, None) for row in chunk]
    place = source.place_of_reasons("keep")
    added = AddedColumns(model.predictor.task, source.names, model.threshold, place)
    output = io.StringIO(newline="")
    write_csv(output, source, added, predictions)
    table = output.getvalue().encode(errors=REPLACED).decode()
    answers = [one.answer if isinstance(one.answer, list) else [one.answer] for one in predictions]
    counts = Counter(str(label) for labels in answers for label in labels if label is not None)
    return table, {"rows": len(rows), "invalid": source.num_bad, "labels": counts.most_common(12)}
