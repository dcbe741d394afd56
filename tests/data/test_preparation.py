"""The process that prepares data: what starts it, what it answers, how it ends: python -m pytest
tests/data/test_preparation.py"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.data.cache import build_once, computed_apart
from app.errors import InputError, TrainingError
from tests.data.called_apart import end_at_once, fail

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
from app.data.cache import computed_apart
from tests.data.called_apart import double

print("start")
print(*computed_apart(double, [(21,), (4,)], 2))
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
    assert done.stdout == "start\n42 8\n"


def compute(function, *job):
    (answer,) = computed_apart(function, [job])
    return answer


def test_errors_are_raised_here():
    with pytest.raises(InputError, match="^rows.tsv, line 3: not like that$"):
        compute(fail, "input")
    with pytest.raises(RuntimeError, match=r"in fail(.|\n)*KeyError: 'x'"):
        compute(fail, "key")
    with pytest.raises(RuntimeError, match="OddError: odd error"):
        compute(fail, "odd")


def test_a_killed_preparation_is_said_and_leaves_nothing(tmp_path):
    with pytest.raises(TrainingError, match="was killed; did memory run out"):
        compute(end_at_once)
    with pytest.raises(TrainingError, match="was killed; did memory run out"):
        build_once(tmp_path / "cache" / "x", end_at_once)
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_the_process_that_waits(tmp_path, number):
    # A shell's background jobs ignore SIGINT, and so would this process if pytest is one.
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from app.data.cache import computed_apart\nfrom tests.data.called_apart import say_and_sleep\n"
        f"list(computed_apart(say_and_sleep, [({str(tmp_path / 'pid')!r},)]))"
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
