"""Sets of files, object stores, and the cache."""

import errno
import json
import operator
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd
import psutil
import pytest

from app.config.command_line import load_config
from app.data.build_table import build_table
from app.data.cache import build_once, call_apart, file_digest, file_state, save_array
from app.data.files import files_of, local_copies
from app.data.read import ReadOptions
from app.errors import InputError, TrainingError
from tests.processes import ROOT, finish, full_disk, wait_until
from tests.verbs import predict as main

COMMENTS = [(f"第{number}条评论", ["好", "坏", "中"][number * number % 3]) for number in range(60)]
PARTS = {"a": COMMENTS[:10], "b": COMMENTS[10:30], "c": COMMENTS[30:]}
KEY = "s3cr3t-of-a-key"


@pytest.fixture
def store():
    """Return a function that writes an object of a store in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield lambda path, text: system.pipe_file(path, text.encode())
    system.store.clear()


@pytest.fixture
def posts(tmp_path, write):
    """Write COMMENTS as three files of 10, 20 and 30 rows."""
    for name, rows in PARTS.items():
        write(f"posts/{name}.csv", csv_text(rows))
        content = pd.DataFrame(rows, columns=["text", "label"]).to_parquet()
        write(f"posts/{name}.parquet", content)
    return tmp_path / "posts"


def csv_text(rows):
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)


def rows_of(dataset) -> list[tuple[str, str]]:
    table = dataset.files["train"]
    return [(table.row(at).text, table.label_values[label]) for at, label in enumerate(table.labels.tolist())]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_one_set_in_the_order_of_their_names(opened, posts, ending):
    sizes = {"dev_size": 0.1, "test_size": 0.1}
    dataset = opened(train=f"{posts}/*.{ending}", **sizes)
    assert rows_of(dataset) == COMMENTS
    # A limit is that of each file
    limited = opened(train=f"{posts}/*.{ending}", limit=15)
    assert rows_of(limited) == [row for rows in PARTS.values() for row in rows[:15]]
    table = dataset.files["train"]
    number = 10 if ending == "parquet" else 11
    assert table.location(9) == f"{posts}/a.{ending}, {table.unit} {number}"
    assert table.location(10) == f"{posts}/b.{ending}, {table.unit} {number - 9}"
    assert opened(train=[f"{posts}/{name}.{ending}" for name in "abc"], **sizes).folder == dataset.folder
    single_file = opened(train="".join(f"{text}\t{label}\n" for text, label in COMMENTS), **sizes)
    for name, split in single_file.splits.items():
        assert np.array_equal(split.rows, dataset.splits[name].rows)
        assert np.array_equal(split.labels, dataset.splits[name].labels)


def test_the_cache_follows_the_contents(tmp_path, opened, write, posts):
    def tables():
        paths = (tmp_path / "cache").glob("table-*/rows.arrow")
        return {path.parent.name: path.stat().st_ctime_ns for path in paths}

    for path in posts.glob("*.parquet"):
        path.unlink()
    write("posts/_SUCCESS", "")
    write("posts/.hidden", "x")
    before = opened(train=str(posts))
    built = tables()
    os.rename(posts / "b.csv", posts / "b2.csv")
    renamed = opened(train=str(posts))
    assert renamed.folder == before.folder
    assert renamed.files["train"].location(10) == f"{posts}/b2.csv, line 2", "messages name the file of today"
    write("posts/d.csv", "text,label\n新的评论,好\n")
    table = opened(train=str(posts)).files["train"]
    assert (table.num_rows, table.location(60)) == (61, f"{posts}/d.csv, line 2")
    assert table.content != before.files["train"].content
    assert tables().items() >= built.items()


def test_errors_and_skipped_rows_name_the_file_and_its_own_line(opened, write, posts):
    write("posts/b.csv", csv_text(PARTS["b"]) + "只有文本\n又一条,好\n")
    with pytest.raises(InputError, match=r"b\.csv, line 22: 2 columns are needed"):
        opened(train=f"{posts}/*.csv")
    table = opened(train=f"{posts}/*.csv", on_bad_row="skip").files["train"]
    (row,) = table.skipped_rows()
    assert (row.file, row.line, row.location) == (f"{posts}/b.csv", 22, f"{posts}/b.csv, line 22")
    assert (table.num_rows, table.location(30)) == (61, f"{posts}/b.csv, line 23")


def test_a_star_in_a_name_and_a_list_in_yaml(write, tmp_path):
    assert files_of(str(write("a*.csv", "x")), "unused") == [str(tmp_path / "a*.csv")]
    config = write("run.yaml", json.dumps({"data": {"train": ["a.csv", "b.csv"]}}))
    assert load_config(["--config", str(config)]).data.train == ["a.csv", "b.csv"]
    assert load_config(["--data.train", "posts/*.parquet"]).output.name == "posts"
    assert load_config(["--data.train", "*.parquet"]).output.name == "files"


@pytest.mark.parametrize("pattern", ["posts/**/*.tsv", "posts/**", "**/*.tsv"])
def test_each_file_is_read_once_whatever_links_lead_to_it(write, tmp_path, monkeypatch, caplog, pattern):
    """Two links of a folder to itself have 2 ** 40 ways through them."""
    monkeypatch.chdir(tmp_path)
    names = ["posts/a.tsv", "posts/b/b.tsv", "posts/z.tsv"]
    for name in (*names, "posts/.hidden/c.tsv"):
        write(name, name)
    for link in ("posts/loop", "posts/b/up", "posts/a_link_before_the_folder"):
        Path(link).symlink_to(tmp_path / "posts" / ("b" if "before" in link else ""))
    Path("posts/a_link_to_nothing").symlink_to("a_link_to_nothing")
    Path("posts/one_more_name.tsv").symlink_to("a.tsv")
    Path("posts/z2.tsv").hardlink_to("posts/z.tsv")
    paths = files_of(pattern, "unused")
    assert [os.path.normpath(name) for name in paths] == names
    assert "posts/one_more_name.tsv" in caplog.text
    assert "posts/loop" in caplog.text
    assert files_of("posts", "unused") == ["posts/a.tsv", "posts/z.tsv"]


def test_a_link_to_a_folder_elsewhere_is_followed(write, tmp_path, monkeypatch, caplog):
    write("disk/2025/a.tsv", "x")
    write("posts/b.tsv", "x")
    monkeypatch.chdir(tmp_path)
    Path("posts/data").symlink_to(tmp_path / "disk")
    assert files_of("posts/**/*.tsv", "unused") == ["posts/b.tsv", "posts/data/2025/a.tsv"]
    assert files_of(f"{tmp_path}/posts/**/2025/*", "unused") == [f"{tmp_path}/posts/data/2025/a.tsv"]
    assert caplog.text == ""


@pytest.mark.parametrize(
    "second", ["a.tsv", "./a.tsv", "posts/../a.tsv", "link.tsv", "a*.tsv", "{here}/a.tsv"]
)
def test_a_file_that_is_named_twice_is_an_error(write, tmp_path, monkeypatch, second):
    write("a.tsv", "x")
    write("posts/b.tsv", "x")
    monkeypatch.chdir(tmp_path)
    Path("link.tsv").symlink_to("a.tsv")
    with pytest.raises(InputError, match=r"each named once, found a\.tsv.*; remove one"):
        files_of(["posts/b.tsv", "a.tsv", second.format(here=tmp_path)], "unused")


def test_a_set_on_an_object_store_is_the_set_on_disk(opened, store, write):
    parts = {"b": csv_text(COMMENTS[30:]), "a": csv_text(COMMENTS[:30])}
    for name, text in parts.items():
        store(f"/bucket/posts/{name}.csv", text)
    store("/bucket/posts/_SUCCESS", "")
    store("/bucket/posts/inner/c.csv", "no")
    expected = opened(train=[str(write(f"{name}.csv", parts[name])) for name in "ab"])
    for address in ("memory://bucket/posts", "memory://bucket/posts/", "memory://bucket/posts/*.csv"):
        assert opened(train=address).folder == expected.folder
    # Errors name the file and its line
    store("/bucket/bad.csv", csv_text([*COMMENTS, ("一条评论", "")]))
    with pytest.raises(InputError, match=r"remote-\w+/bad.csv, line 62: the label is empty"):
        opened(train="memory://bucket/bad.csv")


def test_a_copy_is_made_once_for_each_content(tmp_path, store):
    def copied():
        [path] = local_copies("memory://bucket/posts.csv", str(tmp_path))
        return Path(path)

    store("/bucket/posts.csv", "one")
    copy = copied()
    assert (copy.name, copy.read_text()) == ("posts.csv", "one")
    written = copy.stat().st_mtime_ns
    assert (copied(), copy.stat().st_mtime_ns) == (copy, written)
    store("/bucket/posts.csv", "two")
    assert (copied().read_text(), copy.read_text()) == ("two", "one")


def test_predict_reads_addresses(checkpoint, store, empty_folder):
    store("/bucket/posts/a.csv", csv_text(COMMENTS))
    options = ["--checkpoint", str(checkpoint), "--device", "cpu", "--input"]
    assert main([*options, "memory://bucket/posts/a.csv", "--output", "a.csv"]) == 0
    assert len(Path("a.csv").read_text(encoding="utf-8").splitlines()) == 61


def test_a_web_server(tmp_path, write):
    pytest.importorskip("aiohttp")
    content = b"x" * 100_000
    handler = partial(SimpleHTTPRequestHandler, directory=write("served/whole.bin", content).parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        (copy,) = local_copies(f"{address}/whole.bin", str(tmp_path))
        assert Path(copy).read_bytes() == content
        with pytest.raises(InputError, match="FileNotFoundError"):
            local_copies(f"{address}/other.bin", str(tmp_path))
        server.shutdown()


@pytest.mark.parametrize("address", [f"s3://me:{KEY}@bucket/a.csv", f"https://host/a.csv?Signature={KEY}"])
def test_an_address_with_credentials_is_refused_without_showing_them(address):
    for setting in ("data.train", "data.dev", "data.test"):
        others = [] if setting == "data.train" else ["--data.train", "a.csv"]
        with pytest.raises(InputError, match=f"{setting}: an address must have no") as caught:
            load_config([f"--{setting}", address, *others])
        assert KEY not in str(caught.value)
    with pytest.raises(InputError) as caught:
        local_copies(address, "unused")
    assert KEY not in str(caught.value)


def test_what_a_store_says_of_a_key_is_in_no_message(tmp_path, monkeypatch):
    def refuse(self, path, **options):
        raise PermissionError(f"the key {KEY} may not read {path}")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", refuse)
    reasons = {"memory": r"cannot be read \(PermissionError\)", "nosuch": "requirements/remote"}
    for scheme, reason in reasons.items():
        with pytest.raises(InputError, match=rf"{scheme}://bucket/a.csv: .*{reason}") as caught:
            local_copies(f"{scheme}://bucket/a.csv", str(tmp_path))
        assert KEY not in str(caught.value)
        assert caught.value.__suppress_context__


def folders(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir()}


@pytest.fixture
def path(write):
    return write("rows.csv", csv_text(COMMENTS * 20))


def test_a_file_that_changes_while_it_is_read_is_refused(path, tmp_path):
    before = file_state(path)
    path.write_text(csv_text(COMMENTS), encoding="utf-8")
    build = partial(build_table, state=before)
    with pytest.raises(InputError, match=r"rows\.csv: a data file must not change while it is read"):
        build_once(tmp_path / "cache" / "x", build, str(path), ReadOptions())
    assert not folders(tmp_path / "cache")


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_an_error_of_the_moment_is_no_damage(number, path, opened, monkeypatch):
    """A folder that cannot be read now is neither removed nor built again."""
    folder = opened(train=str(path)).folder
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    read_text = Path.read_text

    def refuse(self, *args, **kwargs):
        if self.name == "manifest.json":
            raise OSError(number, "not now", str(self))
        return read_text(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(TrainingError, match="cannot be prepared: .*not now.*nothing of the cache was remov"):
        opened(train=str(path))
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_a_full_disk_is_said_and_leaves_nothing_behind(path, tmp_path, opened):
    cache = tmp_path / "cache"
    message = "cannot be prepared: .*; free space on the disk, or set data.cache_dir"
    cache.mkdir()
    for seed in (0, 1):
        before = folders(cache)
        with full_disk(), pytest.raises(TrainingError, match=message):
            opened(train=str(path), dev_size=9, split_seed=seed)
        assert folders(cache) == before
        # Next, the table is there, and an array of the splits does not fit
        opened(train=str(path), dev_size=9, split_seed=2)


def test_an_array_that_does_not_fit_by_a_few_bytes_is_an_error(tmp_path):
    """numpy.save loses the end of a small one without an error."""
    values = np.arange(128).reshape(8, 16).T
    save_array(tmp_path / "whole.npy", values)
    assert np.array_equal(np.load(tmp_path / "whole.npy", mmap_mode="r"), values)
    size = (tmp_path / "whole.npy").stat().st_size
    with full_disk(size - 1), pytest.raises(OSError, match="File too large"):
        save_array(tmp_path / "cut.npy", values)


@pytest.mark.parametrize("words", ["script.py", "- < script.py"], ids=["a file", "standard input"])
def test_a_script_without_a_main_guard_runs_once(write, tmp_path, words):
    start = "from app.data.cache import call_apart\nprint('start')\n"
    write("script.py", start + "print(call_apart(pow, 6, 2))\n")
    done = finish(["sh", "-c", f"{sys.executable} {words}"], tmp_path, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (0, "start\n36\n"), done.stderr


def test_errors_are_raised_here():
    with pytest.raises(InputError, match=r"^no\.tsv: cannot be read: No such file") as caught:
        call_apart(file_digest, Path("no.tsv"))
    assert "in file_digest" in str(caught.value.__cause__), "where it was raised there"
    with pytest.raises(KeyError, match="'x'"):
        call_apart(operator.getitem, {}, "x")


def end_halfway(folder: Path) -> None:
    (folder / "half").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_preparation_is_said_and_leaves_nothing(tmp_path):
    """Nor does one that was killed together with the process that waited for it."""
    (tmp_path / "x.aside-1").mkdir()
    with pytest.raises(TrainingError, match="was killed; did memory run out"):
        build_once(tmp_path / "x", end_halfway)
    assert not folders(tmp_path)


def write_part(folder: Path, content: str) -> None:
    (folder / "part").write_text(content)


def test_a_folder_that_another_machine_builds_meanwhile_is_taken(tmp_path):
    """On some network file systems a lock holds on one machine only."""
    folder = tmp_path / "x"

    def build(temporary: Path) -> None:
        write_part(temporary, "here")
        build_once(tmp_path / "other", write_part, "elsewhere", num_bytes=0).rename(folder)

    assert build_once(folder, build, num_bytes=0) == folder
    assert (folder / "part").read_text() == "elsewhere"
    assert not list(tmp_path.glob("*.aside-*"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_the_process_that_waits(tmp_path, number):
    pid = tmp_path / "pid"
    sleep = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(300)"
    # A shell's background jobs ignore SIGINT, and so would this process if pytest is one.
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from app.data.cache import call_apart\ncall_apart(exec, {sleep!r})"
    )
    waiting = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: pid.exists() and pid.read_text())
        process = psutil.Process(int(pid.read_text()))
        waiting.send_signal(number)
        waiting.wait(120)
        gone, _ = psutil.wait_procs([process], timeout=120)
        assert gone == [process]
    finally:
        waiting.kill()
