"""Signals and errors end a run in one sentence, no work is lost."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.checkpoints.training_state import drop_states
from app.run import main
from app.runtime.disk import read_json
from app.training.train import Run
from tests.ranks import ROOT, Disturbance, check_run, settings

# A failure of rank 0, and what each rank says
ERRORS = {
    "rename_folder": "is not there any more; if it was renamed, resume with --resume auto and its new name",
    "block_metrics": r"a file of the run .* cannot be written: .*metrics.jsonl.; "
    ".* resume with --resume auto",
}
FAILING = [("rename_folder", mode, size, "[tensorboard]") for mode, size in (("single", 1), ("ddp", 2))]
FAILING += [("rename_folder", "ddp", 2, "[]")]
FAILING += [("block_metrics", mode, size, "[]") for mode, size in (("single", 1), ("ddp", 2), ("fsdp", 2))]
SIGNALS = [signal.SIGTERM, signal.SIGINT]
SAID = {"dev": "after step 6; resume with", "test": "before the report was"}
CRASH = RuntimeError("the machine has failed")
RESULT = ("model.safetensors", "report.json")


@pytest.fixture
def start(data, tmp_path, monkeypatch):
    """Return a function that runs as run_single.py does, with a signal or an error in an evaluation."""
    evaluate_split = Run.evaluate_split

    def start_run(split: str = "", event: int | Exception = 0) -> int:
        def disturbed(self, name):
            if name == split:
                if isinstance(event, Exception):
                    # A kill would leave it, too
                    assert (tmp_path / "run" / "state" / "step-00000006").exists()
                    raise event
                signal.raise_signal(event)
            return evaluate_split(self, name)

        monkeypatch.setattr(Run, "evaluate_split", disturbed)
        return main("single", "", settings(data, tmp_path / "run", train__epochs=1))

    return start_run


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory) -> list[bytes]:
    """The weights and the report of a run that was not disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert main("single", "", settings(data, folder, train__epochs=1)) == 0
    return [(folder / name).read_bytes() for name in RESULT]


@pytest.mark.parametrize(("split", "event"), [("dev", SIGNALS[0]), ("test", SIGNALS[1]), ("test", CRASH)])
def test_a_signal_in_the_last_evaluations_or_a_crash_costs_only_the_report(
    split, event, start, whole, tmp_path, capsys
):
    before = [*map(signal.getsignal, SIGNALS)]
    run = tmp_path / "run"
    if event is CRASH:
        with pytest.raises(RuntimeError, match="the machine has failed"):
            start(split, event)
        capsys.readouterr()
    else:
        assert start(split, event) == 128 + event
        stderr = capsys.readouterr().err
        assert f"Stopped by {signal.Signals(event).name}" in stderr
        assert SAID[split] in stderr
    assert not (run / "report.json").exists()
    assert [*map(signal.getsignal, SIGNALS)] == before
    assert start() == 0
    stderr = capsys.readouterr().err
    assert "Resuming from step 6." in stderr
    assert "step 6/6  loss" not in stderr, "no step is trained again"
    assert [(run / name).read_bytes() for name in RESULT] == whole


def test_a_report_that_is_being_written_is_finished(start, tmp_path, monkeypatch):
    def stopped(folder: Path, keep: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        drop_states(folder, keep)

    monkeypatch.setattr("app.training.final_report.drop_states", stopped)
    assert start() == 0
    assert read_json(tmp_path / "run" / "report.json")["split"] == "test"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_a_signal_to_one_rank_in_the_last_evaluation_stops_all(mode, data, tmp_path):
    argv = settings(data, tmp_path / "run", train__epochs=1)
    log = tmp_path / "log"
    check_run(mode, 2, argv, [Disturbance(-1, "terminate_in_evaluation", 1)], log, status=143)
    assert "Stopped by SIGTERM after step 6; " in log.read_text()
    check_run(mode, 2, argv, log=log)
    assert (tmp_path / "run" / "report.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "world_size"), [("single", 1), ("ddp", 2), ("mp", 2)])
def test_a_signal_after_the_report_leaves_the_run_complete(mode, world_size, data, tmp_path):
    argv = settings(data, tmp_path / "run", train__epochs=1)
    late = [Disturbance(-1, "terminate_late", rank) for rank in range(world_size)]
    check_run(mode, world_size, argv, late, tmp_path / "log")
    assert (tmp_path / "run" / "report.json").exists()


def test_the_cache_may_be_removed_while_a_run_trains(data, start, at_step, tmp_path):
    """The report and the predictions have the texts and lines of their rows all the same."""
    _, rows_file, _, cache = map(Path, data)
    at_step(0, lambda: shutil.rmtree(cache))
    assert start() == 0
    assert not cache.exists()
    lines = (tmp_path / "run" / "predictions.csv").read_text(encoding="utf-8").splitlines()
    rows = rows_file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 13
    assert all(rows[int(line.split(",")[1]) - 1].split("\t")[0] == line.split(",")[2] for line in lines[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("event", "mode", "world_size", "trackers"), FAILING)
def test_a_folder_or_file_that_fails_is_said_by_all_ranks(event, mode, world_size, trackers, data, tmp_path):
    log = tmp_path / "log"
    changes = {"train__epochs": 4, "train__save_every": 4, "train__eval_every": 5}
    changes |= {"output__trackers": trackers}
    argv = settings(data, tmp_path / "run", **changes)
    check_run(mode, world_size, argv, [Disturbance(10, event)], log, status=1)
    printed = log.read_text()
    assert "Traceback" not in printed
    for rank in range(world_size):
        start = f"error (rank {rank}): rank 0 has ended: " if rank else "error: "
        lines = [line for line in printed.splitlines() if line.startswith(start)]
        assert len(lines) == 1, printed
        assert re.search(ERRORS[event], lines[0])
    if event == "rename_folder":
        check_run(mode, world_size, settings(data, tmp_path / "renamed", **changes), log=log)
        assert "Resuming from step" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "library"),
    [("run_single.py", "libtorch_cpu"), ("run_single.py", "tokenizers"), ("predict.py x", "multiarray")],
)
def test_control_c_during_imports_is_status_130_without_a_traceback(command, library, tmp_path):
    """The signal comes when a library has been mapped into the memory of the process."""
    options = {"cwd": tmp_path, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    # A shell has its background jobs ignore SIGINT
    options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    script, *words = command.split()
    process = subprocess.Popen([sys.executable, str(ROOT / script), *words], **options)
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and library not in maps.read_text():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        stderr = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert "Traceback" not in stderr
    assert process.returncode in (130, 2), "2: it had ended by itself"
    assert not Path(tmp_path, "checkpoints").exists()


@pytest.mark.parametrize("error", [MemoryError("no room"), RuntimeError("CPU: out of memory")])
def test_only_memory_that_runs_out_outside_of_the_passes_is_said(error, start, at_step, capsys):
    at_step(2, error)
    assert start() == 1
    last_line = capsys.readouterr().err.splitlines()[-1]
    remedy = "end other programs, lower train.micro_batch_tokens"
    assert last_line.startswith(f"error: memory ran out: {error}; {remedy}")
    at_step(2, RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        start()
