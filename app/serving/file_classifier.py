"""A file of texts that was sent -> its predictions as CSV, computed in parts between other requests."""

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from ..data.bad_row import BadRow
from ..data.rows import Row
from ..errors import InputError
from ..prediction.added_columns import AddedColumns
from ..prediction.open_model import OpenedModel
from ..prediction.output_files import REPLACED
from ..prediction.predictor import Prediction
from ..prediction.text_writers import write_csv
from .options import MAX_BODY, MAX_TEXTS
from .queue import BatchQueue
from .uploads import Upload, read_upload

SENT_AT_ONCE = 1 << 16  # bytes of an answer that is in a file
MOST_FREQUENT = 12  # labels that the summary counts


class FileClassifier:
    """Classifies files with a model, in the thread of its queue, a part at a time."""

    def __init__(self, model: OpenedModel, queue: BatchQueue) -> None:
        self.model = model
        self.queue = queue
        # Files are unpacked one after another, so that one of them at a time takes memory
        self._unpacking = threading.Lock()

    async def answer(self, request: Request, name: str, asked: dict[str, Any]) -> Response:
        """Return the answer to a request whose body is a file that its sender calls `name`. `asked` are the
        settings for reading it that the sender has given."""
        # As many texts of a file are computed together
        num_texts = min(MAX_TEXTS, self.queue.capacity)
        # A file that would be refused is not sent in vain
        self.queue.check_room(num_texts)
        suffix = Path(name).suffix.lower()
        if not re.fullmatch("[.][a-z]{1,10}", suffix):
            suffix = ".txt"
        with TemporaryDirectory(prefix="text-classifier-") as folder:
            path = Path(folder) / f"file{suffix}"
            with path.open("wb") as file:
                async for part in request.stream():
                    file.write(part)
            loop = asyncio.get_running_loop()
            with self.queue.admitted_texts(num_texts):
                return await asyncio.to_thread(self._classify, request, loop, path, name, asked)

    def _classify(
        self,
        request: Request,
        loop: asyncio.AbstractEventLoop,
        path: Path,
        name: str,
        asked: dict[str, Any],
    ) -> Response:
        """Return the answer to a file that was sent. It runs in a thread, as it waits; and the answer is in a
        file, so that a client that reads slowly holds no memory."""
        with self._unpacking:
            upload = read_upload(path, name, self.model, asked)
        place = None
        if upload.num_bad:
            place = upload.unit
        added = AddedColumns(self.model.predictor.task, upload.names, self.model.threshold, place)
        counts: Counter[str] = Counter()
        with ExitStack() as closed:
            output = closed.enter_context(TemporaryFile("w+", encoding="utf-8", errors=REPLACED, newline=""))
            predictions = self._predict(request, loop, upload)
            write_csv(output, upload, added, _counted(predictions, counts))
            output.flush()
            content = output.buffer
            num_bytes = content.tell()
            content.seek(0)
            # From now on it stays open until its last part was sent
            closed.pop_all()
        summary = {
            "rows": upload.num_rows,
            "invalid": upload.num_bad,
            "labels": counts.most_common(MOST_FREQUENT),
        }
        return StreamingResponse(
            _parts_of(output),
            media_type="text/csv; charset=utf-8",
            headers={"X-Summary": json.dumps(summary), "Content-Length": str(num_bytes)},
        )

    def _predict(
        self, request: Request, loop: asyncio.AbstractEventLoop, upload: Upload
    ) -> Iterator[Prediction]:
        """Yield the predictions of a file's rows."""
        for rows in _chunks_of(upload.rows()):
            is_gone = asyncio.run_coroutine_threadsafe(request.is_disconnected(), loop).result()
            if is_gone:
                raise HTTPException(400, "the client is gone")
            # Other requests come between two chunks
            computed = self.queue.thread.submit(_predictions_of, self.model, rows)
            try:
                predictions = computed.result()
            except InputError as error:
                # The device has no memory; the file is valid
                raise HTTPException(424, str(error)) from error
            yield from predictions


def _predictions_of(model: OpenedModel, rows: list[Row | BadRow]) -> list[Prediction]:
    return list(model.predictor.predict(rows))


def _counted(predictions: Iterable[Prediction], counts: Counter[str]) -> Iterator[Prediction]:
    """Yield the predictions, and count their labels in `counts` as they pass."""
    for prediction in predictions:
        labels = prediction.answer
        if not isinstance(labels, list):
            labels = [labels]
        counts.update(str(label) for label in labels if label is not None)
        yield prediction


def _chunks_of(rows: Iterable[Row | BadRow]) -> Iterator[list[Row | BadRow]]:
    """Yield the rows in lists, each of no more texts and characters than a request may have."""
    chunk: list[Row | BadRow] = []
    num_characters = 0
    for row in rows:
        length = 0
        if isinstance(row, Row):
            length = row.num_characters
        if chunk and (len(chunk) == MAX_TEXTS or num_characters + length > MAX_BODY):
            yield chunk
            chunk = []
            num_characters = 0
        chunk.append(row)
        num_characters += length
    if chunk:
        yield chunk


def _parts_of(file: Any) -> Iterator[bytes]:
    """Yield the content of a file, which is closed at its end."""
    with file:
        while part := file.buffer.read(SENT_AT_ONCE):
            yield part
