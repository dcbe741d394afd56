"""The HTTP application: its requests, its routes, who may use them, and its errors; and how it runs: the
address it listens on, and how it ends."""

import asyncio
import base64
import gc
import hashlib
import hmac
import json
import logging
import math
import re
import signal
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

import uvicorn
from annotated_types import Len
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..data.bad_row import BadRow
from ..data.cells import join_texts
from ..data.rows import Row
from ..errors import InputError, TrainingError, excerpt, shorten
from ..prediction.open_model import OpenedModel
from ..prediction.output import AddedColumns, write_csv
from ..prediction.output_files import REPLACED
from ..prediction.predictor import Prediction
from ..prediction.sources import text_rows
from ..tasks.columns import prediction_columns, ranked_labels
from ..words import in_language
from .protocol import LimitedProtocol
from .queue import BatchQueue
from .uploads import MAX_TEXT, TooLarge, Upload, read_upload

if TYPE_CHECKING:
    from ..explanation.explained_model import ExplainedModel

logger = logging.getLogger(__name__)
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]")
ERROR_TYPES = {401: "unauthorized", 424: "backend", 429: "overloaded", 500: "backend", 504: "timeout"}
ALL_ADDRESSES = ("", "0.0.0.0", "::")  # listening there, the server has every address of the machine
DRAWS = 19  # random orders of the deletion test; fewer than explain has by itself, as people wait
MAX_BODY, MAX_FILE = 1 << 20, 64 << 20  # bytes
MAX_TEXTS = 128
SENT_AT_ONCE = 1 << 16  # bytes of an answer that is in a file
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Column = Annotated[int | str | None, Field(union_mode="left_to_right")]  # 1 is a number, not the name 1
Item = Text | Annotated[list[Text], Len(1, 2)] | dict[str, Text | None]
SHAPES = (
    f"inputs must be a text, a list of up to {MAX_TEXTS} texts, or a list of pairs [text, text_pair], each "
    f"text of up to {MAX_TEXT:,} characters; an object with text and text_pair is one text or one pair"
)
EXPLAINED_SHAPES = (
    f"inputs must be one text, or one pair [text, text_pair], each text of up to {MAX_TEXT:,} characters, or "
    "an object with text and text_pair; one text or pair is explained at a time"
)
Key = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]

