"""How many cores a process may use: those that it is bound to, and the CPU limit of its container."""

import os

import pytest

from app.runtime.cores import num_cores


def group(top, files, own=""):
    """Write the files of control groups below `top`, and the file that names a process's own group."""
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "own").write_text(own)
    return top, top / "own"


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch):
    """A process that is bound to 16 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)


@pytest.mark.parametrize(
    ("files", "own", "cores"),
    [
        ({"cpu.max": "200000 100000\n"}, "0::/\n", 2),
        # Two threads would leave half a core unused
        ({"cpu.max": "250000 100000\n"}, "0::/\n", 3),
        ({"cpu.max": "10000 100000\n"}, "0::/\n", 1),
        ({"cpu.max": "max 100000\n"}, "0::/\n", 16),
        ({"cpu.max": "6400000 100000\n"}, "0::/\n", 16),
        (
            {"a.slice/b.scope/cpu.max": "max 100000\n", "a.slice/cpu.max": "400000 100000\n"},
            "0::/a.slice/b.scope\n",
            4,
        ),
        ({"cpu.max": "300000 100000\n"}, "0::/not/seen/in/the/container\n", 3),
        (
            {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            "4:cpu,cpuacct:/docker/0a\n",
            2,
        ),
        (
            {"cpu/x/cpu.cfs_quota_us": "100000\n", "cpu/x/cpu.cfs_period_us": "100000\n"},
            "4:cpu,cpuacct:/x\n",
            1,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/\n", 16),
        ({"cpu.max": "not numbers\n"}, "0::/\n", 16),
        ({}, "", 16),
    ],
)
def test_a_limit_of_the_container_counts(tmp_path, files, own, cores):
    assert num_cores(*group(tmp_path, files, own)) == cores


def test_without_control_groups_the_cores_of_the_process_count(tmp_path):
    assert num_cores(tmp_path / "none", tmp_path / "none either") == 16
