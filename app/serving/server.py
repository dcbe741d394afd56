"""The life of a server: the address it listens on, how uvicorn runs its application, and how it ends."""

import gc
import logging
import math
import signal
import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from ..data.rows import Row
from ..errors import InputError
from ..prediction.open_model import OpenedModel
from .application import build_application
from .options import LOCAL_HOSTS, ServeOptions
from .protocol import LimitedProtocol

logger = logging.getLogger(__name__)
ALL_ADDRESSES = ("", "0.0.0.0", "::")  # listening there, the server has every address of the machine
LOCAL_ADDRESSES = ("127.", "::1", "localhost")  # how an address begins that other machines cannot reach
MAX_UNACCEPTED = 2048  # connections that the system keeps until the server accepts them


def serve(model: OpenedModel, options: ServeOptions, host: str, listener: socket.socket) -> int:
    """Answer requests until SIGTERM or SIGINT, then finish those that have arrived; return the signal.
    `listener` listens on `host`. Raises TrainingError for a model that cannot classify."""
    config = server_config(model, options)
    logger.info("%s answers on %s", model.folder, address_of(listener, host))
    return run_server(config, options, host, listener)


def address_of(listener: socket.socket, host: str) -> str:
    """Return the address, for a browser, of a server whose `listener` listens on `host`."""
    name = host
    if ":" in host:
        name = f"[{host}]"
    return f"http://{name}:{listener.getsockname()[1]}"


def run_server(config: uvicorn.Config, options: ServeOptions, host: str, listener: socket.socket) -> int:
    """Answer requests until SIGTERM or SIGINT, then finish those that have arrived; return the signal."""
    if options.api_key is None and not host.startswith(LOCAL_ADDRESSES):
        logger.warning("other machines can reach %s, and no API key is set", host)
    received: list[int] = []
    # uvicorn sends the signal to its process again once it has ended; this process has more to do then
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: received.append(number))
    uvicorn.Server(config).run(sockets=[listener])
    if not received:
        return 0
    return received[0]


def allowed_hosts(host: str, more_names: list[str]) -> tuple[str, ...]:
    """Return the allowed hosts: this machine's own names, `more_names`, and the address `host` that it
    listens on, or where this is all addresses, each of them."""
    names = {*LOCAL_HOSTS, host, *more_names}
    if host in ALL_ADDRESSES:
        with suppress(OSError):
            for info in socket.getaddrinfo(socket.gethostname(), None):
                names.add(str(info[4][0]))
    return tuple(sorted(names - {""}))


def server_config(model: OpenedModel, options: ServeOptions) -> uvicorn.Config:
    """Return how uvicorn runs the application of a model, which classifies a row first: that raises
    TrainingError for a model that cannot."""
    pair = None
    if model.trained.has_pairs:
        pair = "好"
    first_row = Row(1, "好", pair, None)
    list(model.predictor.predict([first_row]))
    # Requests make so much garbage that the collector runs all the time; with the libraries' and the model's
    # objects to look through, it takes a tenth of the server's time
    gc.collect()
    gc.freeze()
    return uvicorn_config(build_application(model, options), options)


def uvicorn_config(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    """Return how uvicorn runs an application: quietly, HTTP only, with the limits of the options."""
    # uvicorn warns about each request that is no HTTP
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        loop="asyncio",
        limit_concurrency=options.connections + 1,  # uvicorn refuses from this number on
        timeout_keep_alive=options.keep_alive,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(options.keep_alive + options.timeout) + 1,
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 is any free port. Raises InputError if it cannot."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=MAX_UNACCEPTED)
    except (OSError, UnicodeError) as error:
        # Python names the address again in parentheses
        problem = str(getattr(error, "strerror", error)).partition(" (")[0]
        raise InputError(
            f"--host {host} --port {port}: cannot listen there: {problem}; choose another port or host"
        ) from error
    # Its connections inherit this. Without it the second part of an answer waits 40 milliseconds for the
    # client to confirm the first
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
