"""Running the application: its address, and how it ends."""

from __future__ import annotations

import logging
import math
import signal
import socket
from collections.abc import Callable
from functools import partial

import uvicorn

from ..errors import InputError
from ..prediction.open_model import OpenedModel
from .application import build_application
from .connections import TimedConnection
from .service import ServeOptions, Service

logger = logging.getLogger(__name__)
LOCAL = ("127.", "::1", "localhost")


def serve(load: Callable[[], OpenedModel], options: ServeOptions, host: str, port: int) -> int:
    """Answer requests until SIGTERM or SIGINT, then finish those that have arrived; return the signal's
    number.

    `port` 0 takes any free port. Raises InputError for an address that cannot be used, and as `load` does.
    """
    listener = listen(host, port)
    service = Service(load, options)
    address = f"[{host}]" if ":" in host else host
    logger.info("%s answers on http://%s:%d", service.model.folder, address, listener.getsockname()[1])
    if options.api_key is None and not host.startswith(LOCAL):
        logger.warning("other machines can reach %s, and no API key is set", host)
    received: list[int] = []
    # uvicorn sends itself the signal again once it has ended; this process has more to do then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: received.append(number))
    uvicorn.Server(server_config(service)).run(sockets=[listener])
    return received[0] if received else 0


def server_config(service: Service) -> uvicorn.Config:
    """Return how uvicorn runs: quietly, HTTP only, with connections that end in time."""
    # uvicorn warns about each request that is no HTTP.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    options = service.options
    return uvicorn.Config(
        build_application(service),
        http=partial(TimedConnection, seconds=options.receive_timeout, most=options.connections),
        # Whether or not uvloop is installed: the time limits are tested with this one
        loop="asyncio",
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
        return socket.create_server(address, family=family, backlog=2048)
    except OSError as error:
        # Python names the address again in parentheses
        problem = str(error.strerror).partition(" (")[0]
        raise InputError(
            f"--host {host} --port {port}: cannot listen there: {problem}; choose another port or host"
        ) from error
