"""The HTTP application: its routes, who may use them, and what each error looks like."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..data.rows import Row
from ..errors import InputError, TrainingError
from ..prediction.open_model import OpenedModel
from ..prediction.predictor import Prediction
from .answers import answer_on, how_read
from .explainer import Explainer
from .files import labelled_csv
from .page import PAGE, PAGE_HEADERS
from .queue import BatchQueue
from .requests import MAX_BODY, MAX_CHARACTERS, MAX_FILE, MAX_TEXTS, Inputs, Question, explained, rows_of

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]")
ERROR_TYPES = {401: "unauthorized", 408: "timeout", 424: "backend", 429: "overloaded", 500: "backend"}
ERROR_TYPES |= {504: "timeout"}


@dataclass(frozen=True)
class ServeOptions:
    """How a server answers; with an `api_key`, requests must have it. `allowed_hosts` are the names that the
    header Host may have: by DNS rebinding the page of any web site could read what this server answers.

    `timeout` is in seconds for an answer, `receive_timeout` for the body of a request, and for the next
    request of a connection; `wait` is what a batch waits for more requests. `capacity` is in texts that wait;
    at most `connections` are answered at a time. An explanation may take `explain_seconds`.
    """

    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = LOCAL_HOSTS
    timeout: float = 30.0
    receive_timeout: float = 15.0
    wait: float = 0.003
    capacity: int = 512
    connections: int = 512
    explain_seconds: float = 60.0


class BodyLimits:
    """Refuses a body that is too long, or does not arrive within `seconds`."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = MAX_FILE if scope.get("path") == "/predict_file" else MAX_BODY
        announced = dict(scope.get("headers", [])).get(b"content-length", b"0")
        size, is_whole = 0, False
        end = asyncio.get_running_loop().time() + self.seconds

        async def limited() -> Message:
            nonlocal size, is_whole
            if is_whole:
                return await receive()
            too_long = HTTPException(413, f"the body may have {most:,} bytes; send fewer or shorter texts")
            if int(announced) > most:
                raise too_long
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(
                    408, f"the body did not arrive within {self.seconds:g} seconds"
                ) from error
            size, is_whole = size + len(message.get("body", b"")), not message.get("more_body")
            if size > most:
                raise too_long
            return message

        await self.app(scope, limited if scope["type"] == "http" else receive, send)


