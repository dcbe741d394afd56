"""A limit for the length of a request's body."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .options import MAX_BODY, MAX_FILE


class BodyLimit:
    """Middleware that refuses a body that is too long: by its header, or once too many bytes have come."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        max_bytes = MAX_FILE if scope.get("path") == "/predict_file" else MAX_BODY
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
                raise HTTPException(
                    413, f"the body may have {max_bytes:,} bytes; send fewer or shorter texts"
                )
            return message

        await self.app(scope, receive_limited, send)
