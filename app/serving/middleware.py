"""What happens to each request before its route: the name in its header Host, its method, and the length of
its body."""

import re

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import excerpt
from .error_answers import error_answer
from .options import MAX_BODY, MAX_FILE

# A name or an address of version 4, or an address of version 6 in brackets; then perhaps a port
HOST = re.compile(r"(?:([\w.-]+)|\[([0-9A-Fa-f:.]+)\])(?::\d*)?", re.ASCII)
LONGEST_NAME = 253  # characters of a name in DNS


class AllowedHosts:
    """Middleware that refuses a request unless its header Host has one of the `names`: the page of another
    web site could point its own name at this machine, and read the answers (DNS rebinding)."""

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self.app = app
        self.names = {name.lower().strip("[]") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = self.app
        if scope["type"] == "http":
            header = Headers(scope=scope).get("host", "")
            name = host_name(header)
            if name not in self.names:
                answering = error_answer(400, _host_problem(header, name))
        await answering(scope, receive, send)


def host_name(header: str) -> str | None:
    """Return the name or address in a header Host, in lower case and without its port; None without one."""
    match = HOST.fullmatch(header)
    if match is None:
        return None
    name = match[1] or match[2]
    return name.lower()


def _host_problem(header: str, name: str | None) -> str:
    problem = f"the header Host must have a name of this server, found {excerpt(header)}"
    if name is None or len(name) > LONGEST_NAME:
        return problem
    return f"{problem}; to allow this one, start the server with --allowed_hosts {name}"


class HeadRequests:
    """Middleware that answers HEAD as GET, as probes and proxies expect; uvicorn leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            # uvicorn looks at its own scope, where the method stays HEAD
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


class BodyLimit:
    """Middleware that refuses a body that is too long: by its header, or once too many bytes have come."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        max_bytes = MAX_BODY
        remedy = "send fewer or shorter texts"
        if scope.get("path") == "/predict_file":
            max_bytes = MAX_FILE
            remedy = "send the file in parts"
        headers = dict(scope.get("headers", []))
        announced_bytes = int(headers.get(b"content-length", 0))
        received_bytes = 0

        async def receive_limited() -> Message:
            nonlocal received_bytes
            message: Message = {}
            if announced_bytes <= max_bytes:
                message = await receive()
                received_bytes += len(message.get("body", b""))
            if max(announced_bytes, received_bytes) > max_bytes:
                raise HTTPException(413, f"the body may have {max_bytes:,} bytes; {remedy}")
            return message

        await self.app(scope, receive_limited, send)
