"""Errors of the system end a run with one sentence, and nothing is lost: python -m pytest
tests/run/test_system_errors.py"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.run import main
from tests.ranks import ROOT, Disturbance, run, settings


def test_too_many_open_files_is_one_error_and_removes_nothing(data, tmp_path, capsys):
    def start(folder: str) -> int:
        return main("single", "", settings(data, tmp_path / folder, train__epochs=1))

    assert start("first") == 0
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
            status = start("second")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        error = capsys.readouterr().err.splitlines()[-1]
        assert status == 1
        assert error.startswith("error: ")
        assert "Too many open files" in error
        assert "start again" in error or "raise the limit of open files" in error
    assert {path: path.stat().st_mtime_ns for path in Path(data[3]).rglob("*")} == cache
    assert start("second") == 0


def test_damaged_lines_of_metrics_end_no_run(data, at_step, tmp_path, capsys):
    """Half a line after kill -9, zero bytes after a power cut: the report and its page are written."""
    metrics = tmp_path / "run" / "metrics.jsonl"
    # After the first evaluation
    at_step(6, lambda: metrics.write_bytes(b'{"step": 3, "lo\n\0\0\0\n'))
    assert main("single", "", settings(data, tmp_path / "run", train__epochs=2)) == 0
    assert f"{metrics}, lines 1, 2: no evaluation in JSON; skipped" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "report.json").read_text())["split"] == "test"
    assert (tmp_path / "run" / "report.html").exists()


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
@pytest.mark.parametrize(("mode", "world_size"), [("single", 1), ("ddp", 2), ("fsdp", 2)])
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


@pytest.mark.parametrize("error", [MemoryError("no room"), RuntimeError("CPU: out of memory")])
def test_memory_that_runs_out_is_an_error_with_its_remedy(error, data, at_step, tmp_path, capsys):
    def fail():
        raise error

    # Outside of the passes, whose micro-batches would get smaller.
    at_step(2, fail)
    assert main("single", "", settings(data, tmp_path / "run", train__epochs=1)) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        f"error: memory ran out: {error}; end other programs, lower train.micro_batch_tokens"
    )


def test_another_error_stays_what_it_is(data, at_step, tmp_path):
    def fail():
        raise RuntimeError("shapes do not fit")

    at_step(2, fail)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        main("single", "", settings(data, tmp_path / "run", train__epochs=1))
