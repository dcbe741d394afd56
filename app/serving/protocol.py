"""uvicorn's HTTP with two limits that it has not: how long the head of a request may be, and how much is read
of a body that was answered before all of it had come."""

import json

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

MAX_HEAD = 1 << 16  # bytes of a request line with its headers, and of the headers after a body
MAX_DISCARDED = 256 << 20  # bytes that are read and dropped, so that the client gets its answer
PIECE = 1 << 14  # bytes that are parsed between two looks at the limit


class LimitedProtocol(HttpToolsProtocol):
    """One connection. httptools keeps a header that has not ended in memory, and uvicorn all those that have,
    so the bytes are counted before they are parsed."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        # The bytes since the last head or part of a body ended
        self.head_bytes = 0
        self.discarded_bytes = 0
        self.is_refused = False

    def data_received(self, data: bytes) -> None:
        if self.is_refused:
            self._discard(len(data))
            return
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self.head_bytes += len(piece)
            super().data_received(piece)
            if self.transport.is_closing():
                return
            if self.head_bytes > MAX_HEAD:
                self._refuse_head()
                return

    def on_headers_complete(self) -> None:
        self.head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.head_bytes = 0
        super().on_body(body)
        if self.cycle.response_complete:
            # A client that sends all of its body before it reads would get a reset in place of the answer,
            # if this connection were closed now
            self._discard(len(body))
            self._close_when_idle()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete:
            self.discarded_bytes = 0
            self._close_when_idle()

    def _refuse_head(self) -> None:
        """Answer 431, unless another answer of this connection is on its way, and read no more requests."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        self.is_refused = True
        message = f"the request line and the headers may have {MAX_HEAD:,} bytes; send texts in the body"
        body = json.dumps({"error": message, "error_type": "validation"}).encode()
        headers = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(STATUS_LINE[431] + headers % len(body) + body)
        self.transport.write_eof()
        # What was parsed so far is not needed any more
        self.headers = []
        self.url = b""
        self.parser = None
        self._close_when_idle()

    def _discard(self, num_bytes: int) -> None:
        self.discarded_bytes += num_bytes
        if self.discarded_bytes > MAX_DISCARDED:
            self.transport.abort()

    def _close_when_idle(self) -> None:
        """Close the connection if nothing comes for as long as the next request is waited for."""
        self._unset_keepalive_if_required()
        handler = self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, handler)
