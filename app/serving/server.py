"""Running the application: its address, and how it ends."""

import logging
import math
import signal
import socket
from collections.abc import Callable

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import InputError
from ..prediction.open_model import OpenedModel
from .application import build_application
from .service import ServeOptions, Service

logger = logging.getLogger(__name__)
LOCAL = ("127.", "::1", "localhost")


class Connection(H11Protocol):
    """uvicorn's connection, which also ends a request whose body is no HTTP without an error in the log."""

    def send_400_response(self, msg: str) -> None:
        """Answer with 400; where another answer has begun, cut the connection off instead."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


def serve(load: Callable[[], OpenedModel], options: ServeOptions, host: str, port: int) -> int:
    """Answer requests until SIGTERM or SIGINT, then finish those that have arrived; return the signal. `port`
    0 takes any free port. Raises InputError for a wrong address, and as `load` does."""
    listener = listen(host, port)
    service = Service(load, options)
    address = f"[{host}]" if ":" in host else host
    logger.info("%s answers on http://%s:%d", service.model.folder, address, listener.getsockname()[1])
    if options.api_key is None and not is_local(host):
        logger.warning("other machines can reach %s, and no API key is set", host)
    received: list[int] = []
    # uvicorn sends itself the signal again once it has ended; this process has more to do then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: received.append(number))
    uvicorn.Server(server_config(service)).run(sockets=[listener])
    return received[0] if received else 0


def is_local(host: str) -> bool:
    """Return whether only this machine reaches a server that listens on an address."""
    return host.startswith(LOCAL)


def server_config(service: Service) -> uvicorn.Config:
    """Return how uvicorn runs: quietly, HTTP only, with the limits of the options."""
    # uvicorn warns about each request that is no HTTP.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    options = service.options
    return uvicorn.Config(
        build_application(service),
        http=Connection,
        loop="asyncio",
        # uvicorn refuses from this number on
        limit_concurrency=options.connections + 1,
        timeout_keep_alive=options.receive_timeout,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(options.receive_timeout + options.timeout) + 1,
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raises InputError where it cannot."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=2048)
        # Its connections inherit this. Without it the second part of an answer waits 40 milliseconds for the
        # client to confirm the first.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        # Python names the address again in parentheses
        problem = str(error.strerror).partition(" (")[0]
        raise InputError(
            f"--host {host} --port {port}: cannot listen there: {problem}; choose another port or host"
        ) from error
