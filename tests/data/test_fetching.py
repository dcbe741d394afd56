"""Downloads from mirrors that are good, broken and wrong, of a real HTTP server: python -m pytest
tests/data/test_fetching.py"""

import hashlib
import os
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.config.public_sets import PublicFile
from app.data.fetching import place_file
from app.errors import InputError, TrainingError

CONTENT = bytes(number % 251 for number in range(300_000))
OTHER = bytes(number % 241 for number in range(300_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
# seconds; this machine may be busy
PATIENT = 60.0


class Mirror(BaseHTTPRequestHandler):
    """Answers by the first folder of the path."""

    def do_GET(self):
        kind = self.path.split("/")[1]
        self.server.requests.append(kind)
        if kind == "broken":
            self.send_error(500)
        elif kind == "missing":
            self.send_error(404)
        elif kind == "silent":
            self.server.over.wait(120)
        elif kind == "page":
            self.answer(b"<html>log in</html>")
        elif kind == "endless":
            self.answer(CONTENT + b"more" * 50_000)
        elif kind == "lying":
            self.answer(OTHER)
        elif kind == "cut":
            self.answer(CONTENT, end=100_000)
        else:
            self.answer(CONTENT)

    def answer(self, content, end=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:end])

    def handle(self):
        # The client has heard enough
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    server.daemon_threads = True
    server.requests, server.over = [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join(60)
    server.server_close()


@pytest.fixture
def known(server):
    """Return the file, with mirrors of these kinds."""
    server.requests.clear()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    return lambda *kinds: PublicFile(
        "x.tsv", len(CONTENT), SHA256, tuple(f"{address}/{kind}/x.tsv" for kind in kinds)
    )


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


@pytest.mark.parametrize(
    "kinds",
    [
        ("good",),
        ("broken", "missing", "good"),
        ("page", "good"),
        ("endless", "good"),
        ("lying", "good"),
        ("cut", "lying", "good"),
    ],
)
def test_the_file_is_whole_and_the_known_one(kinds, known, tmp_path):
    assert place_file(known(*kinds), tmp_path, PATIENT)
    assert (tmp_path / "x.tsv").read_bytes() == CONTENT
    assert names(tmp_path) == {"x.tsv"}


def test_a_silent_mirror_is_left_for_the_next(known, tmp_path):
    assert place_file(known("silent", "good"), tmp_path, 1.0)
    assert (tmp_path / "x.tsv").read_bytes() == CONTENT
    with pytest.raises(TrainingError, match=r"no mirror has x.tsv:\n  http://.*/silent/x.tsv: .*timed out"):
        place_file(known("silent"), tmp_path / "other", 0.5)
    assert names(tmp_path / "other") == set()


def test_every_mirror_is_named_with_what_is_wrong(known, tmp_path):
    with pytest.raises(TrainingError) as caught:
        place_file(known("broken", "missing", "lying", "endless", "page"), tmp_path, PATIENT)
    lines = str(caught.value).splitlines()
    for line, problem in zip(
        lines[1:6],
        ("HTTP Error 500", "HTTP Error 404", "another file", "300,001 of 300,000 bytes", "19 of 300,000"),
        strict=True,
    ):
        assert problem in line
    assert "--from FOLDER" in lines[-1]
    assert names(tmp_path) == set()


def test_what_is_no_address_is_said(tmp_path):
    file = PublicFile("x.tsv", len(CONTENT), SHA256, ("nowhere", "http://127.0.0.1:1/x"))
    with pytest.raises(TrainingError, match=r"(?s)nowhere: unknown url type.*refused"):
        place_file(file, tmp_path, PATIENT)


def test_a_file_that_is_here_is_not_asked_for_again(known, tmp_path, server):
    assert place_file(known("good"), tmp_path, PATIENT)
    assert not place_file(known("broken"), tmp_path, PATIENT)
    assert server.requests == ["good"]


def test_a_file_from_a_folder(known, tmp_path):
    source = tmp_path / "usb.tsv"
    source.write_bytes(OTHER)
    with pytest.raises(InputError, match=r"usb.tsv must have the SHA-256 .*it is another file"):
        place_file(known(), tmp_path / "sets", PATIENT, source)
    with pytest.raises(InputError, match="is needed, and is not there"):
        place_file(known(), tmp_path / "sets", PATIENT, tmp_path / "nothing")
    source.write_bytes(CONTENT)
    assert place_file(known(), tmp_path / "sets", PATIENT, source)
    assert (tmp_path / "sets" / "x.tsv").read_bytes() == source.read_bytes()


def test_another_file_in_its_place_stays(known, tmp_path):
    (tmp_path / "x.tsv").write_text("mine")
    with pytest.raises(InputError, match=r"x.tsv is there and is not the known file .*; move it away"):
        place_file(known("good"), tmp_path, PATIENT)
    assert (tmp_path / "x.tsv").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(known, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(TrainingError, match="cannot be written"):
        place_file(known("good"), tmp_path / "sets", PATIENT)
