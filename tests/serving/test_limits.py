"""What a client may make the server hold: files that unpack to much, bodies and headers without an end. The
memory is that of the server's process and of those that it starts, as the system counts it."""

import io
import json
import os
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("fastapi")
from pyarrow import parquet
from xlsxwriter import Workbook

from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from app.serving.options import ServeOptions
from app.serving.protocol import MAX_HEAD
from app.serving.uploads import MAX_MEMORY
from tests.processes import wait_until
from tests.serving.running_server import HEAD, HTTP, HeldRuntime, classify, running, send, server_process

MEBIBYTE = 1 << 20
START = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def answer_to(address: str, raw: bytes) -> bytes:
    """Send bytes without looking at the answer before, as many clients do; return the beginning of it."""
    with send(address, raw) as connection:
        return connection.recv(1000)


def repeated_text(text: str, num_rows: int) -> bytes:
    """Return a Parquet file that has a text once, and says how often it comes."""
    column = pa.DictionaryArray.from_arrays(np.zeros(num_rows, np.int32), pa.array([text]))
    file = io.BytesIO()
    table = pa.table({"text": column})
    parquet.write_table(table, file, compression="zstd", store_schema=False, data_page_size=1 << 30)
    return file.getvalue()


def workbook(last_row: int, last_column: int) -> bytes:
    file = io.BytesIO()
    book = Workbook(file)
    sheet = book.add_worksheet()
    sheet.write(0, 0, "text")
    sheet.write(1, 0, "今天")
    sheet.write(last_row, last_column, "好")
    book.close()
    return file.getvalue()


