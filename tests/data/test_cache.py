"""The cache, and the process apart that prepares what is large: python -m pytest tests/data/test_cache.py"""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.config.schema import DataConfig
from app.data.cache import build_once, call_apart, file_digest
from app.data.dataset import open_dataset
from app.data.read import ReadOptions
from app.data.table import build_table
from app.data.tokens import open_store
from app.errors import InputError, TrainingError
from tests.data.called_apart import end_at_once, fail
from tests.tiny import write_tiny

ROOT = Path(__file__).resolve().parents[2]


def folders(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir()}


def open_all(path: Path, cache: Path, tokenizer, **settings):
    """Return the dataset and the token store of a file."""
    dataset = open_dataset(DataConfig(train=str(path), cache_dir=str(cache), **settings))
    return dataset, open_store(dataset.splits["train"].table, tokenizer, 16, str(cache))


def test_the_same_content_by_another_path_has_the_same_cache(tmp_path, tiny_tokenizer):
    cache, first = tmp_path / "cache", write_tiny(tmp_path / "rows.tsv")
    one, store = open_all(first, cache, tiny_tokenizer)
    known = folders(cache)
    moved = first.rename(tmp_path / "moved.tab")
    two, other_store = open_all(moved, cache, tiny_tokenizer)
    assert folders(cache) == known
    assert (two.folder, other_store.folder) == (one.folder, store.folder)
    assert two.splits["train"].table.where(0) == f"{moved}, line 2", "messages name the file of today"


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = write_tiny(tmp_path / "rows.tsv")
    before = file_digest(path)
    with path.open("a", encoding="utf-8") as file:
        file.write("好极了\t正面\n")
    arguments = (str(path), ReadOptions(), False, None, True, True, before)
    with pytest.raises(InputError, match=r"rows\.tsv: a data file must not change while it is read"):
        build_once(tmp_path / "cache" / "x", build_table, *arguments)
    assert not folders(tmp_path / "cache")


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_an_error_of_the_moment_is_no_damage(number, tmp_path, tiny_tokenizer, monkeypatch):
    """A folder that cannot be read now is neither removed nor built again."""
    path, cache = write_tiny(tmp_path / "rows.tsv"), tmp_path / "cache"
    dataset, _ = open_all(path, cache, tiny_tokenizer)
    before = {file: file.stat().st_mtime_ns for file in dataset.folder.iterdir()}
    read_text = Path.read_text

    def refuse(self, *args, **kwargs):
        if self.name == "manifest.json":
            raise OSError(number, "not now", str(self))
        return read_text(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(
            TrainingError, match="cannot be prepared: .*not now.*nothing of the cache was removed"
        ):
            open_all(path, cache, tiny_tokenizer)
    assert {file: file.stat().st_mtime_ns for file in dataset.folder.iterdir()} == before


def test_a_full_disk_is_said_and_leaves_nothing_behind(tmp_path):
    """A limit on the size of files gives the errors of a full disk, also within numpy."""
    path, cache = write_tiny(tmp_path / "rows.tsv", 400), tmp_path / "cache"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # In the middle of the texts, and in that of an array
    for size in (1000, 6000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(
                TrainingError, match="cannot be prepared: .*; free space on the disk, or set data.cache_dir"
            ):
                open_dataset(DataConfig(train=str(path), cache_dir=str(cache)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert not folders(cache)


def test_what_is_open_outlives_the_cache(tmp_path, tiny_tokenizer):
    """The cache may be removed while a run trains: the rows of its report are still there."""

    def rows(dataset, store):
        table = dataset.splits["train"].table
        return [(table.text(row), table.where(row), store.row(row).tolist()) for row in range(9)]

    path = write_tiny(tmp_path / "rows.tsv", pairs=True)
    wanted = rows(*open_all(path, tmp_path / "cache", tiny_tokenizer))
    dataset, store = open_all(path, tmp_path / "cache", tiny_tokenizer)
    shutil.rmtree(tmp_path / "cache")
    assert rows(dataset, store) == wanted
    assert all(len(split.rows) == len(split.labels) for split in dataset.splits.values())


SCRIPT = """
from app.data.cache import call_apart
from tests.data.called_apart import double

print("start")
print(call_apart(double, 21))
"""


@pytest.mark.parametrize("from_standard_input", [False, True])
def test_a_script_without_a_main_guard_runs_once(tmp_path, from_standard_input):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-" if from_standard_input else "script.py"],
        input=SCRIPT if from_standard_input else None,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "start\n42\n"


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [("input", InputError, "^rows.tsv, line 3: not like that$"), ("key", KeyError, "'x'")],
)
def test_errors_are_raised_here(kind, error, message):
    with pytest.raises(error, match=message) as caught:
        call_apart(fail, kind)
    assert "in fail" in str(caught.value.__cause__), "where it was raised there"


def test_a_killed_preparation_is_said_and_leaves_nothing(tmp_path):
    with pytest.raises(TrainingError, match="was killed; did memory run out"):
        build_once(tmp_path / "cache" / "x", end_at_once)
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_the_process_that_waits(tmp_path, number):
    # A shell's background jobs ignore SIGINT, and so would this process if pytest is one.
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from app.data.cache import call_apart\nfrom tests.data.called_apart import say_and_sleep\n"
        f"call_apart(say_and_sleep, {str(tmp_path / 'pid')!r})"
    )
    waiting = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
            assert waiting.poll() is None
            time.sleep(0.05)
        process = psutil.Process(int((tmp_path / "pid").read_text()))
        waiting.send_signal(number)
        waiting.wait(120)
        gone, _ = psutil.wait_procs([process], timeout=120)
        assert gone == [process]
    finally:
        waiting.kill()
