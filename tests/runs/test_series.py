"""A series of runs in one folder: python -m pytest tests/runs"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.config.command_line import load_config
from app.errors import InputError, TrainingError
from app.runs.series import Series, run_to_end
from app.runtime.group import Stopped
from tests.tiny import write_tiny

WAITS = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(143)))
Path(sys.argv[1]).touch()
time.sleep(120)
"""


def test_a_signal_is_passed_on_and_the_run_ends_first(tmp_path):
    started = tmp_path / "started"

    def stop_once_started() -> None:
        deadline = time.monotonic() + 60
        while not started.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    handler = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=stop_once_started)
    with (tmp_path / "log").open("wb") as log:
        thread.start()
        with pytest.raises(Stopped):
            run_to_end([sys.executable, "-c", WAITS, str(started)], log)
    thread.join()
    assert (tmp_path / "log").read_text() == "saved\n"
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_run_that_fails_names_its_error_and_its_log(tmp_path):
    words = ["--data.train", str(tmp_path / "nothing.tsv")]
    series = Series(tmp_path, "2 seeds", "single", 1, words, load_config(words))
    with pytest.raises(
        TrainingError, match=r"seed-1 failed with status 2: error: .*nothing\.tsv.*seed-1\.log"
    ):
        series.run("seed-1", [])


def test_a_series_keeps_its_settings_and_data(tmp_path):
    path = write_tiny(tmp_path / "rows.tsv", rows_per_label=5)
    words = ["--data.train", str(path), "--data.cache_dir", str(tmp_path / "cache")]
    series = Series(tmp_path / "series", "2 seeds", "single", 1, words, load_config(words))
    series.open()
    series.open()
    moved = str(path.rename(tmp_path / "moved.tsv"))

    def open_with(*more: str, kind: str = "2 seeds") -> None:
        replace(series, kind=kind, config=load_config(["--data.train", moved, *more])).open()

    open_with("--train.log_every", "7")
    with pytest.raises(InputError, match=r"train\.epochs was auto and is 9"):
        open_with("--train.epochs", "9")
    with pytest.raises(InputError, match="kind was 2 seeds and is 3 folds"):
        open_with(kind="3 folds")
    write_tiny(Path(moved), rows_per_label=6)
    with pytest.raises(InputError, match=r"data\.train"):
        open_with()
    record = json.loads((tmp_path / "series" / "job.json").read_text(encoding="utf-8"))
    assert record["kind"] == "2 seeds"
