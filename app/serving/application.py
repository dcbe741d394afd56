"""The HTTP application: what requests look like, its routes, who may use them, and what each error looks
like."""

import asyncio
import base64
import hashlib
import hmac
import io
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Len
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..data.read import BadRow, ReadOptions
from ..data.rows import Row, join_texts, text_rows
from ..errors import InputError, TrainingError, excerpt
from ..prediction.model_folder import check_pairs
from ..prediction.open_model import OpenedModel
from ..prediction.output import REPLACED, AddedColumns, write_csv
from ..prediction.predictor import Prediction
from ..prediction.sources import Source, open_file
from ..words import in_language
from .queue import BatchQueue

if TYPE_CHECKING:
    from ..explanation.explanation import ExplainedModel

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]")
ERROR_TYPES = {401: "unauthorized", 408: "timeout", 424: "backend", 429: "overloaded", 500: "backend"}
ERROR_TYPES |= {504: "timeout"}
DRAWS = 19  # random orders of the deletion test; fewer than explain has by itself, as people wait
MAX_BODY, MAX_FILE = 1 << 20, 64 << 20  # bytes
MAX_TEXTS, MAX_CHARACTERS = 128, 100_000
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Item = Text | Annotated[list[Text], Len(1, 2)] | dict[str, Text | None]
SHAPES = (
    f"inputs must be a text, a list of up to {MAX_TEXTS} texts, or a list of pairs [text, text_pair], each "
    f"text of up to {MAX_CHARACTERS:,} characters; an object with text and text_pair is one text or one pair"
)
Key = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]

