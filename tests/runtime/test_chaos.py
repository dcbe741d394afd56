"""Ranks that are stopped or slowed, full disks, taken ports, broken caches, jumping clocks.

Each case ends in time, names the cause, leaves no process and no half file, and resumes to the result of a
run that was never disturbed. tests/runtime/test_dead_ranks.py has the cases that need a real launcher.
"""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from app.checkpoints.training_state import load_training_state
from tests.checkpoints.test_resume import check_same_run
from tests.ranks import Disturbance, check_run, largest_difference, run, settings

pytestmark = pytest.mark.chaos
# Within which a disturbed run of a second or two must have ended
SECONDS = 25
JOB = {"train__epochs": 4, "train__save_every": 4, "train__eval_every": 5, "train__timeout": 4}
JOB |= {"model__dropout": 0.1, "output__trackers": "[tensorboard]"}
JUMPS = [("jump_back", "single", 1), ("jump_ahead", "ddp", 2)]


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Return a function that returns the folder of a mode's undisturbed run."""
    place = tmp_path_factory.mktemp("whole")

    def finished(mode: str, world_size: int) -> Path:
        folder = place / f"{mode}-{world_size}"
        if not folder.exists():
            check_run(mode, world_size, settings(data, folder, **JOB))
        return folder

    return finished


@pytest.fixture
def job(data, whole, tmp_path):
    return Job(data, whole, tmp_path)


class Job:
    """One run folder and its log, disturbed and then finished."""

    def __init__(self, data: list[str], whole, place: Path):
        self.data = data
        self.whole = whole
        self.folder = place / "run"
        self.log = place / "log"

    def run(self, mode: str, world_size: int, *disturbances: Disturbance, **waiting) -> list[int]:
        argv = settings(self.data, self.folder, **JOB)
        return run(mode, world_size, argv, disturbances, self.log, **waiting)

    def disturb(self, mode: str, world_size: int, *disturbances, **waiting) -> str:
        """Run until it fails; returns what it said."""
        codes = self.run(mode, world_size, *disturbances, seconds=SECONDS, **waiting)
        assert any(codes), codes
        return self.log.read_text(encoding="utf-8")

    @property
    def step(self) -> int:
        return load_training_state(self.folder).progress.step

    def resume(self, mode: str, world_size: int, from_step: int) -> None:
        """Finish the run, which must end as one that was never disturbed."""
        assert self.run(mode, world_size) == [0] * world_size, self.log.read_text()[-3000:]
        assert not from_step or f"Resuming from step {from_step}.\n" in self.log.read_text()
        check_same_run(self.folder, self.whole(mode, world_size))


@pytest.mark.parametrize(("mode", "world_size", "rank"), [("ddp", 2, 0), ("ddp", 3, 1), ("fsdp", 2, 0)])
def test_a_rank_that_is_stopped(mode, world_size, rank, job):
    """It cannot end by itself, so it is killed soon."""
    printed = job.disturb(mode, world_size, Disturbance(10, "SIGSTOP", rank), grace=2)
    assert f"rank {rank} has not responded for 4 seconds" in printed
    # Rank 0 writes, and may have been stopped while it did
    assert job.step in ((4, 8) if rank == 0 else (8,))
    job.resume(mode, world_size, job.step)


def test_a_slow_rank_is_waited_for(job):
    """Longer than the time that a silent one has: a slow rank still gives signs of life."""
    assert job.run("ddp", 2, Disturbance(10, "crawl", 1)) == [0, 0]
    check_same_run(job.folder, job.whole("ddp", 2))


@pytest.mark.parametrize(("mode", "world_size"), [("single", 1), ("ddp", 2)])
def test_killed_while_a_state_is_written(mode, world_size, job):
    job.disturb(mode, world_size, Disturbance(5, "die_in_save"))
    assert list((job.folder / "state").glob(".step-*")), "it was killed too late for this test"
    assert job.step == 4
    job.resume(mode, world_size, from_step=4)


