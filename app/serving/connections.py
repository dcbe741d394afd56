"""Connections that end in time: a client that is slow, or that does not read, may not hold one without limit.

uvicorn has no time limit for the head of a request, nor for an answer that is not read.
"""

from __future__ import annotations

import asyncio
import socket

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
)
REASON = b'{"error": "the server has as many connections as it takes; try again later", "error_type": "overloaded"}'


class TimedConnection(H11Protocol):
    """One connection. Each of these may take `seconds`: from its start, or the last answer, to the whole head
    of a request; an answer that the client does not read. Then it is cut off. A connection beyond `most` is
    answered with 503.
    """

    def __init__(self, *args, seconds: float, most: int, **settings) -> None:
        super().__init__(*args, **settings)
        self.seconds = seconds
        self.most = most
        self.waits_for_head: asyncio.TimerHandle | None = None
        self.waits_for_reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        # An answer is written in two parts. Without this the second waits for the client to confirm the
        # first: 40 milliseconds.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()
        if len(self.connections) > self.most:
            transport.write(FULL % (len(REASON), REASON))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_head_timer()
        self._stop_reader_timer()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Start the time for a head where no request is being answered, and stop it where one is."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self.waits_for_head is None:
            self.waits_for_head = self.loop.call_later(self.seconds, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self.waits_for_head is not None:
            self.waits_for_head.cancel()
            self.waits_for_head = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.waits_for_reader is None:
            self.waits_for_reader = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_reader_timer()

    def _stop_reader_timer(self) -> None:
        if self.waits_for_reader is not None:
            self.waits_for_reader.cancel()
            self.waits_for_reader = None

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP; where the answer has begun, another cannot be sent, and the
        connection is cut off."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()
        if (
            self.cycle is not None and not self.cycle.response_complete
        ):  # damaged inside its body: it gets no other answer
            self.cycle.disconnected = True
            self.cycle.message_event.set()
