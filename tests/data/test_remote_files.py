"""Data files on object stores: python -m pytest tests/data/test_remote_files.py"""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.files import local_copies
from app.errors import InputError, TrainingError
from tests.saved_classifier import save_checkpoint
from tests.verbs import predict as main

ROOT = Path(__file__).resolve().parents[2]
ROWS = [(f"第{number}条评论", ["好", "坏", "中"][number * number % 3]) for number in range(60)]
SECRET = "s3cr3t-of-a-key"


@pytest.fixture
def store():
    """Return a function that writes an object of a store in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield lambda path, text: system.pipe_file(path, text.encode())
    system.store.clear()


def csv_text(rows):
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)


def test_a_set_on_an_object_store_is_the_set_on_disk(tmp_path, store, write):
    cache = str(tmp_path / "cache")
    store("/bucket/posts/b.csv", csv_text(ROWS[30:]))
    store("/bucket/posts/a.csv", csv_text(ROWS[:30]))
    store("/bucket/posts/_SUCCESS", "")
    store("/bucket/posts/inner/c.csv", "no")
    local = [str(write("a.csv", csv_text(ROWS[:30]))), str(write("b.csv", csv_text(ROWS[30:])))]
    expected = open_dataset(DataConfig(train=local, cache_dir=cache))
    for address in ("memory://bucket/posts", "memory://bucket/posts/", "memory://bucket/posts/*.csv"):
        assert open_dataset(DataConfig(train=address, cache_dir=cache)).folder == expected.folder
    # Errors name the file and its line
    store("/bucket/bad.csv", csv_text([*ROWS, ("一条评论", "")]))
    with pytest.raises(InputError, match=r"remote-\w+/bad.csv, line 62: the label is empty"):
        open_dataset(DataConfig(train="memory://bucket/bad.csv", cache_dir=cache))


def test_a_copy_is_made_once_for_each_content(tmp_path, store):
    def copied():
        return Path(*local_copies("memory://bucket/posts.csv", str(tmp_path)))

    store("/bucket/posts.csv", "one")
    copy = copied()
    assert (copy.name, copy.read_text()) == ("posts.csv", "one")
    written = copy.stat().st_mtime_ns
    assert (copied(), copy.stat().st_mtime_ns) == (copy, written)
    store("/bucket/posts.csv", "two")
    assert (copied().read_text(), copy.read_text()) == ("two", "one")


def test_predict_reads_addresses(tmp_path, store, monkeypatch, capsys):
    checkpoint = str(save_checkpoint(tmp_path / "bert"))
    monkeypatch.chdir(tmp_path)
    store("/bucket/posts/a.csv", csv_text(ROWS))
    store("/bucket/posts/b.csv", csv_text(ROWS[:1]))
    options = ["--checkpoint", checkpoint, "--device", "cpu", "--input"]
    assert main([*options, "memory://bucket/posts/a.csv", "--output", "a.csv"]) == 0
    assert len(Path("a.csv").read_text(encoding="utf-8").splitlines()) == 61
    assert main([*options, "memory://bucket/posts/", "--output", "b.csv"]) == 2
    assert "one file is needed, found 2; predict writes those of several" in capsys.readouterr().err


def test_a_web_server(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "whole.bin").write_bytes(b"x" * 100_000)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        (copy,) = local_copies(f"{address}/whole.bin", str(tmp_path))
        assert Path(copy).read_bytes() == b"x" * 100_000
        with pytest.raises(InputError, match="FileNotFoundError"):
            local_copies(f"{address}/other.bin", str(tmp_path))
        server.shutdown()


@pytest.mark.parametrize(
    "address", [f"s3://me:{SECRET}@bucket/a.csv", f"https://host/a.csv?Signature={SECRET}"]
)
@pytest.mark.parametrize("setting", ["data.train", "data.dev", "data.test"])
def test_an_address_with_credentials_is_refused_without_showing_them(address, setting):
    others = [] if setting == "data.train" else ["--data.train", "a.csv"]
    with pytest.raises(InputError, match=f"{setting}: an address must have no") as caught:
        load_config([f"--{setting}", address, *others])
    assert SECRET not in str(caught.value)
    with pytest.raises(InputError) as caught:
        local_copies(address, "unused")
    assert SECRET not in str(caught.value)


def test_what_a_store_says_of_a_key_is_in_no_message(tmp_path, monkeypatch):
    class Store(fsspec.AbstractFileSystem):
        protocol = "keyed"

        def info(self, path, **options):
            raise PermissionError(f"the key {SECRET} may not read {path}")

        def isdir(self, path):
            return False

    fsspec.register_implementation("keyed", Store)
    with pytest.raises(
        TrainingError, match=r"keyed://bucket/a.csv: cannot be read \(PermissionError\)"
    ) as caught:
        local_copies("keyed://bucket/a.csv", str(tmp_path))
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_store_without_its_package_says_which(tmp_path):
    with pytest.raises(InputError, match=r"the package of the store \(pip install -r requirements/remote"):
        local_copies("nosuch://bucket/a.csv", str(tmp_path))
