"""An HTTP application without routes: what the servers of this project have in common."""

import hmac
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.responses import Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException

from .answers import OF_ROUTES, error_statuses
from .error_answers import add_error_answers
from .middleware import AllowedHosts, BodyLimit
from .options import ServeOptions

Key = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def empty_application(
    title: str, options: ServeOptions, lifespan: Lifespan | None, help_page: str
) -> FastAPI:
    """Return an application that answers errors with their reason, and refuses bodies that are too long and
    names of hosts that are not allowed. `help_page` has its routes."""
    # FastAPI's own pages of documentation load scripts from a CDN, which many servers cannot reach
    app = FastAPI(title=title, docs_url=None, redoc_url=None, lifespan=lifespan)
    add_error_answers(app, help_page)
    # The last one of these is the first one that a request comes to
    app.add_middleware(BodyLimit)
    app.add_middleware(AllowedHosts, names=options.allowed_hosts)
    return app


def route_options(
    path: str,
    options: ServeOptions,
    needs_key: bool = True,
    answer: dict[str, Any] | None = None,
    of_routes: dict[str, dict[int, str]] = OF_ROUTES,
) -> dict[str, Any]:
    """Return the options of a route: its statuses, an `answer` other than JSON, the check of the key. See
    `error_statuses` for `of_routes`."""
    checks_key = needs_key and bool(options.api_key)
    responses = error_statuses(path, checks_key, of_routes)
    route: dict[str, Any] = {"path": path, "responses": responses}
    if answer is not None:
        responses[200] = answer
        route["response_class"] = Response
    if checks_key:
        route["dependencies"] = [Depends(key_check(options.api_key))]
    return route


def key_check(api_key: str) -> Callable[[Key], Awaitable[None]]:
    """Return the check of a route whose requests must have the key of the server."""

    # It is async, as FastAPI calls other functions in a thread, which takes longer
    async def check_key(key: Key) -> None:
        if not _is_key(key, api_key):
            message = "the header Authorization must be: Bearer, a space, and the API key"
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})

    return check_key


def _is_key(key: HTTPAuthorizationCredentials | None, api_key: str) -> bool:
    """Return whether a request has the key of the server. How long that takes says nothing about the key."""
    return key is not None and hmac.compare_digest(key.credentials.encode(), api_key.encode())
