"""Signals and errors of the system end a run with one sentence; a stop is never swallowed, and no work is
lost: python -m pytest tests/run/test_stopping.py"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import app.training.final_report
from app.run import main
from app.training.train import Run
from tests.ranks import ROOT, Disturbance, run, settings

SIZES = [("single", 1), ("ddp", 2), ("fsdp", 2)]


@pytest.fixture
def start(data, tmp_path, monkeypatch):
    """Return a function that runs as run_single.py does; the run gets a signal in its evaluation on a
    split."""
    evaluate = Run.evaluate

    def start_run(split: str = "", number: int = 0, folder: str = "run") -> int:
        def disturbed(self, name):
            if name == split:
                os.kill(os.getpid(), number)
            return evaluate(self, name)

        monkeypatch.setattr(Run, "evaluate", disturbed)
        return main("single", "", settings(data, tmp_path / folder, train__epochs=1))

    return start_run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("split", "said"), [("dev", "after step 6; resume with"), ("test", "before the report was")]
)
def test_a_signal_in_the_last_evaluations_stops_and_only_the_report_is_missing(
    split, said, number, start, tmp_path, capsys
):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert start(split, number) == 128 + number
    stderr = capsys.readouterr().err
    assert f"Stopped by {signal.Signals(number).name}" in stderr
    assert said in stderr
    assert not (tmp_path / "run" / "report.json").exists()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert start() == 0
    stderr = capsys.readouterr().err
    assert "Resuming from step 6." in stderr
    assert "step 6/6  loss" not in stderr, "no step is trained again"
    assert (tmp_path / "run" / "report.json").exists()


def test_a_report_that_is_being_written_is_finished(start, tmp_path, monkeypatch):
    drop_states = app.training.final_report.drop_states
    monkeypatch.setattr(
        app.training.final_report,
        "drop_states",
        lambda *values, **keys: (signal.raise_signal(signal.SIGTERM), drop_states(*values, **keys)),
    )
    assert start() == 0
    assert json.loads(Path(tmp_path, "run", "report.json").read_text())["split"] == "test"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_a_signal_to_one_rank_in_the_last_evaluation_stops_all(mode, data, tmp_path):
    argv, log = settings(data, tmp_path / "run", train__epochs=1), tmp_path / "log"
    codes = run(mode, 2, argv, [Disturbance(-1, "terminate_in_evaluation", 1)], log)
    assert codes == [143, 143], log.read_text()[-3000:]
    assert "Stopped by SIGTERM after step 6; " in log.read_text()
    assert run(mode, 2, argv, log=log) == [0, 0]
    assert (tmp_path / "run" / "report.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "world_size"), [("single", 1), ("ddp", 2), ("mp", 2)])
def test_a_signal_after_the_report_leaves_the_run_complete(mode, world_size, data, tmp_path):
    argv, log = settings(data, tmp_path / "run", train__epochs=1), tmp_path / "log"
    late = [Disturbance(-1, "terminate_late", rank) for rank in range(world_size)]
    assert run(mode, world_size, argv, late, log) == [0] * world_size, log.read_text()[-3000:]
    assert (tmp_path / "run" / "report.json").exists()


def test_the_cache_may_be_removed_while_a_run_trains(data, start, at_step, tmp_path):
    """The report and the predictions have the texts and lines of their rows all the same."""
    _, rows_file, _, cache = map(Path, data)
    at_step(0, lambda: shutil.rmtree(cache))
    assert start() == 0
    assert not cache.exists()
    lines = Path(tmp_path, "run", "predictions.csv").read_text(encoding="utf-8").splitlines()
    rows = rows_file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 13
    assert all(rows[int(line.split(",")[1]) - 1].split("\t")[0] == line.split(",")[2] for line in lines[1:])


def test_too_many_open_files_is_one_error_and_removes_nothing(data, start, tmp_path, capsys):
    assert start() == 0
    cache = {path: path.stat().st_mtime_ns for path in Path(data[3]).rglob("*")}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # At different files
    for more in (0, 4, 8):
        capsys.readouterr()
        # Numbers below the limit may be free between those of open files
        open_files = set(map(int, os.listdir("/proc/self/fd")))
        free = [number for number in range(len(open_files) + more + 1) if number not in open_files]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[more], limits[1]))
        try:
            status = start(folder="second")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert status == 1
        error = r"error: .*Too many open files.*(start again|raise the limit of open files)"
        assert re.match(error, capsys.readouterr().err.splitlines()[-1])
    assert {path: path.stat().st_mtime_ns for path in Path(data[3]).rglob("*")} == cache
    assert start(folder="second") == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "world_size", "trackers"),
    [("single", 1, "[tensorboard]"), ("ddp", 2, "[tensorboard]"), ("ddp", 2, "[]")],
)
def test_a_renamed_folder_is_said_on_all_ranks_and_the_run_resumes(
    mode, world_size, trackers, data, tmp_path
):
    log, changes = tmp_path / "log", {"train__epochs": 4, "train__save_every": 4, "train__eval_every": 5}
    changes |= {"output__trackers": trackers}
    argv = settings(data, tmp_path / "run", **changes)
    assert run(mode, world_size, argv, [Disturbance(10, "rename_folder")], log) == [1] * world_size
    said = log.read_text()
    assert "Traceback" not in said
    for rank in range(world_size):
        start = f"error (rank {rank}): rank 0 has ended: " if rank else "error: "
        (line,) = [line for line in said.splitlines() if line.startswith(start)]
        assert "is not there any more; if it was renamed, resume with --resume auto and its new name" in line
    assert run(mode, world_size, settings(data, tmp_path / "renamed", **changes), log=log) == [0] * world_size
    assert "Resuming from step" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "world_size"), SIZES)
def test_metrics_that_cannot_be_written_end_all_ranks_with_a_sentence(mode, world_size, data, tmp_path):
    log, argv = tmp_path / "log", settings(data, tmp_path / "run", train__epochs=4, train__eval_every=5)
    assert run(mode, world_size, argv, [Disturbance(7, "block_metrics")], log) == [1] * world_size
    said = log.read_text()
    assert "Traceback" not in said
    error = r"a file of the run .* cannot be written: .*metrics.jsonl.; .* resume with --resume auto"
    assert len(re.findall(error, said)) == world_size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "library"),
    [("run_single.py", "libtorch_cpu"), ("run_single.py", "tokenizers"), ("predict.py", "multiarray")],
)
def test_control_c_during_imports_is_status_130_without_a_traceback(script, library, tmp_path):
    """The signal comes when a library has been mapped into the memory of the process."""
    words = [sys.executable, str(ROOT / script), *(["x"] if script == "predict.py" else [])]
    # A shell has its background jobs ignore SIGINT
    options = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    process = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options
    )
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and library not in maps.read_text():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert "Traceback" not in said
    assert process.returncode in (130, 2), "2: it had ended by itself"
    assert not Path(tmp_path, "checkpoints").exists()


@pytest.mark.parametrize(
    ("error", "is_explained"),
    [
        (MemoryError("no room"), True),
        (RuntimeError("CPU: out of memory"), True),
        (RuntimeError("shapes do not fit"), False),
    ],
)
def test_memory_that_runs_out_outside_of_the_passes_is_an_error_and_others_stay(
    error, is_explained, start, at_step, capsys
):
    def fail():
        raise error

    at_step(2, fail)
    if is_explained:
        assert start() == 1
        said = capsys.readouterr().err.splitlines()[-1]
        remedy = "end other programs, lower train.micro_batch_tokens"
        assert said.startswith(f"error: memory ran out: {error}; {remedy}")
    else:
        with pytest.raises(RuntimeError, match="shapes do not fit"):
            start()
