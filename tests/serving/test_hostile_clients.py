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
from random import Random

import pytest

pytest.importorskip("fastapi")
import httpx2

from app.prediction.open_model import ComputeOptions, open_model
from app.serving.application import ServeOptions
from tests.saved_classifier import as_rows, random_texts
from tests.serving.running_server import HEAD, running, server_process

STATUSES = {200, 400, 404, 405, 413, 422}
MINUTE = 60  # seconds, before a test fails
TYPES = ("application/json; charset=gbk", "text/plain", "multipart/form-data", "a" * 300, "", "\xff\x00")
NUMBERS = ("1e999", "-0", "9" * 5000, "NaN", "Infinity", "-1", "0", "true", '"3"', "1.5", "null", "[]")
# Texts as JSON, most of them with characters that are not allowed, or no texts at all
TEXTS = [r'"\ud800"', r'"今天\udc00\ud800"', r'"\u0000\u202e\ufeff"', '""', r'" \t\n"']
TEXTS += ['{"text": {"text": "a"}}', *NUMBERS]
TEXTS += [f'{{"text": "a", "text_pair": {number}}}' for number in NUMBERS]
TEXTS += [f'"{"好" * count}"' for count in (1, 30, 3000)] + ["[" * count for count in (1, 50, 3000)]
TEXTS += [json.dumps("".join(map(chr, range(first, first + 80)))) for first in range(1, 0xD700, 5000)]


def hostile(number: int) -> tuple[bytes, bool]:
    """Return bytes that no honest client sends, the same for the same number, and whether the server has all
    that it waits for, so that an answer must come."""
    random = Random(number)
    texts, depth = random.choices(TEXTS, k=random.randrange(200)), random.randrange(1, 20_000)
    damaged = bytearray(b'{"inputs": ["\xe4\xbb\x8a\xe5\xa4\xa9", "a"], "top_k": 2}')
    for _ in range(random.randrange(1, 5)):
        damaged[random.randrange(len(damaged))] = random.randrange(256)
    bodies = [random.randbytes(random.randrange(2000)), bytes(damaged), b'{"inputs": ' * (depth // 4)]
    bodies.append(b'{"inputs": ' + b"[" * depth + b"]" * depth * random.randrange(2) + b"}")
    bodies += [f'{{"inputs": "a", "top_k": {random.choice(NUMBERS)}}}'.encode()]
    bodies += [f'{{"inputs": [{", ".join(texts)}]}}'.encode()]
    bodies += [f'{{"inputs": "a", "{"k" * (depth // 40)}": 1, "inputs": {random.choice(TEXTS)}}}'.encode()]
    encoding = random.choice(["utf-8", "utf-16", "utf-8-sig"])
    bodies += [f'{{"inputs": {random.choice(TEXTS)}}}'.encode(encoding)]
    content, kind = random.choice(bodies), random.randrange(12)
    method = random.choice(["POST"] * 12 + ["GET", "PUT", "BREW"])
    path = random.choice(["/predict"] * 12 + ["/", "/info", "/health?a=%00", "/../etc/passwd", "//", "*"])
    content_type = random.choice(["application/json"] * 9 + [*TYPES]).encode("latin-1")
    # A method that HTTP does not have is refused at once: the client may still be sending when it is cut off
    is_http = b"\x00" not in content_type and method != "BREW"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: ".encode() + content_type + b"\r\n"
    rest = b"Content-Length: %d\r\n\r\n" % len(content) + content
    whole = head + rest
    if kind == 0:
        return random.randbytes(random.randrange(1, 500)) + b"\r\n\r\n", False
    if kind in (1, 2):
        sizes = [f"{len(content):x}", "zz", "-1", "f" * 30, "0"] if kind == 2 else [f"{len(content):x}"]
        chunk = random.choice(sizes).encode() + b"\r\n" + content + b"\r\n0\r\n\r\n"
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk, kind == 1 and is_http
    if kind == 3:
        lengths = ["-1", "1, 2", "9" * 50, "0x10", str(len(content) + 7), str(len(content) // 2), ""]
        return head + f"Content-Length: {random.choice(lengths)}\r\n\r\n".encode() + content, False
    if kind == 4:
        return head + b"Transfer-Encoding: chunked\r\n" + rest, False
    if kind == 5:
        lines = [b"X-%d: %s\r\n" % (n, b"a" * random.randrange(900)) for n in range(random.randrange(60))]
        return head + b"".join(lines) + rest, False
    if kind == 6:
        return whole[: random.randrange(1, len(whole))], False
    return (whole * random.randrange(2, 5), False) if kind == 7 else (whole, is_http)


def question(text: str) -> bytes:
    body = json.dumps({"inputs": text, "top_k": 1}).encode()
    return HEAD % len(body) + body


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def exchange(port: int, raw: bytes, is_whole: bool = True) -> tuple[int | None, bytes]:
    """Send bytes, and return the status and the body of the first answer, status None without one. What the
    server still waits for is ended by closing this side."""
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
    predictions = open_model(checkpoint, ComputeOptions("cpu")).predictor.predict(as_rows(texts))
    wanted = [(one.answer, pytest.approx(one.probabilities.max(), abs=2e-6)) for one in predictions]
    seen: Counter = Counter()

    async def client(port: int, numbers: range) -> None:
        for number in numbers:
            request, is_whole = hostile(number)
            status, body = await exchange(port, request, is_whole)
            seen[status] += 1
            assert status not in (413, 422) or json.loads(body)["error"].isprintable(), number
            assert status in (STATUSES if is_whole else STATUSES | {None}), (number, status)
            if number % 50 == 0:
                text = number // 50 % len(texts)
                status, body = await exchange(port, question(texts[text]))
                assert status == 200
                (best,) = json.loads(body)
                assert (best["label"], best["score"]) == wanted[text]

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
    """The address of a server that waits half a second for the next request of a client."""
    opened = open_model(checkpoint, ComputeOptions("cpu"))
    options = ServeOptions(keep_alive=0.5, connections=8)
    with running(opened, options) as address:
        yield address


def connect(address: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port_of(address)))
    connection.settimeout(MINUTE)
    return connection


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