# The page of a server: one document with its script and style inside, which loads nothing
PAGE_FILES = Path(__file__).with_name("page_files")
PAGE, HASHES = (PAGE_FILES / "index.html").read_text(encoding="utf-8"), []
for place, name in (("/* style */", "style.css"), ("/* script */", "script.js")):
    inside = (PAGE_FILES / name).read_text(encoding="utf-8")
    PAGE = PAGE.replace(place, inside)
    HASHES.append(f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'")
# Only this very script and style run, they reach only this server, and no other site may show the page in a
# frame.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {HASHES[0]}; script-src {HASHES[1]}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class BodyLimits:
    """Middleware that refuses a body that is too long, or does not arrive within `seconds`."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = MAX_FILE if scope.get("path") == "/predict_file" else MAX_BODY
        size, is_whole = int(dict(scope.get("headers", [])).get(b"content-length", 0)), False
        received, end = 0, asyncio.get_running_loop().time() + self.seconds

        async def limited() -> Message:
            nonlocal received, is_whole
            if is_whole:
                return await receive()
            message: Message = {}
            try:
                async with asyncio.timeout_at(end):
                    message = {} if size > most else await receive()
            except TimeoutError as error:
                problem = f"the body did not arrive within {self.seconds:g} seconds"
                raise HTTPException(408, problem) from error
            received, is_whole = received + len(message.get("body", b"")), not message.get("more_body")
            if max(size, received) > most:
                raise HTTPException(413, f"the body may have {most:,} bytes; send fewer or shorter texts")
            return message

        await self.app(scope, limited if scope["type"] == "http" else receive, send)


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


def explained(error: RequestValidationError) -> str:
    """Return what is wrong with a request, in one sentence."""
    # Each form that `inputs` may have gives an error; a key that there is not comes last
    first = error.errors()[-1]
    key = str(first["loc"][1]) if len(first["loc"]) > 1 else "the body"
    if key == "inputs":
        return f"{SHAPES}; found {excerpt(error.body.get('inputs'))}"
    if first["type"] == "extra_forbidden":
        known = [", ".join(of.model_fields) for of in (Inputs, Question)]
        return f"there is no key {excerpt(key)} (known: {known[0]}; to explain: {known[1]})"
    found = "" if first["type"] in ("missing", "json_invalid") else f", found {excerpt(first['input'])}"
    return f"{key}: {first['msg']}{found}"


def rows_of(inputs: Any, model: OpenedModel) -> list[Row]:
    """Return the rows of a request. Raises HTTPException (422) for an invalid text, and for pairs where the
    model was trained on single texts, or the other way round."""
    columns, items = model.text_columns, []
    for item in inputs if isinstance(inputs, list) else [inputs]:
        if not isinstance(item, dict):
            texts = (item,) if isinstance(item, str) else tuple(item)
        elif columns and item.keys() == set(columns):
            # A model that reads several columns as one text takes them by name
            texts = (join_texts([item[name] for name in columns]),)
        elif isinstance(item.get("text"), str) and set(item) <= {"text", "text_pair"}:
            texts = (item["text"],) if item.get("text_pair") is None else (item["text"], item["text_pair"])
        else:
            raise HTTPException(422, f"{SHAPES}; found {excerpt(item)}")
        items.append(texts)
    wanted = len(items[0]) if model.has_pairs is None else 1 + model.has_pairs
    kinds = {1: "single texts", 2: "pairs of texts"}
    for number, texts in enumerate(items, 1):
        if len(texts) != wanted:
            raise HTTPException(
                422,
                f"inputs, text {number}: {kinds[wanted]} are needed, as in the model's training and in all "
                f"inputs, found one of the {kinds[len(texts)]}",
            )
    options = ReadOptions(remove_spaces=model.remove_spaces)
    rows = list(text_rows((texts if wanted == 2 else texts[0] for texts in items), options))
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            raise HTTPException(422, f"inputs, text {number}: {row.problem}")
    return rows


@dataclass(frozen=True)
class ServeOptions:
    """How a server answers. With an `api_key`, requests must have it. `allowed_hosts` are the names that the
    header Host may have; if it could have any, the page of a foreign web site could read the answers of this
    server, by DNS rebinding.

    In seconds: `timeout` for an answer; `receive_timeout` for the body of a request, and until the next
    request of a connection; `wait` of a batch for more requests. `capacity` is the most texts that may wait,
    `connections` the most that are open at a time.
    """

    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = LOCAL_HOSTS
    timeout: float = 30.0
    receive_timeout: float = 15.0
    wait: float = 0.003
    capacity: int = 512
    connections: int = 512


class Service:
    """One model that answers requests."""

    def __init__(self, model: OpenedModel, options: ServeOptions, registry: CollectorRegistry) -> None:
        self.model, self.options = model, options
        self.queue = BatchQueue(model.predictor, options.capacity, options.wait, registry)
        self.explaining = asyncio.Lock()
        self.explained: ExplainedModel | None = None  # a copy of the weights, once it is needed

    async def labels(self, wanted: Inputs) -> list[list | dict]:
        """Return the labels of each text of a request with their scores, in the order of `ranked_labels`, of
        several labels also whether each is in the answer; with `read` an object of them, of what was read,
        and of the decision where there is a threshold. Raises HTTPException: as `rows_of` and the queue, 504
        after `timeout`."""
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
            for label in task.ranked_labels(one.probabilities)[: wanted.top_k]:
                name, score = task.label_names[label], round(float(one.probabilities[label]), 6)
                chosen = {"chosen": name in one.answer} if isinstance(one.answer, list) else {}
                labels.append({"score": score if task.has_confidence else one.answer, "label": name} | chosen)
            answers.append(labels)
        if not wanted.read:
            return answers
        read = await asyncio.to_thread(lambda: list(map(self.how_read, rows)))
        for at, one in enumerate(predictions):
            columns = {} if threshold is None else task.columns(one.probabilities, threshold)
            decided = ("decision", "sure_label", "sure_probability")
            answers[at] = {"labels": answers[at], "read": read[at]}
            answers[at] |= {name: columns[name] for name in decided if name in columns}
        return answers

    def how_read(self, row: Row) -> dict:
        """Return what the model reads of a row: the number of tokens, with the special ones, and of windows;
        and for each text the number of its characters, and the ranges of those that are read, from the first,
        counted from 0, to the last (exclusive)."""
        predictor = self.model.predictor
        tokens, texts = predictor.tokenize([row]), (row.text,) if row.pair is None else (row.text, row.pair)
        ranges = zip(texts, predictor.encoder.characters_read(texts), strict=True)
        return {
            "tokens": len(tokens.rows[0]),
            "windows": len(tokens.windows().rows),
            "cut": bool(tokens.cut[0]),
            "texts": [{"characters": len(text), "ranges": one} for text, one in ranges],
        }

    async def labelled_csv(self, content: bytes, name: str, asked: dict[str, Any]) -> tuple[str, dict]:
        """Return a file with its predictions, as `predict` writes it, and how many rows it has, how many of
        them are invalid, and how many have each label. `name` is the file's, `asked` are settings of how it
        is read. Raises InputError for a file that cannot be read, TrainingError as `Predictor.predict`."""
        model = self.model

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
                    return source, rows
                except InputError as error:
                    raise InputError(str(error).replace(str(path), name)) from error

        source, rows = await asyncio.to_thread(read)
        predictions: list[Prediction] = []
        while part := rows[len(predictions) : len(predictions) + MAX_TEXTS]:
            # Other requests come between two parts
            compute = lambda part=part: list(model.predictor.predict(part))  # noqa: E731
            predictions += await asyncio.get_running_loop().run_in_executor(self.queue.thread, compute)
        place = source.place if source.num_bad else None
        added, output = (
            AddedColumns(model.predictor.task, source.names, model.threshold, place),
            io.StringIO(),
        )
        write_csv(output, source, added, predictions)
        answers = [one.answer if isinstance(one.answer, list) else [one.answer] for one in predictions]
        counts = Counter(str(label) for labels in answers for label in labels if label is not None)
        about = {"rows": len(rows), "invalid": source.num_bad, "labels": counts.most_common(12)}
        return output.getvalue().encode(errors=REPLACED).decode(), about

    async def explain(self, row: Row, wanted: Question) -> list[dict]:
        """Return `explanation_shown` for each label. Raises HTTPException 429 while another text is
        explained, and what `explain` of app/explanation raises."""

        def explanations() -> list[dict]:
            from ..explanation.explanation import ExplainedModel, explain, explanation_shown

            model, texts = self.model, (row.text,) if row.pair is None else (row.text, row.pair)
            if self.explained is None:
                device = model.predictor.runtime.description["device"]
                self.explained = ExplainedModel(model.folder, device)
            found = explain(self.explained, texts, model.remove_spaces, wanted.label, DRAWS)
            with in_language(wanted.language):
                return list(map(explanation_shown, found))

        if self.explaining.locked():
            raise HTTPException(429, "another text is being explained; try again later", {"Retry-After": "1"})
        async with self.explaining:
            # The thread of the model stays free, so that others get their labels meanwhile
            return await asyncio.to_thread(explanations)

    def about(self) -> dict:
        """Return what a client may want to know about the model and the limits."""
        model, predictor, task = self.model, self.model.predictor, self.model.predictor.task
        return {
            "model": model.folder.resolve().name,
            "labels": predictor.label_names,
            "pairs": model.has_pairs,
            "max_length": predictor.max_length,
            "long": predictor.long.way,
            "threshold": model.threshold,
            "label_rule": task.state() if task.form.has_several else None,
            "label_hierarchy": task.tree and task.tree.separator,
            **predictor.runtime.description,
            "max_body_bytes": MAX_BODY,
            "max_file_bytes": MAX_FILE,
            "max_texts": MAX_TEXTS,
            "max_characters": MAX_CHARACTERS,
            "max_waiting_texts": self.options.capacity,
            "timeout_seconds": self.options.timeout,
        }

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        """Answer what is in the queue, while the application runs."""
        worker = asyncio.create_task(self.queue.run())
        yield
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        self.queue.thread.shutdown()


def build_application(model: OpenedModel, options: ServeOptions) -> FastAPI:
    """Return the application that answers with a model."""
    registry = CollectorRegistry()
    service = Service(model, options, registry)
    # FastAPI's own pages of documentation load scripts from a CDN; /docs below loads nothing
    app = FastAPI(title="text classifier", docs_url=None, redoc_url=None, lifespan=service.running)
    app.add_middleware(BodyLimits, seconds=options.receive_timeout)
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

    @app.post("/predict", **needs_key)
    async def predict(wanted: Inputs) -> Any:
        """The labels of texts, the most probable first."""
        labels = await service.labels(wanted)
        return JSONResponse(labels if isinstance(wanted.inputs, list) else labels[0])

    @app.post("/predict_file", **needs_key)
    async def predict_file(
        request: Request, name: str, text_column: str | None = None, text_pair_column: str | None = None
    ) -> Response:
        """A file of texts, as the body, with its predictions, as CSV. It is read as in the run's training,
        and its format is that of `name`."""
        asked = {"text_column": text_column, "text_pair_column": text_pair_column}
        text, summary = await service.labelled_csv(await request.body(), name, asked)
        headers = {"X-Summary": json.dumps(summary)}
        return Response(text.encode(), media_type="text/csv; charset=utf-8", headers=headers)

    @app.post("/explain", **needs_key)
    async def explain(wanted: Question) -> Any:
        """Why a text gets its labels."""
        [row] = rows_of(wanted.inputs, model)
        return JSONResponse(await service.explain(row, wanted))

    @app.get("/info", **needs_key)
    async def info() -> dict:
        """The model, its labels and the limits of a request."""
        return service.about()

    @app.get("/health")
    async def health() -> dict:
        """That the server answers."""
        return {"status": "ok"}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(PAGE, headers=PAGE_HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(documentation(app.openapi()), headers=PAGE_HEADERS)

    Instrumentator(registry=registry).instrument(app).expose(app, include_in_schema=False, **needs_key)
    return app


async def failed(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that ends with an error. After an error that is not expected, the log
    has its traceback."""
    status, message, headers = 500, "the server failed; its log says why", {}
    if isinstance(error, RequestValidationError):
        status, message = 422, explained(error)
    elif isinstance(error, HTTPException):
        status, message, headers = error.status_code, error.detail, dict(error.headers or {})
    elif isinstance(error, (InputError, TrainingError)):
        status, message = 422 if isinstance(error, InputError) else 424, str(error)
    if status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not read
    answer = {"error": message, "error_type": ERROR_TYPES.get(status, "validation")}
    return JSONResponse(answer, status, headers)


def documentation(schema: dict) -> str:
    """Return an HTML page of the routes in an OpenAPI schema; it loads nothing."""
    parts = ["<!DOCTYPE html><meta charset=utf-8><title>routes</title><h1>Routes</h1>"]
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(route['description'])}</p>")
    shapes = escape(json.dumps(schema["components"]["schemas"], indent=2))
    parts.append(f'<h1>Bodies</h1><p><a href="openapi.json">openapi.json</a></p><pre>{shapes}</pre>')
    return "".join(parts)
