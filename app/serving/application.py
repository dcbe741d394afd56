"""The HTTP application: its routes, and who may use them."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from ..prediction.open_model import OpenedModel
from .body_limit import BodyLimit
from .error_answers import add_error_answers
from .options import ServeOptions
from .page import read_page, routes_page
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
        if options.api_key and not _is_key(key, options.api_key):
            message = "the header Authorization must be: Bearer, a space, and the API key"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})

    # FastAPI's own pages of documentation load scripts from a CDN; /docs below loads nothing
    app = FastAPI(title="text classifier", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.add_middleware(BodyLimit)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=options.allowed_hosts, www_redirect=False)
    add_error_answers(app)
    needs_key = {"dependencies": [Depends(check_key)]}
    app.post("/predict", **needs_key)(service.predict)
    app.post("/predict_file", **needs_key)(service.predict_file)
    app.post("/explain", **needs_key)(service.explain)
    app.get("/info", **needs_key)(service.info)

    @app.get("/health")
    async def health() -> dict:
        """That the server answers."""
        return {"status": "ok"}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(main_page.html, headers=main_page.headers)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(routes_page(app.openapi()), headers=main_page.headers)

    Instrumentator(registry=registry).instrument(app).expose(app, include_in_schema=False, **needs_key)
    return app


def _is_key(key: HTTPAuthorizationCredentials | None, api_key: str) -> bool:
    """Return whether a request has the key of the server. How long that takes says nothing about the key."""
    return key is not None and hmac.compare_digest(key.credentials.encode(), api_key.encode())
