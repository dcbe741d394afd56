"""Downloads from mirrors that are good, broken, slow and wrong, of a real HTTP server: python -m pytest
tests/data/test_fetching.py"""

import hashlib
import os
import re
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
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        self.server.requests.append((kind, start))
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
        elif kind == "norange":
            self.answer(CONTENT)
        elif kind == "lying":
            self.answer(OTHER, start)
        elif kind == "cut":
            self.answer(CONTENT, start, end=start + 100_000)
        elif kind == "otherpart":
            self.answer(CONTENT, start, shown=start + 5)
        elif kind == "slow":
            self.send_response(200)
            self.end_headers()
            while not self.server.over.wait(0.05):
                self.wfile.write(b"x")
        else:
            self.answer(CONTENT, start)

    def answer(self, content, start=0, end=None, shown=None):
        self.send_response(206 if start else 200)
        if start:
            first = start if shown is None else shown
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:end])

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
        ("cut", "otherpart", "norange"),
        ("cut", "cut", "cut"),
    ],
)
def test_the_file_is_whole_and_the_known_one(kinds, known, tmp_path):
    assert place_file(known(*kinds), tmp_path, PATIENT)
    assert (tmp_path / "x.tsv").read_bytes() == CONTENT
    assert names(tmp_path) == {"x.tsv"}


def test_a_slow_mirror_is_left_for_the_next(known, tmp_path):
    assert place_file(known("slow", "good"), tmp_path, 3.0)
    assert (tmp_path / "x.tsv").read_bytes() == CONTENT


@pytest.mark.parametrize("kind", ["slow", "silent"])
def test_without_another_mirror_it_is_an_error(kind, known, tmp_path):
    with pytest.raises(
        TrainingError, match=rf"no mirror has x.tsv:\n  http://.*/{kind}/x.tsv: .*(too slow|timed out)"
    ):
        place_file(known(kind), tmp_path, 0.5)
    assert not (tmp_path / "x.tsv").exists()


def test_every_mirror_is_named_with_what_is_wrong(known, tmp_path):
    with pytest.raises(TrainingError) as caught:
        place_file(known("broken", "missing", "lying", "endless", "page"), tmp_path, PATIENT)
    lines = str(caught.value).splitlines()
    for line, problem in zip(
        lines[1:6], ("status 500", "status 404", "another file", "more than", "ended after 19"), strict=True
    ):
        assert problem in line
    assert "--from FOLDER" in lines[-1]
    assert not (tmp_path / "x.tsv").exists()


def test_an_address_of_another_kind_is_refused(tmp_path):
    file = PublicFile("x.tsv", len(CONTENT), SHA256, ("file:///etc/hostname", "http://127.0.0.1:1/x"))
    with pytest.raises(TrainingError, match=r"(?s)must begin with http.*refused"):
        place_file(file, tmp_path, PATIENT)


def test_an_interrupted_download_is_resumed(known, tmp_path, server):
    with pytest.raises(TrainingError, match="it ended after 100,000 of 300,000 bytes"):
        place_file(known("cut"), tmp_path, PATIENT)
    assert (tmp_path / ".x.tsv.part").stat().st_size == 100_000
    assert place_file(known("good"), tmp_path, PATIENT)
    assert server.requests == [("cut", 0), ("good", 100_000)]
    assert not place_file(known("broken"), tmp_path, PATIENT), "a file that is here is not asked for again"


def test_a_wrong_beginning_is_downloaded_again(known, tmp_path, server):
    (tmp_path / ".x.tsv.part").write_bytes(OTHER[:5000])
    assert place_file(known("good"), tmp_path, PATIENT)
    assert server.requests == [("good", 5000), ("good", 0)]
    assert (tmp_path / "x.tsv").read_bytes() == CONTENT


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
