"""One run in a folder at a time: python -m pytest tests/checkpoints/test_run_lock.py"""

import errno
import fcntl
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from app.checkpoints.run_folder import LOCK, check_run_folder, lock_folder, open_run_folder
from app.config.schema import OutputConfig
from app.errors import InputError
from tests.checkpoints.test_find_run import make_run

NEW, AUTO = OutputConfig(dir="run"), OutputConfig(dir="run", resume="auto")
pytestmark = pytest.mark.usefixtures("empty_folder")


def hold(folder: str, ready) -> None:
    lock = lock_folder(Path(folder))
    ready.set()
    signal.pause()
    lock.release()


@pytest.fixture
def other():
    """Return a function that starts a process which holds a folder, and returns it."""
    context = multiprocessing.get_context("fork")
    processes = []

    def start(folder: str):
        ready = context.Event()
        process = context.Process(target=hold, args=(folder, ready))
        process.start()
        processes.append(process)
        assert ready.wait(20)
        return process

    yield start
    for process in processes:
        process.kill()
        process.join()


@pytest.mark.parametrize("config", [NEW, AUTO])
@pytest.mark.parametrize("call", [check_run_folder, open_run_folder])
def test_a_second_run_is_refused_until_the_first_is_dead(other, config, call):
    folder = make_run("run", launcher=None)
    process = other("run")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError) as caught:
        call(config)
    assert str(caught.value) == (
        "a run folder is for one run at a time: run is in use by another one; wait until that run has ended, "
        "stop it, or choose another output.dir"
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    check_run_folder(AUTO)
    found, is_resumed, lock = open_run_folder(AUTO)
    assert (found, is_resumed) == (folder, True)
    lock.release()


def test_two_starts_of_resume_auto_without_a_folder(other):
    make_run("checkpoints/exp-001", launcher=None)
    other("checkpoints/exp-001")
    for call in (check_run_folder, open_run_folder):
        with pytest.raises(InputError, match=r"checkpoints/exp-001 is in use by another one"):
            call(OutputConfig(name="exp", resume="auto"))


def test_a_start_between_check_and_lock_is_seen():
    """Both have checked the same empty folder; the second finds the run of the first, after it was killed
    too."""
    check_run_folder(NEW)
    folder, is_resumed, lock = open_run_folder(NEW)
    assert not is_resumed
    with pytest.raises(InputError, match="is in use by"):
        open_run_folder(NEW)
    for name in ("run_history.json", "train.log"):
        (folder / name).write_text("{}")
    lock.release()
    with pytest.raises(InputError, match="holds a run that is not finished"):
        open_run_folder(NEW)


def test_the_rest_of_a_dead_run_is_no_obstacle():
    Path("run").mkdir()
    Path("run", LOCK).write_text('{"pid": 1, "host": "gone"}')
    check_run_folder(NEW)
    _, is_resumed, lock = open_run_folder(NEW)
    assert not is_resumed
    lock.release()


@pytest.mark.parametrize("number", ["ENOLCK", "EOPNOTSUPP"])
def test_where_there_are_no_locks_a_warning_says_so(monkeypatch, caplog, number):
    def refuse(*_):
        raise OSError(getattr(errno, number), "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    check_run_folder(NEW)
    folder, _, lock = open_run_folder(NEW)
    assert f"run cannot be locked ([Errno {getattr(errno, number)}] no locks): start no second" in caplog.text
    lock.release()
    assert folder.is_dir()
