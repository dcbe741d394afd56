"""What scripts/fetch_data.py fetches."""

import hashlib
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from scripts import fetch_data
from tests.processes import REAL_DATA, ROOT

NAME = "tiny/train.tsv"
CONTENT = b"text\tlabel\n"


def test_the_first_mirror_with_the_known_file_is_taken_and_no_other_file(tmp_path, monkeypatch):
    """Of three mirrors one has nothing, one another file, and one the file."""
    pytest.importorskip("pooch", reason="needs pooch: pip install -r requirements/data.txt")
    for mirror, content in (("other", b"another file"), ("right", CONTENT)):
        folder = tmp_path / "mirrors" / mirror / "owner" / "set"
        folder.mkdir(parents=True)
        (folder / "train.tsv").write_bytes(content)
    monkeypatch.setattr(fetch_data, "FILES", {NAME: (hashlib.sha256(CONTENT).hexdigest(), "owner@set")})
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "mirrors")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        mirrors = [(f"{address}/{name}/", "/") for name in ("none", "other", "right")]
        monkeypatch.setattr(fetch_data, "MIRRORS", mirrors[:2])
        message = "no mirror has tiny/train.tsv:\n.*none.*\n.*other.*\ntry again, or copy"
        with pytest.raises(SystemExit, match=message):
            fetch_data.fetch(NAME, tmp_path)
        assert not (tmp_path / NAME).exists()
        monkeypatch.setattr(fetch_data, "MIRRORS", mirrors)
        fetch_data.fetch(NAME, tmp_path)
        server.shutdown()
    # A file that is there is neither fetched again nor replaced
    fetch_data.fetch(NAME, tmp_path)
    assert [path.name for path in (tmp_path / "tiny").iterdir()] == ["train.tsv"]
    assert (tmp_path / NAME).read_bytes() == CONTENT
    (tmp_path / NAME).write_text("mine")
    with pytest.raises(SystemExit, match="is not the known file; move it away"):
        fetch_data.fetch(NAME, tmp_path)
    assert (tmp_path / NAME).read_text() == "mine"


def test_every_set_has_its_origin_and_licence_and_the_configurations_name_their_files():
    assert {name.partition("/")[0] for name in fetch_data.FILES} == set(fetch_data.SETS)
    assert all(text.count(";") >= 2 for text in fetch_data.SETS.values())
    for sha256, place in fetch_data.FILES.values():
        assert re.fullmatch("[0-9a-f]{64}", sha256)
        assert re.fullmatch(r"\S+/\S+@[0-9a-f]{40}/\S+", place)
    named_files = set()
    pattern = r"^# Its files: python scripts/fetch_data\.py data/public (.*)$"
    for path in (ROOT / "configs").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        files = set(re.findall(r"data/public/(\S+/\S+)", text))
        command = re.search(pattern, text, re.MULTILINE)
        assert {name.partition("/")[0] for name in files} == set(command[1].split() if command else [])
        named_files |= files
    assert named_files == set(fetch_data.FILES)


@pytest.mark.skipif(not REAL_DATA.is_dir(), reason=f"there are no public data sets in {REAL_DATA}")
def test_the_real_files_are_the_known_ones():
    for name, (sha256, _) in fetch_data.FILES.items():
        assert hashlib.sha256((REAL_DATA / name).read_bytes()).hexdigest() == sha256
