"""The HTTP application: its routes, who may use them, and what each error looks like."""

import asyncio
import hmac
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from ..errors import excerpt
from .hosts import is_allowed
from .requests import Refusal
from .served_page import PAGE, PAGE_HEADERS
from .service import Service


def build_application(service: Service) -> FastAPI:
    """Return the application that answers with `service`. It has no page of documentation: FastAPI's loads
    scripts from a CDN."""

    app = FastAPI(
        title="text classifier",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(host_check(service.options.allowed_hosts))],
        lifespan=lambda app: running(service),
    )
    needs_key = [Depends(key_check(service.options.api_key))]
    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(HTTPException, failed)
    app.add_exception_handler(Exception, failed)

    @app.get("/", response_class=HTMLResponse)
    async def page() -> Response:
        return HTMLResponse(PAGE, headers=PAGE_HEADERS)

    @app.get("/health")
    async def health() -> dict:
        return {"status": "ok"}

    @app.get("/info", dependencies=needs_key)
    async def info() -> JSONResponse:
        return JSONResponse(service.info())

    @app.get("/metrics", dependencies=needs_key)
    async def metrics() -> Response:
        text, media_type = service.metrics.render()
        return Response(text, media_type=media_type)

    @app.post("/predict", dependencies=needs_key)
    async def predict(request: Request) -> JSONResponse:
        return JSONResponse(await service.counted(request, service.answer))

    @app.post("/explain", dependencies=needs_key)
    async def explain(request: Request) -> JSONResponse:
        return JSONResponse(await service.counted(request, service.explain))

    return app


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[None]:
    """A context in which the queue is worked off, and SIGHUP loads the model again."""
    worker = asyncio.create_task(service.queue.run())
    reloads: set[asyncio.Task] = set()

    def reload() -> None:
        reloads.add(task := asyncio.create_task(service.reload()))
        task.add_done_callback(reloads.discard)

    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    yield
    worker.cancel()
    with suppress(asyncio.CancelledError):
        await worker
    service.queue.thread.shutdown()


def host_check(allowed: frozenset[str]):
    """Return a dependency that refuses requests to a host that is not allowed."""

    async def check(request: Request) -> None:
        host = request.headers.get("host", "")
        if not is_allowed(host, allowed):
            raise Refusal(
                421,
                "validation",
                f"the header Host must name this server, found {excerpt(host, 80)}; use the address that it "
                "listens on, or start it with --allowed_hosts",
            )

    return check


def key_check(api_key: str | None):
    """Return a dependency that refuses requests without the key, where there is one."""

    async def check(request: Request) -> None:
        if api_key is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), api_key.encode()):
            raise Refusal(
                401, "unauthorized", "the header Authorization must be: Bearer, a space, and the API key"
            )

    return check


async def refused(request: Request, refusal: Refusal) -> JSONResponse:
    """Return the answer to a request that is not answered with labels."""
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(refusal.status, {})
    if refusal.status in (408, 413):
        # The rest of the body is not read
        headers["Connection"] = "close"
    return JSONResponse({"error": refusal.message, "error_type": refusal.kind}, refusal.status, headers)


async def failed(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to a request that has no route, or that this program fails to answer; the log has the
    traceback."""
    if isinstance(error, HTTPException):
        return JSONResponse(
            {"error": error.detail, "error_type": "validation"}, error.status_code, error.headers
        )
    return JSONResponse({"error": "the server failed; its log says why", "error_type": "backend"}, 500)
