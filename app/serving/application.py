"""The HTTP application: its routes, and who may use them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator

from ..prediction.open_model import OpenedModel
from ..program import file_here
from .answers import (
    CSV_FILE,
    FILE_BODY,
    METRICS,
    PAGE,
    ExplanationParts,
    Health,
    PredictAnswer,
)
from .empty_application import empty_application, route_options
from .middleware import HeadRequests
from .options import ServeOptions
from .page import read_page
from .service import Service


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

    route = partial(route_options, options=options)
    app = empty_application("text classifier", options, lifespan, help_page=file_here("docs/serving.md"))
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
    instrumentator = Instrumentator(registry=registry).instrument(app)
    app.add_middleware(HeadRequests)
    metrics = route("/metrics", answer=METRICS)
    instrumentator.expose(app, endpoint=metrics.pop("path"), **metrics)
    return app