class Service:
    """One model that answers requests."""

    def __init__(self, model: OpenedModel, options: ServeOptions, registry: CollectorRegistry) -> None:
        self.model, self.options = model, options
        self.queue = BatchQueue(options.capacity, options.wait, registry)
        self.explainer = Explainer(model, options.explain_seconds)

    async def classified(self, rows: list[Row]) -> list[Prediction]:
        """Return the predictions of rows; raises HTTPException."""
        try:
            return await self.queue.classify(self.model.predictor, rows)
        except (InputError, TrainingError) as error:
            raise HTTPException(424, str(error)) from error

    async def labels(self, wanted: Inputs) -> list[list | dict]:
        """Return the labels of each text of a request, and what it wants beside them."""
        model, seconds = self.model, self.options.timeout
        rows = rows_of(wanted.inputs, model)
        if wanted.evidence and model.nearest is None:
            raise HTTPException(422, "evidence needs a server that was started with --evidence")
        beside: list[dict] = [{} for _ in rows]
        try:
            async with asyncio.timeout(seconds):
                predictions = await self.classified(rows)
                if wanted.evidence:
                    answers = [prediction.answer for prediction in predictions]
                    # In the thread of the model, as all that computes.
                    beside = await asyncio.get_running_loop().run_in_executor(
                        self.queue.thread, model.nearest.find, rows, answers, wanted.evidence
                    )
        except TimeoutError as error:
            message = f"there was no answer within {seconds:g} seconds; try again later"
            raise HTTPException(504, message) from error
        if wanted.read:
            read = await asyncio.to_thread(lambda: [how_read(model, row) for row in rows])
            beside = [more | {"read": one} for more, one in zip(beside, read, strict=True)]
        both = zip(predictions, beside, strict=True)
        return [answer_on(prediction, model, wanted.top_k, more) for prediction, more in both]

    def about(self) -> dict:
        """Return what a client may want to know about the model and the limits."""
        model, task = self.model, self.model.predictor.task
        return {
            "model": model.folder.resolve().name,
            "labels": model.predictor.label_names,
            "pairs": model.has_pairs,
            "max_length": model.predictor.max_length,
            "long": model.predictor.long.way,
            "threshold": model.threshold,
            "label_rule": task.label_rule(),
            "label_hierarchy": task.separator,
            "examples": model.examples,
            "evidence": model.nearest is not None,
            **model.predictor.runtime.description,
            "max_body_bytes": MAX_BODY,
            "max_file_bytes": MAX_FILE,
            "max_texts": MAX_TEXTS,
            "max_characters": MAX_CHARACTERS,
            "max_waiting_texts": self.options.capacity,
            "timeout_seconds": self.options.timeout,
        }

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        """A context in which the queue is worked off."""
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
    # FastAPI's pages of documentation load scripts from a CDN.
    app = FastAPI(title="text classifier", docs_url=None, redoc_url=None, lifespan=service.running)
    app.add_middleware(BodyLimits, seconds=options.receive_timeout)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=options.allowed_hosts, www_redirect=False)
    for error in (HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, failed)
    needs_key = {"dependencies": [Depends(key_check(options.api_key))]}
    Instrumentator(registry=registry).instrument(app).expose(app, include_in_schema=False, **needs_key)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(PAGE, headers=PAGE_HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(documentation(app.openapi()), headers=PAGE_HEADERS)

    @app.get("/health")
    async def health() -> dict:
        """That the server answers."""
        return {"status": "ok"}

    @app.get("/info", **needs_key)
    async def info() -> dict:
        """The model, its labels and the limits of a request."""
        return service.about()

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
        try:
            text, summary = await labelled_csv(model, await request.body(), name, asked, service.classified)
        except InputError as error:
            raise HTTPException(422, str(error)) from error
        headers = {"X-Summary": json.dumps(summary)}
        return Response(text.encode(), media_type="text/csv; charset=utf-8", headers=headers)

    @app.post("/explain", **needs_key)
    async def explain(wanted: Question) -> Any:
        """Why a text gets its labels."""
        [row] = rows_of(wanted.inputs, model)
        return JSONResponse(await service.explainer.explain(row, wanted.label, wanted.language))

    return app


def key_check(api_key: str | None):
    """Return a dependency that refuses requests without the key, where there is one."""

    def check(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
    ) -> None:
        if api_key is not None and not (
            given and hmac.compare_digest(given.credentials.encode(), api_key.encode())
        ):
            message = "the header Authorization must be: Bearer, a space, and the API key"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})

    return check


async def failed(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that is not answered with labels; the log has the traceback of what this
    program fails to answer."""
    status, message, headers = 500, "the server failed; its log says why", {}
    if isinstance(error, RequestValidationError):
        status, message = 422, explained(error)
    elif isinstance(error, HTTPException):
        status, message, headers = error.status_code, error.detail, dict(error.headers or {})
    if status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not read
    answer = {"error": message, "error_type": ERROR_TYPES.get(status, "validation")}
    return JSONResponse(answer, status, headers)


def documentation(schema: dict) -> str:
    """Return the page of the routes, which loads nothing."""
    parts = []
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            said = escape(route.get("description", ""))
            body = (
                route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            )
            known = schema["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2])
            shape = f"<pre>{escape(json.dumps(known['properties'], indent=2))}</pre>" if known else ""
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2><p>{said}</p>{shape}")
    links = '<p><a href="openapi.json">openapi.json</a></p>'
    return f"<!DOCTYPE html><meta charset=utf-8><title>routes</title><h1>Routes</h1>{links}{''.join(parts)}"