# The page of a server: one document with its script and style inside, which loads nothing
PAGE_FILES = Path(__file__).with_name("page_files")
PAGE, HASHES = (PAGE_FILES / "index.html").read_text(encoding="utf-8"), []
for place, name in (("/* style */", "style.css"), ("/* script */", "script.js")):
    inside = (PAGE_FILES / name).read_text(encoding="utf-8")
    PAGE = PAGE.replace(place, inside)
    HASHES.append(f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'")
# Only this very script and style run, they reach only this server, and no other site may frame the page.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {HASHES[0]}; script-src {HASHES[1]}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class BodyLimit:
    """Middleware that refuses a body that is too long."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = MAX_FILE if scope.get("path") == "/predict_file" else MAX_BODY
        size, received = int(dict(scope.get("headers", [])).get(b"content-length", 0)), 0

        async def limited() -> Message:
            nonlocal received
            message: Message = {} if size > most else await receive()
            received += len(message.get("body", b""))
            if max(size, received) > most:
                raise HTTPException(413, f"the body may have {most:,} bytes; send fewer or shorter texts")
            return message

        await self.app(scope, limited, send)


class Inputs(BaseModel):
    """Texts or pairs to classify; `top_k` labels of each (none: all); `read` adds what was read of it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    inputs: Text | dict[str, Text | None] | Annotated[list[Item], Len(1, MAX_TEXTS)]
    top_k: Annotated[int, Field(ge=1)] | None = None
    read: bool = False


class Question(BaseModel):
    """A text or a pair to explain, the label (none: each predicted one), and the language."""

    model_config = ConfigDict(extra="forbid", strict=True)
    inputs: Item
    label: str | None = None
    language: Literal["en", "zh"] = "en"


def rows_of(inputs: Any, model: OpenedModel) -> list[Row]:
    """Return the rows of a request. Raises InputError for an invalid text, and for pairs where the model was
    trained on single texts, or the other way round."""
    columns, items = model.trained.text_columns, []
    for item in inputs if isinstance(inputs, list) else [inputs]:
        if not isinstance(item, dict):
            texts = (item,) if isinstance(item, str) else tuple(item)
        elif columns and item.keys() == set(columns):
            # A model that reads several columns as one text takes them by name
            texts = (join_texts([item[name] for name in columns]),)
        elif isinstance(item.get("text"), str) and set(item) <= {"text", "text_pair"}:
            texts = (item["text"],) if item.get("text_pair") is None else (item["text"], item["text_pair"])
        else:
            raise InputError(f"{SHAPES}; found {excerpt(item)}")
        items.append(texts)
    wanted = len(items[0]) if model.trained.has_pairs is None else 1 + model.trained.has_pairs
    kinds = {1: "single texts", 2: "pairs of texts"}
    for number, texts in enumerate(items, 1):
        if len(texts) != wanted:
            raise InputError(
                f"inputs, text {number}: {kinds[wanted]} are needed, as in the model's training and in all "
                f"inputs, found one of the {kinds[len(texts)]}"
            )
    rows = list(text_rows(items, model.trained.reading.remove_spaces))
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            raise InputError(f"inputs, text {number}: {row.problem}")
    return rows


@dataclass(frozen=True)
class ServeOptions:
    """How a server answers. With an `api_key`, requests must have it. `allowed_hosts` are the names that the
    header Host may have; if it could have any, the page of a foreign web site could read the answers of this
    server, by DNS rebinding.

    In seconds: `timeout` for an answer; `keep_alive` until the next request of a connection; `wait` of a
    batch for more requests. `capacity` is the most texts that may wait, `connections` the most that are open
    at a time.
    """

    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = LOCAL_HOSTS
    timeout: float = 30.0
    keep_alive: float = 15.0
    wait: float = 0.003
    capacity: int = 512
    connections: int = 512


class Service:
    """One model that answers requests. Its public methods are routes, and their docstrings are on /docs."""

    def __init__(self, model: OpenedModel, options: ServeOptions, registry: CollectorRegistry) -> None:
        self.model, self.options = model, options
        self.queue = BatchQueue(model.predictor, options.capacity, options.wait, registry)
        # Files are unpacked one after another, so that one of them at a time takes memory
        self.unpacking = threading.Lock()
        self.explaining = asyncio.Lock()
        self.explained: ExplainedModel | None = None  # a copy of the weights, once it is needed

    async def predict(self, wanted: Inputs) -> Response:
        """The labels of texts with their scores, the most probable first; of several labels also whether each
        is in the answer. With `read` an object of them, of what was read, and of the decision."""
        rows, seconds = rows_of(wanted.inputs, self.model), self.options.timeout
        try:
            async with asyncio.timeout(seconds):
                predictions = await self.queue.classify(rows)
        except TimeoutError as error:
            message = f"there was no answer within {seconds:g} seconds; try again later"
            raise HTTPException(504, message) from error
        task, threshold, answers = self.model.predictor.task, self.model.threshold, []
        for one in predictions:
            labels = []
            for label in ranked_labels(task, one.probabilities)[: wanted.top_k]:
                name, score = task.label_names[label], round(float(one.probabilities[label]), 6)
                chosen = {"chosen": name in one.answer} if isinstance(one.answer, list) else {}
                labels.append(
                    {"score": one.answer if task.predicts_number else score, "label": name} | chosen
                )
            answers.append(labels)
        if wanted.read:
            read = await asyncio.to_thread(lambda: list(map(self._how_read, rows)))
            for at, one in enumerate(predictions):
                columns = {} if threshold is None else prediction_columns(task, one.probabilities, threshold)
                decided = ("decision", "sure_label", "sure_probability")
                answers[at] = {"labels": answers[at], "read": read[at]}
                answers[at] |= {name: columns[name] for name in decided if name in columns}
        return JSONResponse(answers if isinstance(wanted.inputs, list) else answers[0])

    def _how_read(self, row: Row) -> dict:
        """Return what the model reads of a row: the number of tokens, with the special ones, and of windows;
        and for each text the number of its characters, and the ranges of those that are read, from the first,
        counted from 0, to the last (exclusive)."""
        predictor = self.model.predictor
        tokens, texts = predictor.tokenize([row]), (row.text,) if row.pair is None else (row.text, row.pair)
        ranges = zip(texts, predictor.encoder.characters_read(texts), strict=True)
        return {
            "tokens": sum(map(len, tokens.windows)),
            "windows": len(tokens.windows),
            "cut": bool(tokens.cut[0]),
            "texts": [{"characters": len(text), "ranges": one} for text, one in ranges],
        }

    async def predict_file(
        self, request: Request, name: str, text_column: Column = None, text_pair_column: Column = None
    ) -> Response:
        """A file of texts, as the body, with its predictions, as CSV. It is read as in the run's training,
        and its format is that of `name`. The header X-Summary counts rows and labels."""
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise HTTPException(415, "the file itself must be the body, as of curl --data-binary @FILE")
        # As many texts of a file are computed together
        num_texts = min(MAX_TEXTS, self.options.capacity)
        # A file that would be refused is not sent in vain
        self.queue.check_room(num_texts)
        suffix = Path(name).suffix.lower()
        if not re.fullmatch("[.][a-z]{1,10}", suffix):
            suffix = ".txt"
        asked = {"text_column": text_column, "text_pair_column": text_pair_column}
        with TemporaryDirectory(prefix="text-classifier-") as folder:
            path = Path(folder) / f"file{suffix}"
            with path.open("wb") as file:
                async for part in request.stream():
                    file.write(part)
            with self.queue.admitted_texts(num_texts):
                return await asyncio.to_thread(self._classify_file, request, path, name, asked)

    def _classify_file(self, request: Request, path: Path, name: str, asked: dict) -> Response:
        """Return the answer to a file that was sent. It runs in a thread, as it waits; and the answer is in a
        file, so that a client that reads slowly holds no memory."""
        model = self.model
        with self.unpacking:
            upload = read_upload(path, name, model, asked)
        place = upload.place if upload.num_bad else None
        added = AddedColumns(model.predictor.task, upload.names, model.threshold, place)
        counts: Counter[str] = Counter()
        with ExitStack() as closed:
            output = closed.enter_context(TemporaryFile("w+", encoding="utf-8", errors=REPLACED, newline=""))
            write_csv(output, upload, added, self._predictions_of(request, upload, counts))
            output.flush()
            content = output.buffer
            num_bytes = content.tell()
            content.seek(0)
            # From now on it stays open until its last part was sent
            closed.pop_all()
        about = {"rows": upload.num_rows, "invalid": upload.num_bad, "labels": counts.most_common(12)}
        return StreamingResponse(
            parts_of(output),
            media_type="text/csv; charset=utf-8",
            headers={"X-Summary": json.dumps(about), "Content-Length": str(num_bytes)},
        )

    def _predictions_of(self, request: Request, upload: Upload, counts: Counter) -> Iterator[Prediction]:
        """Yield the predictions of a file's rows, and count the labels in `counts`."""
        for rows in chunks_of(upload.rows()):
            is_gone = asyncio.run_coroutine_threadsafe(request.is_disconnected(), self.loop).result()
            if is_gone:
                raise HTTPException(400, "the client is gone")
            # Other requests come between two chunks
            computed = self.queue.thread.submit(compute_rows, self.model, rows)
            for prediction in computed.result():
                answer = prediction.answer
                labels = answer if isinstance(answer, list) else [answer]
                counts.update(str(label) for label in labels if label is not None)
                yield prediction

    async def explain(self, wanted: Question) -> Response:
        """Why a text gets its labels. While another text is explained, the answer is 429."""
        # A list is one input here: a pair of texts, or a single text
        [row] = rows_of([wanted.inputs], self.model)
        texts = (row.text,) if row.pair is None else (row.text, row.pair)

        def explanations() -> list[dict]:
            from ..explanation.explained_model import ExplainedModel
            from ..explanation.explanation import explain
            from ..explanation.page import explanation_parts

            if self.explained is None:
                # Of the model in memory: the files may be those of another one by now
                self.explained = ExplainedModel(self.model.folder, opened=self.model)
            found = explain(self.explained, texts, wanted.label, DRAWS)
            with in_language(wanted.language):
                return list(map(explanation_parts, found))

        if self.explaining.locked():
            raise HTTPException(429, "another text is being explained; try again later", {"Retry-After": "1"})
        async with self.explaining:
            # The thread of the model stays free, so that others get their labels meanwhile
            return JSONResponse(await asyncio.to_thread(explanations))

    async def info(self) -> dict:
        """The model, its labels and the limits of a request."""
        model, predictor, task = self.model, self.model.predictor, self.model.predictor.task
        return {
            "model": model.folder.resolve().name,
            "labels": task.label_names,
            "pairs": model.trained.has_pairs,
            "max_length": predictor.max_length,
            "long": predictor.long.way,
            "threshold": model.threshold,
            "label_rule": task.state() if task.form.has_several else None,
            "label_hierarchy": task.tree and task.tree.separator,
            **predictor.runtime.description,
            "max_body_bytes": MAX_BODY,
            "max_file_bytes": MAX_FILE,
            "max_texts": MAX_TEXTS,
            "max_characters": MAX_TEXT,
            "max_waiting_texts": self.options.capacity,
            "timeout_seconds": self.options.timeout,
        }

    @asynccontextmanager
    async def _running(self, _app: FastAPI) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
        worker = asyncio.create_task(self.queue.run())
        yield
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        self.queue.thread.shutdown()


def compute_rows(model: OpenedModel, rows: list[Row | BadRow]) -> list[Prediction]:
    return list(model.predictor.predict(rows))


def chunks_of(rows: Iterable[Row | BadRow]) -> Iterator[list[Row | BadRow]]:
    """Yield the rows in lists, each of no more texts and characters than a request may have."""
    chunk: list[Row | BadRow] = []
    num_characters = 0
    for row in rows:
        length = len(row.text) + len(row.pair or "") if isinstance(row, Row) else 0
        if chunk and (len(chunk) == MAX_TEXTS or num_characters + length > MAX_BODY):
            yield chunk
            chunk = []
            num_characters = 0
        chunk.append(row)
        num_characters += length
    if chunk:
        yield chunk


def parts_of(file: Any) -> Iterator[bytes]:
    """Yield the content of a file, which is closed at its end."""
    with file:
        yield from iter(partial(file.buffer.read, SENT_AT_ONCE), b"")


def build_application(model: OpenedModel, options: ServeOptions) -> FastAPI:
    """Return the application that answers with a model."""
    registry = CollectorRegistry()
    service = Service(model, options, registry)
    # FastAPI's own pages of documentation load scripts from a CDN; /docs below loads nothing
    app = FastAPI(title="text classifier", docs_url=None, redoc_url=None, lifespan=service._running)
    app.add_middleware(BodyLimit)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=options.allowed_hosts, www_redirect=False)
    for error in (HTTPException, RequestValidationError, InputError, TrainingError, Exception):
        app.add_exception_handler(error, failed)

    # It is async, as FastAPI calls other functions in a thread, which takes longer
    async def check_key(key: Key) -> None:
        wanted = options.api_key
        if wanted and not (key and hmac.compare_digest(key.credentials.encode(), wanted.encode())):
            message = "the header Authorization must be: Bearer, a space, and the API key"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})

    needs_key = {"dependencies": [Depends(check_key)]}
    for answer in (service.predict, service.predict_file, service.explain):
        app.post(f"/{answer.__name__}", **needs_key)(answer)
    app.get("/info", **needs_key)(service.info)

    @app.get("/health")
    async def health() -> dict:
        """That the server answers."""
        return {"status": "ok"}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(PAGE, headers=PAGE_HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        schema, parts = app.openapi(), ["<!DOCTYPE html><meta charset=utf-8><title>routes</title>"]
        for path, methods in schema["paths"].items():
            for method, route in methods.items():
                parts.append(f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(route['description'])}</p>")
        shapes = escape(json.dumps(schema["components"]["schemas"], indent=2))
        parts.append(f'<h1>Bodies</h1><p><a href="openapi.json">openapi.json</a></p><pre>{shapes}</pre>')
        return HTMLResponse("".join(parts), headers=PAGE_HEADERS)

    Instrumentator(registry=registry).instrument(app).expose(app, include_in_schema=False, **needs_key)
    return app


async def failed(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that ends with an error; the log has the traceback of a defect."""
    status, message, headers = 500, "the server failed; its log says why", {}
    if isinstance(error, RequestValidationError):
        # Each form that `inputs` may have gives an error; a key that there is not comes last
        last = error.errors()[-1]
        status, is_json = (400, False) if last["type"] == "json_invalid" else (422, True)
        key = str(last["loc"][1]) if is_json and len(last["loc"]) > 1 else "the body"
        found = f", found {excerpt(last['input'])}" if is_json and last["type"] != "missing" else ""
        message = f"{shorten(key)}: {last['msg']}{found}"
        if key == "inputs":
            shapes = EXPLAINED_SHAPES if request.url.path == "/explain" else SHAPES
            message = f"{shapes}; found {excerpt(error.body.get('inputs'))}"
    elif isinstance(error, HTTPException):
        status, message, headers = error.status_code, error.detail, dict(error.headers or {})
    elif isinstance(error, (InputError, TrainingError)):
        status = 424
        if isinstance(error, InputError):
            status = 413 if isinstance(error, TooLarge) else 422
        message = str(error)
    answer = {"error": message, "error_type": ERROR_TYPES.get(status, "validation")}
    return JSONResponse(answer, status, headers)


def serve(model: OpenedModel, options: ServeOptions, host: str, listener: socket.socket) -> int:
    """Answer requests until SIGTERM or SIGINT, then finish those that have arrived; return the signal.
    `listener` listens on `host`. Raises TrainingError for a model that cannot classify."""
    config = server_config(model, options)
    address = f"[{host}]" if ":" in host else host
    logger.info("%s answers on http://%s:%d", model.folder, address, listener.getsockname()[1])
    if options.api_key is None and not host.startswith(("127.", "::1", "localhost")):
        logger.warning("other machines can reach %s, and no API key is set", host)
    received: list[int] = []
    # uvicorn sends the signal to its process again once it has ended; this process has more to do then
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: received.append(number))
    uvicorn.Server(config).run(sockets=[listener])
    return received[0] if received else 0


def allowed_hosts(host: str, more: list[str]) -> tuple[str, ...]:
    """Return the allowed hosts: this machine's own names, `more`, and the address `host` that it listens on,
    or where this is all addresses, each of them."""
    names = {*LOCAL_HOSTS, host, *more}
    if host in ALL_ADDRESSES:
        with suppress(OSError):
            names |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    return tuple(sorted(names - {""}))


def server_config(model: OpenedModel, options: ServeOptions) -> uvicorn.Config:
    """Return how uvicorn runs the application: quietly, HTTP only, with the limits of the options. The model
    classifies a row first, which raises TrainingError for a model that cannot."""
    list(model.predictor.predict([Row(1, "好", "好" if model.trained.has_pairs else None, None)]))
    # Requests make so much garbage that the collector runs all the time; with the libraries' and the model's
    # objects to look through, it takes a tenth of the server's time
    gc.collect()
    gc.freeze()
    # uvicorn warns about each request that is no HTTP
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    return uvicorn.Config(
        build_application(model, options),
        http=LimitedProtocol,
        loop="asyncio",
        limit_concurrency=options.connections + 1,  # uvicorn refuses from this number on
        timeout_keep_alive=options.keep_alive,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(options.keep_alive + options.timeout) + 1,
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 is any free port. Raises InputError if it cannot."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        # Python names the address again in parentheses
        problem = str(getattr(error, "strerror", error)).partition(" (")[0]
        raise InputError(
            f"--host {host} --port {port}: cannot listen there: {problem}; choose another port or host"
        ) from error
    # Its connections inherit this. Without it the second part of an answer waits 40 milliseconds for the
    # client to confirm the first
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
