"""A server on a free port of this machine: in a thread of the test's process, or in a separate process."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import uvicorn

from app.commands.server_options import KEY
from app.prediction.open_model import OpenedModel
from app.serving.options import ServeOptions
from app.serving.server import listen, server_config
from tests.processes import ROOT, wait_until

# Of a request whose body has a number of bytes
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
HEAD += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
OPTIONS = ServeOptions()
SCHEMAS: dict[str, dict] = {}  # /openapi.json of the servers in this process, by their address


def check_declared(answer: httpx2.Response) -> None:
    """Fail unless /openapi.json says that a route may answer so: the status, the type and the form."""
    request = answer.request
    schema = SCHEMAS.get(f"{request.url.scheme}://{request.url.netloc.decode()}", {})
    method = request.method.lower().replace("head", "get")
    route = schema.get("paths", {}).get(request.url.path, {}).get(method)
    if route is None:
        return
    answer.read()
    place = f"{request.method} {request.url.path}: {answer.status_code} {answer.text[:300]}"
    declared = route["responses"].get(str(answer.status_code))
    assert declared is not None, place
    content_type = answer.headers["content-type"].partition(";")[0]
    assert list(declared["content"]) == [content_type], place
    assert set(declared.get("headers", {})) <= {name.title() for name in answer.headers}, place
    if content_type == "application/json" and request.method != "HEAD" and find_spec("jsonschema"):
        import jsonschema

        form = declared["content"][content_type]["schema"] | {"components": schema["components"]}
        jsonschema.validate(answer.json(), form)


HOOKS = {"response": [check_declared]}
HTTP = httpx2.Client(timeout=120, event_hooks=HOOKS)


@contextmanager
def running(model: OpenedModel, options: ServeOptions) -> Iterator[str]:
    """Yield the address of a running server of a model, which ends with the context."""
    with running_application(server_config(model, options)) as address:
        yield address


@contextmanager
def running_application(config: uvicorn.Config) -> Iterator[str]:
    """Yield the address of a running server, which ends with the context."""
    listener = listen("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    SCHEMAS[address] = config.app.openapi()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield address
    finally:
        server.should_exit = True
        thread.join()
        del SCHEMAS[address]


def ask(model: OpenedModel, path: str, body: dict | None, options: ServeOptions = OPTIONS) -> httpx2.Response:
    """Return the answer of a server of a model to one request: a POST request, without a body a GET one."""
    with running(model, options) as address:
        if body is None:
            return HTTP.get(f"{address}/{path}")
        return HTTP.post(f"{address}/{path}", json=body)


def classify(address: str, inputs: object = "今天", **options) -> httpx2.Response:
    return HTTP.post(f"{address}/predict", json={"inputs": inputs}, **options)


def send(address: str, raw: bytes) -> socket.socket:
    """Return a connection to a server on which bytes were sent."""
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(raw)
    return connection


@contextmanager
def server_process(
    folder: Path, *options: str, key: str | None = None
) -> Iterator[tuple[subprocess.Popen, str, Path]]:
    """Yield the process of `python -m app serve`, which ends with the context, its address, and the file of
    its messages; `key` is its API key."""
    command = [sys.executable, "-m", "app", "serve", str(folder), "--port", "0", "--device", "cpu", *options]
    with TemporaryDirectory() as temporary:
        log = Path(temporary, "log")
        with process_with_address(command, ROOT, log, key) as (process, address):
            yield process, address, log


@contextmanager
def process_with_address(
    command: list[str], folder: Path, log: Path, key: str | None, **variables: str
) -> Iterator[tuple[subprocess.Popen, str]]:
    """Yield the process of a command that runs a server, which ends with the context, and its address. The
    command runs in a folder, with an API key and more variables; its messages are written to the file `log`.
    """
    environment = {name: value for name, value in os.environ.items() if name != KEY} | variables
    if key is not None:
        environment[KEY] = key
    # A pipe that is not read would hold the process up
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stderr=file)
        try:
            addresses = partial(re.findall, r"(http://[\d.:]+)\n")
            wait_until(lambda: process.poll() is not None or addresses(log.read_text()), 300, log.read_text)
            assert process.poll() is None, log.read_text()
            yield process, addresses(log.read_text())[0]
        finally:
            process.kill()
            process.wait()


class HeldRuntime:
    """A runtime that computes once it is released, and notes the number of rows of each call."""

    def __init__(self, runtime) -> None:
        self.runtime = runtime
        self.started, self.released = threading.Event(), threading.Event()
        self.released.set()
        self.rows: list[int] = []

    def __getattr__(self, name: str):
        return getattr(self.runtime, name)

    def hold(self) -> None:
        self.released.clear()
        self.started.clear()

    def logits(self, batches, on_batch):
        batches = list(batches)
        self.rows.append(sum(len(batch.windows) for batch in batches))
        self.started.set()
        assert self.released.wait(60)
        return self.runtime.logits(batches, on_batch)