@pytest.mark.parametrize(("mode", "world_size"), [("single", 1), ("ddp", 3)])
def test_the_disk_is_full(mode, world_size, job, tmp_path):
    """A small tmpfs that has room for one state and its model, and no more."""
    job.folder = tmp_path / "disk" / "run"
    job.folder.parent.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(job.folder.parent)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here; test_resume_states.py fills a disk by RLIMIT_FSIZE")
    message = "the training state of step 4 is kept; free space on the disk and resume with --resume auto"
    try:
        printed = job.disturb(mode, world_size)
        assert [part for part in ("cannot be written", "No space left", message) if part not in printed] == []
        assert "Traceback" not in printed
        assert not list((job.folder / "state").glob(".step-*"))
        subprocess.run(["mount", "-o", "remount,size=64m", str(job.folder.parent)], check=True)
        job.resume(mode, world_size, from_step=4)
    finally:
        subprocess.run(["umount", str(job.folder.parent)], check=True)


def test_the_port_is_taken(job):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        printed = job.disturb("ddp", 2, port=listener.getsockname()[1])
    assert "choose a free port" in printed
    assert "Traceback" not in printed
    assert not job.folder.exists()
    job.resume("ddp", 2, from_step=0)


def test_the_cache_is_damaged(job, tmp_path):
    """Between the stop and the resuming: it is built again."""
    job.data = [*job.data[:3], str(tmp_path / "cache")]
    job.disturb("ddp", 2, Disturbance(10, "SIGTERM"))
    for path in (tmp_path / "cache").glob("*/*.bin"):
        os.truncate(path, path.stat().st_size // 2)
    job.resume("ddp", 2, from_step=11)
    assert "is damaged and is built again" in job.log.read_text()


@pytest.mark.parametrize(("jump", "mode", "world_size"), JUMPS)
def test_the_clock_jumps(jump, mode, world_size, job):
    """In training and between two starts: the second may seem to come a day before the first."""
    jumps = [Disturbance(step, jump, rank) for rank in range(world_size) for step in (-1, 3)]
    job.disturb(mode, world_size, *jumps, Disturbance(10, "SIGTERM"))
    job.resume(mode, world_size, from_step=11)


@pytest.mark.parametrize(("mode", "world_size", "steps"), [("single", 1, (4, 8)), ("ddp", 2, (10,))])
def test_a_second_signal_ends_at_once(mode, world_size, steps, job):
    """Of several processes, to which launchers repeat a signal, only one that comes a second later."""
    codes = job.run(mode, world_size, Disturbance(9, "two_signals"), seconds=SECONDS)
    assert codes == [143] * world_size
    # The state of step 8 may still have been on its way to the disk
    assert job.step in steps
    job.resume(mode, world_size, job.step)


@pytest.mark.parametrize(("mode", "world_size"), [("single", 1), ("ddp", 2), ("fsdp", 2), ("accelerate", 2)])
def test_gradients_that_are_not_finite(mode, world_size, job):
    """They stop the run after the last good state."""
    spoilt = [Disturbance(9, "spoil_gradients", rank) for rank in range(world_size)]
    printed = job.disturb(mode, world_size, *spoilt)
    assert "step 10: the loss is" in printed
    assert "the gradient norm nan; all logits are finite; rows of the batch: " in printed
    assert job.step == 8
    job.resume(mode, world_size, from_step=8)


WIDE = {"train__batch_size": 96, "train__epochs": 4, "train__eval_every": 100, "model__dropout": 0}
WIDE |= {"train__learning_rate": 1e-4, "train__warmup": 0}
# The last layer computes first tokens only, and takes little memory
WIDE |= {"model__config.num_hidden_layers": 2}


def test_memory_runs_out(job):
    """Allocations really fail; smaller micro-batches are taken, and the result is the same."""
    wide = WIDE | {"model__config.intermediate_size": 16384}
    plain = job.folder.with_name("plain")
    check_run("single", 1, settings(job.data, plain, **wide))
    argv = settings(job.data, job.folder, **wide)
    check_run("single", 1, argv, [Disturbance(1, "limit_memory")], job.log)
    assert "memory ran out in step 3 with micro-batches of" in job.log.read_text()
    assert largest_difference(job.folder, plain) <= 1e-5


@pytest.mark.parametrize(("mode", "world_size"), [("ddp", 2), ("fsdp", 2)])
def test_memory_runs_out_where_the_others_cannot_be_told(mode, world_size, job):
    wide = WIDE | {"model__config.intermediate_size": 16384 * world_size}
    argv = settings(job.data, job.folder, **wide)
    limited = Disturbance(1, "limit_memory", 1)
    codes = run(mode, world_size, argv, [limited], job.log, seconds=SECONDS)
    assert all(codes), codes
    assert "--output.resume auto --train.accumulation_steps N" in job.log.read_text()
