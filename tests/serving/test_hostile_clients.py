"""Clients that send garbage, are slow, break off, or are many: python -m pytest
tests/serving/test_hostile_clients.py -m ""

The server is a separate process, and asked over sockets.
"""

import asyncio
import json
import re
import signal
import socket
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
import httpx2

from app.prediction.open_model import ComputeOptions, open_model
from app.serving.application import ServeOptions
from tests.saved_classifier import as_rows, random_texts
from tests.serving.hostile_bodies import hostile
from tests.serving.running_server import HEAD, running, server_process

STATUSES = {200, 400, 404, 405, 413, 422}
# seconds, before a test fails
MINUTE = 60


def expected(checkpoint: Path, texts: list[str]) -> list[tuple[str, float]]:
    """Return the best label and its probability of each text, as `predict` has them."""
    predictions = open_model(checkpoint, ComputeOptions("cpu")).predictor.predict(as_rows(texts))
    return [(prediction.answer, float(prediction.probabilities.max())) for prediction in predictions]


def assert_answers(body: bytes, wanted: tuple[str, float]) -> None:
    (best,) = json.loads(body)
    assert (best["label"], best["score"]) == (wanted[0], pytest.approx(wanted[1], abs=2e-6))


def question(text: str) -> bytes:
    body = json.dumps({"inputs": text, "top_k": 1}).encode()
    return HEAD % len(body) + body


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def exchange(port: int, raw: bytes, is_whole: bool = True) -> tuple[int | None, bytes]:
    """Send bytes, and return the status and the body of the first answer; status None where there is no
    answer.

    What the server still waits for is ended by closing this side.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        await writer.drain()
        if not is_whole:
            # Cut off already
            with suppress(OSError):
                writer.write_eof()
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), MINUTE)
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = await asyncio.wait_for(reader.readexactly(int(length[1])) if length else reader.read(), MINUTE)
        return int(head.split()[1]), body
    except (ConnectionError, asyncio.IncompleteReadError):
        # Cut off
        return None, b""
    finally:
        writer.close()


def metric(address: str, name: str) -> float:
    text = httpx2.get(f"{address}/metrics", timeout=MINUTE).text
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def wait_until(condition) -> None:
    """Wait for what stays true once it is."""
    deadline = time.monotonic() + MINUTE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_10_000_hostile_requests_and_honest_ones_between_them(checkpoint):
    texts = random_texts(40)
    wanted = expected(checkpoint, texts)
    seen: Counter = Counter()

    async def client(port: int, numbers: range) -> None:
        for number in numbers:
            request = hostile(number)
            status, body = await exchange(port, *request)
            seen[status] += 1
            assert status not in (413, 422) or json.loads(body)["error"].isprintable(), number
            assert status in (STATUSES if request.is_whole else STATUSES | {None}), (number, status)
            if number % 50 == 0:
                text = number // 50 % len(texts)
                status, body = await exchange(port, question(texts[text]))
                assert status == 200
                assert_answers(body, wanted[text])

    async def clients(port: int) -> None:
        await asyncio.gather(*(client(port, range(first, 10_000, 16)) for first in range(16)))

    with server_process(checkpoint) as (process, address):
        asyncio.run(clients(port_of(address)))
        assert min(seen[status] for status in (200, 400, 404, 405, 422)) > 10, seen
        wait_until(lambda: metric(address, "classifier_waiting_texts") == 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(MINUTE) == 0
        # The address
        assert len(process.log_lines()) == 1, process.log_lines()[-30:]


@pytest.fixture(scope="module")
def hurried(checkpoint):
    """The address of a server that waits half a second for a client."""
    opened = open_model(checkpoint, ComputeOptions("cpu"))
    options = ServeOptions(receive_timeout=0.5, connections=8)
    with running(opened, options) as address:
        yield address


def connect(address: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port_of(address)))
    connection.settimeout(MINUTE)
    return connection


def test_a_client_that_sends_its_body_too_slowly_is_cut_off(hurried):
    with connect(hurried) as connection:
        connection.sendall(HEAD % 100_000)
        deadline = time.monotonic() + MINUTE
        with pytest.raises(ConnectionError):  # noqa: PT012
            while time.monotonic() < deadline:
                connection.sendall(b"a")
                time.sleep(0.05)


def test_a_client_that_asks_nothing_more_is_cut_off(hurried):
    with connect(hurried) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while received := connection.recv(1000):
            answer += received
    assert answer.startswith(b"HTTP/1.1 200")


def test_requests_on_more_connections_than_allowed_are_refused_and_later_taken(hurried):
    many = [connect(hurried) for _ in range(12)]
    many[-1].sendall(question("今天"))
    assert many[-1].recv(20) == b"HTTP/1.1 503 Service"
    for connection in many:
        connection.close()
    wait_until(lambda: httpx2.get(f"{hurried}/health", timeout=MINUTE).status_code == 200)
