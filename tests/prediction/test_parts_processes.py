"""Parts by processes that are killed: python -m pytest tests/prediction/test_parts_processes.py -m slow"""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from app.prediction.predictor import CHUNK_ROWS
from tests.saved_classifier import random_texts, save_checkpoint
from tests.verbs import predict as main

ROOT = Path(__file__).resolve().parents[2]
COUNT = 12 * CHUNK_ROWS + 7
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> dict:
    """Return a model, a CSV file of 13 parts, and what one process writes for it."""
    folder = tmp_path_factory.mktemp("job")
    checkpoint, source, one = folder / "bert", folder / "posts.csv", folder / "one.csv"
    save_checkpoint(checkpoint)
    with source.open("w", encoding="utf-8", newline="") as file:
        rows = [[number, f'{text}\n"好'] for number, text in enumerate(random_texts(COUNT))]
        csv.writer(file).writerows([["id", "text"], *rows, ["last", ""]])
    options = ["--checkpoint", str(checkpoint), "--device", "cpu", "--input", str(source)]
    assert main([*options, "--output", str(one)]) == 0
    return {"options": options, "one": one.read_bytes()}


def start(job: dict, folder: Path, *launcher: str, options: tuple = ()) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *launcher, "predict.py", *options, *job["options"], "--output", f"{folder}/"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def finished(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("_part-*.json")}


def check(job: dict, folder: Path) -> None:
    output = folder.with_suffix(".csv")
    assert main(["--merge", str(folder), "--output", str(output)]) == 0
    assert output.read_bytes() == job["one"]


def test_torchrun_with_two_processes(tmp_path, job):
    folder = tmp_path / "labels"
    process = start(job, folder, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
    said = process.communicate(timeout=400)[1]
    assert process.returncode == 0, said
    assert f"{COUNT + 1:,} rows in 13 parts; every row is there once" in said
    check(job, folder)


def test_the_other_process_takes_the_parts_of_a_killed_one(tmp_path, job):
    folder = tmp_path / "labels"
    process = start(job, folder, options=("--nprocs", "2"))
    kill_when(process, folder, more=1, parent=False)
    said = process.communicate(timeout=400)[1]
    assert process.returncode == 0, said
    assert "was ended by signal 9" in said
    check(job, folder)


@pytest.mark.chaos
def test_killed_at_random_every_row_is_there_once_and_nothing_is_computed_twice(tmp_path, job):
    generator, folder, before = random.Random(0), tmp_path / "labels", {}
    for attempt in range(5):
        # Another number of processes goes on
        process = start(job, folder, options=("--nprocs", str(1 + attempt % 3)))
        kill_when(process, folder, more=generator.randint(0, 2), parent=True, after=generator.random() / 2)
        process.communicate(timeout=60)
        now = finished(folder)
        assert {name: now.get(name) for name in before} == before
        before = now
    process = start(job, folder, options=("--nprocs", "2"))
    said = process.communicate(timeout=400)[1]
    assert process.returncode == 0, said
    now = finished(folder)
    assert {name: now.get(name) for name in before} == before
    check(job, folder)


def kill_when(process: subprocess.Popen, folder: Path, more: int, parent: bool, after: float = 0.0) -> None:
    """Kill a process that computes parts, or the one that started it and then those, when `more` parts have
    been finished and `after` seconds have passed."""
    before, deadline = len(finished(folder)), time.monotonic() + 300
    while process.poll() is None and len(finished(folder)) < before + more and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(after)
    if process.poll() is not None:
        # It has finished all parts
        return
    workers = []
    for child in psutil.Process(process.pid).children():
        # One may end by itself while they are listed
        with suppress(psutil.NoSuchProcess):
            workers += [child.pid] if "spawn_main" in " ".join(child.cmdline()) else []
    for victim in [process.pid, *workers] if parent else workers[:1]:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
