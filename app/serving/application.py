"""The HTTP application: its routes, and who may use them."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from starlette.exceptions import HTTPException

from ..prediction.open_model import OpenedModel
from .answers import (
    CSV_FILE,
    FILE_BODY,
    METRICS,
    PAGE,
    ExplanationParts,
    Health,
    PredictAnswer,
    error_statuses,
)
from .error_answers import add_error_answers
from .middleware import AllowedHosts, BodyLimit, HeadRequests
from .options import ServeOptions
from .page import read_page
from .service import Service

Key = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def build_application(model: OpenedModel, options: ServeOptions) -> FastAPI:
    """Return the application that answers with a model."""
    registry = CollectorRegistry()
    service = Service(model, options, registry)
    main_page = read_page()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(service.run())
        yield
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker

    # It is async, as FastAPI calls other functions in a thread, which takes longer
    async def check_key(key: Key) -> None:
        if not _is_key(key, options.api_key):
            message = "the header Authorization must be: Bearer, a space, and the API key"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})

    def route(path: str, needs_key: bool = True, answer: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the options of a route: its statuses, an `answer` other than JSON, the check of the key."""
        checks_key = needs_key and bool(options.api_key)
        responses = error_statuses(path, checks_key)
        route_options: dict[str, Any] = {"path": path, "responses": responses}
        if answer is not None:
            responses[200] = answer
            route_options["response_class"] = Response
        if checks_key:
            route_options["dependencies"] = [Depends(check_key)]
        return route_options

    # FastAPI's own pages of documentation load scripts from a CDN, which many servers cannot reach
    app = FastAPI(title="text classifier", docs_url=None, redoc_url=None, lifespan=lifespan)
    add_error_answers(app)
    app.post(**route("/predict"), response_model=PredictAnswer)(service.predict)
    app.post(**route("/predict_file", answer=CSV_FILE), openapi_extra=FILE_BODY)(service.predict_file)
    app.post(**route("/explain"), response_model=list[ExplanationParts])(service.explain)
    app.get(**route("/info"))(service.info)

    @app.get(**route("/health", needs_key=False))
    async def health() -> Health:
        """That the server answers."""
        return {"status": "ok"}

    @app.get(**route("/", needs_key=False, answer=PAGE))
    async def page() -> Response:
        """The page for people."""
        return HTMLResponse(main_page.html, headers=main_page.headers)

    # The last one of these is the first one that a request comes to
    app.add_middleware(BodyLimit)
    app.add_middleware(AllowedHosts, names=options.allowed_hosts)
    instrumentator = Instrumentator(registry=registry).instrument(app)
    app.add_middleware(HeadRequests)
    metrics = route("/metrics", answer=METRICS)
    instrumentator.expose(app, endpoint=metrics.pop("path"), **metrics)
    return app


def _is_key(key: HTTPAuthorizationCredentials | None, api_key: str) -> bool:
    """Return whether a request has the key of the server. How long that takes says nothing about the key."""
    return key is not None and hmac.compare_digest(key.credentials.encode(), api_key.encode())