def packed_workbook(num_bytes: int) -> bytes:
    """Return a workbook with one text of so many bytes."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(workbook(1, 0))) as small,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as large,
    ):
        for name in small.namelist():
            content = small.read(name)
            if name.endswith("sharedStrings.xml"):
                content = content.replace("好".encode(), b"a" * num_bytes)
            large.writestr(name, content)
    return file.getvalue()


TOO_LARGE = {
    "rows.parquet": (lambda: repeated_text("今天", 2_000_000), "a file may have 1,000,000 rows"),
    "texts.parquet": (lambda: repeated_text("好" * 1_000_000, 100_000), "2,147,483,648 bytes of memory"),
    "cells.xlsx": (lambda: workbook(1_048_575, 16_383), "2,147,483,648 bytes of memory"),
    "texts.xlsx": (lambda: packed_workbook(1 << 30), "2,147,483,648 bytes of memory"),
    "columns.jsonl": (
        lambda: b"".join(b'{"text": "a", "%d": 1}\n' % number for number in range(20_000)),
        "a file may have 16,384 columns, found 20,001",
    ),
}


# To pack a gibibyte takes ten seconds
NAMES = [name for name in TOO_LARGE if name not in ("texts.xlsx", "rows.parquet")]
NAMES.append(pytest.param("rows.parquet", marks=pytest.mark.slow))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_unpacks_to_too_much_is_413(client, name):
    make, message = TOO_LARGE[name]
    content = make()
    assert len(content) < 2 * MEBIBYTE
    refused = client.post("/predict_file", params={"name": name}, content=content)
    assert (refused.status_code, refused.json()["error_type"]) == (413, "validation")
    assert refused.json()["error"].startswith(f"{name}: ")
    assert message in refused.json()["error"]


def test_a_text_of_a_file_has_the_limit_of_other_texts(client):
    content = f"今天真好\n{'好' * 100_001}\n".encode()
    answer = client.post("/predict_file", params={"name": "a.txt"}, content=content)
    assert "line 2: the text may have 100,000 characters, found 100,001" in answer.text
    assert json.loads(answer.headers["x-summary"])["invalid"] == 1


@pytest.fixture
def held(checkpoint) -> OpenedModel:
    opened = open_model(checkpoint, ComputeOptions("cpu"))
    opened.predictor.runtime = HeldRuntime(opened.predictor.runtime)
    return opened


def test_a_file_that_is_computed_takes_its_place_in_the_queue(held):
    runtime = held.predictor.runtime
    content = "今天\n真好\n".encode()

    def post() -> int:
        return HTTP.post(f"{address}/predict_file", params={"name": "a.txt"}, content=content).status_code

    statuses = []
    with running(held, ServeOptions(capacity=200)) as address:
        runtime.hold()
        thread = threading.Thread(target=lambda: statuses.append(post()))
        thread.start()
        assert runtime.started.wait(60)
        assert post() == 429
        runtime.released.set()
        thread.join()
        assert [*statuses, post()] == [200, 200]


def test_a_body_that_is_sent_without_waiting_gets_its_answer_and_the_next_one_too(client):
    address = str(client.base_url)
    body = b" " * (50 * MEBIBYTE)
    with send(address, HEAD % len(body) + body) as connection:
        assert connection.recv(12) == b"HTTP/1.1 413"
    chunked = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    chunked += b"Content-Type: application/json\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with send(address, chunked) as connection:
        assert connection.recv(12) == b"HTTP/1.1 413"
        wait_until(lambda: b"}" in connection.recv(10_000))
        connection.sendall(START + b"\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    "head",
    [
        START + b"A: " + b"a" * 3 * MAX_HEAD,
        START + b"A: b\r\n" * MAX_HEAD,
        b"GET /" + b"a" * 3 * MAX_HEAD,
        b"GET /" + b"a" * 3 * MAX_HEAD + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["one", "many", "address", "whole"],
)
def test_a_long_head_is_431(client, head):
    answer = answer_to(str(client.base_url), head)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"the request line and the headers may have 65,536 bytes" in answer


def send_until_closed(connection: socket.socket, part: bytes, max_parts: int) -> bool:
    """Send a part of a request again and again; return whether the server closed the connection before it
    had come `max_parts` times."""
    try:
        for _ in range(max_parts):
            connection.sendall(part)
    except ConnectionError:
        return True
    return False


def test_headers_after_a_body_have_the_same_limit(client):
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    with send(str(client.base_url), head) as connection:
        assert send_until_closed(connection, b"A: b\r\n" * 10_000, 1000)


def test_a_usual_head_is_taken(client):
    head = START + b"A: " + b"a" * 32_000 + b"\r\n\r\n"
    assert answer_to(str(client.base_url), head).startswith(b"HTTP/1.1 200")


def memory_of(process: int, parents_command: bytes = b"") -> int:
    """Return the bytes in memory of a process and of all that it started; 0 for one that has ended, and for
    one that does not run its own program yet: until then its memory is that of its parent."""
    folder = Path(f"/proc/{process}")
    try:
        command = (folder / "cmdline").read_bytes()
        if command == parents_command:
            return 0
        pages = int((folder / "statm").read_text().split()[1])
        children = []
        for thread in (folder / "task").iterdir():
            children += (thread / "children").read_text().split()
    except OSError:
        return 0
    of_children = [memory_of(int(child), command) for child in children]
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(of_children)


class Server:
    """A server in a process of its own, and the most memory that it took since `forget`."""

    def __init__(self, process: int, address: str) -> None:
        self.process = process
        self.address = address
        self.is_watched = True
        self.forget()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self) -> None:
        while self.is_watched:
            self.peak = max(self.peak, memory_of(self.process))
            time.sleep(0.005)

    def forget(self) -> None:
        self.before = memory_of(self.process)
        self.peak = self.before

    def least_taken(self, action: Callable[[], None]) -> int:
        """Return the least memory that an action took in three times. What it needs it takes each time;
        beside it a process grows now and then, where its allocator asks for more or gives back."""
        taken = []
        for _ in range(3):
            self.forget()
            action()
            taken.append(self.taken)
        return min(taken)

    @property
    def taken(self) -> int:
        return self.peak - self.before


@pytest.fixture(scope="module")
def server(checkpoint) -> Iterator[Server]:
    with server_process(checkpoint) as (process, address, _):
        server = Server(process.pid, address)
        assert classify(address).status_code == 200
        yield server
        server.is_watched = False
        server.thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", TOO_LARGE)
def test_the_memory_for_a_file_is_bounded_and_given_back(server, name):
    make, _ = TOO_LARGE[name]
    server.forget()
    refused = HTTP.post(f"{server.address}/predict_file", params={"name": name}, content=make())
    assert refused.status_code == 413
    assert server.taken < MAX_MEMORY + 200 * MEBIBYTE
    assert memory_of(server.process) - server.before < 50 * MEBIBYTE


@pytest.mark.slow
def test_a_file_of_many_rows_takes_little_memory_of_the_server(server):
    """Its rows and the answer are on the disk."""
    content = b"text\n" + "今天真好\n".encode() * 100_000
    server.forget()
    answer = HTTP.post(f"{server.address}/predict_file", params={"name": "a.csv"}, content=content)
    assert answer.status_code == 200
    assert answer.text.count("\n") == 100_001
    assert server.taken < 200 * MEBIBYTE


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"a" * 1000, b"A: " + b"a" * 997 + b"\r\n"], ids=["one", "many"])
def test_200_megabytes_of_headers_take_little_memory(server, line):
    def send_headers() -> None:
        with send(server.address, START + b"A: ") as connection:
            for _ in range(200):
                connection.sendall(line * 1000)
            assert connection.recv(12) == b"HTTP/1.1 431"

    assert server.least_taken(send_headers) < 30 * MEBIBYTE
    assert classify(server.address).status_code == 200


@pytest.mark.slow
def test_a_body_without_an_end_is_not_read_for_ever(server):
    def send_body() -> None:
        with send(server.address, HEAD % (1 << 40)) as connection:
            assert send_until_closed(connection, b" " * MEBIBYTE, 1000)

    assert server.least_taken(send_body) < 30 * MEBIBYTE
