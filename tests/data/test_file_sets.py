"""Files as one set of rows, on disk and on object stores: python -m pytest tests/data/test_file_sets.py"""

import json
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.files import files_of, local_copies
from app.errors import InputError
from tests.data.brought import rows_of
from tests.saved_classifier import save_checkpoint
from tests.verbs import predict as main

COMMENTS = [(f"第{number}条评论", ["好", "坏", "中"][number * number % 3]) for number in range(60)]
PARTS = {"a": COMMENTS[:10], "b": COMMENTS[10:30], "c": COMMENTS[30:]}
SECRET = "s3cr3t-of-a-key"


@pytest.fixture
def opened(tmp_path):
    """Open a dataset: opened(train) has its tables in one cache."""
    return lambda train, **settings: open_dataset(
        DataConfig(train=train, cache_dir=str(tmp_path / "cache"), **settings)
    )


@pytest.fixture
def store():
    """Return a function that writes an object of a store in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield lambda path, text: system.pipe_file(path, text.encode())
    system.store.clear()


@pytest.fixture
def posts(tmp_path):
    """Write COMMENTS as three files of 10, 20 and 30 rows."""
    folder = tmp_path / "posts"
    folder.mkdir()
    for name, rows in PARTS.items():
        (folder / f"{name}.csv").write_text(csv_text(rows), encoding="utf-8")
        columns = [pa.array(values) for values in zip(*rows, strict=True)]
        parquet.write_table(pa.table(columns, names=["text", "label"]), folder / f"{name}.parquet")
    return folder


def csv_text(rows):
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_one_set_in_the_order_of_their_names(tmp_path, opened, write, posts, ending):
    dataset = opened(f"{posts}/*.{ending}")
    assert rows_of(dataset) == COMMENTS
    table, number = dataset.files["train"], 10 if ending == "parquet" else 11
    assert (table.where(9), table.where(10)) == (
        f"{posts}/a.{ending}, {table.row_unit} {number}",
        f"{posts}/b.{ending}, {table.row_unit} {number - 9}",
    )
    assert opened([f"{posts}/{name}.{ending}" for name in "abc"]).folder == dataset.folder
    one = opened(str(write("one.tsv", "".join(f"{text}\t{label}\n" for text, label in COMMENTS))))
    for name, split in one.splits.items():
        assert np.array_equal(split.rows, dataset.splits[name].rows)
        assert np.array_equal(split.labels, dataset.splits[name].labels)


def test_the_cache_follows_the_contents(tmp_path, opened, posts):
    def tables():
        paths = (tmp_path / "cache").glob("table-*/rows.arrow")
        return {path.parent.name: path.stat().st_ctime_ns for path in paths}

    for path in posts.glob("*.parquet"):
        path.unlink()
    (posts / "_SUCCESS").write_text("")
    (posts / ".hidden").write_text("x")
    before, built = opened(str(posts)), tables()
    os.rename(posts / "b.csv", posts / "b2.csv")
    assert opened(str(posts)).folder == before.folder
    (posts / "d.csv").write_text("text,label\n新的评论,好\n", encoding="utf-8")
    table = opened(str(posts)).files["train"]
    assert (table.num_rows, table.where(60)) == (61, f"{posts}/d.csv, line 2")
    assert table.content != before.files["train"].content
    assert tables().items() >= built.items()


def test_a_limit_is_that_of_each_file(opened, posts):
    wanted = [row for rows in PARTS.values() for row in rows[:15]]
    assert rows_of(opened(f"{posts}/*.csv", limit=15)) == wanted


def test_errors_and_skipped_rows_name_the_file_and_its_own_line(opened, posts):
    with (posts / "b.csv").open("a", encoding="utf-8") as file:
        file.write("只有文本\n又一条,好\n")
    with pytest.raises(InputError, match=r"b\.csv, line 22: 2 columns are needed"):
        opened(f"{posts}/*.csv")
    table = opened(f"{posts}/*.csv", on_bad_row="skip").files["train"]
    (row,) = table.skipped_rows()
    assert (row["file"], row["line"], row["place"]) == (f"{posts}/b.csv", 22, f"{posts}/b.csv, line 22")
    assert (table.num_rows, table.where(30)) == (61, f"{posts}/b.csv, line 23")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("posts/*.json", "there are no files; write a pattern in quotes"),
        ("empty", "there are no files"),
        ("splits", "files of one split are needed, found names of test, train"),
        (["posts/a.csv", "posts/*.csv"], "each named once, found posts/a.csv"),
        ([], "must be one or more, each named once, found none"),
        (["posts/a.csv", "posts/x.csv"], "there is no such file"),
    ],
)
def test_what_names_no_files_is_refused(tmp_path, opened, write, posts, monkeypatch, value, message):
    (tmp_path / "empty").mkdir()
    for name in ("train-00000-of-00001.csv", "test.csv"):
        write(f"splits/{name}", "text,label\n好,正\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        opened(value)


def test_a_star_in_a_name_and_a_list_in_yaml(write, tmp_path):
    assert files_of(str(write("a*.csv", "x")), "unused") == [str(tmp_path / "a*.csv")]
    config = write("run.yaml", json.dumps({"data": {"train": ["a.csv", "b.csv"]}}))
    assert load_config(["--config", str(config)]).data.train == ["a.csv", "b.csv"]
    assert load_config(["--data.train", "posts/*.parquet"]).output.name == "posts"
    assert load_config(["--data.train", "*.parquet"]).output.name == "files"


def test_a_set_on_an_object_store_is_the_set_on_disk(opened, store, write):
    for path, text in (("posts/b.csv", csv_text(COMMENTS[30:])), ("posts/a.csv", csv_text(COMMENTS[:30])),
                       ("posts/_SUCCESS", ""), ("posts/inner/c.csv", "no")):  # fmt: skip
        store(f"/bucket/{path}", text)
    local = [str(write(f"{name}.csv", csv_text(rows))) for name, rows in
             (("a", COMMENTS[:30]), ("b", COMMENTS[30:]))]  # fmt: skip
    expected = opened(local)
    for address in ("memory://bucket/posts", "memory://bucket/posts/", "memory://bucket/posts/*.csv"):
        assert opened(address).folder == expected.folder
    # Errors name the file and its line
    store("/bucket/bad.csv", csv_text([*COMMENTS, ("一条评论", "")]))
    with pytest.raises(InputError, match=r"remote-\w+/bad.csv, line 62: the label is empty"):
        opened("memory://bucket/bad.csv")


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
    store("/bucket/posts/a.csv", csv_text(COMMENTS))
    store("/bucket/posts/b.csv", csv_text(COMMENTS[:1]))
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
def test_an_address_with_credentials_is_refused_without_showing_them(address):
    for setting in ("data.train", "data.dev", "data.test"):
        others = [] if setting == "data.train" else ["--data.train", "a.csv"]
        with pytest.raises(InputError, match=f"{setting}: an address must have no") as caught:
            load_config([f"--{setting}", address, *others])
        assert SECRET not in str(caught.value)
    with pytest.raises(InputError) as caught:
        local_copies(address, "unused")
    assert SECRET not in str(caught.value)


def test_what_a_store_says_of_a_key_is_in_no_message(tmp_path):
    class Store(fsspec.AbstractFileSystem):
        protocol = "keyed"

        def info(self, path, **options):
            raise PermissionError(f"the key {SECRET} may not read {path}")

        def isdir(self, path):
            return False

    fsspec.register_implementation("keyed", Store)
    for address, said in (
        ("keyed", r"cannot be read \(PermissionError\)"),
        ("nosuch", "requirements/remote"),
    ):
        with pytest.raises(InputError, match=rf"{address}://bucket/a.csv: .*{said}") as caught:
            local_copies(f"{address}://bucket/a.csv", str(tmp_path))
        assert SECRET not in str(caught.value)
        assert caught.value.__suppress_context__
