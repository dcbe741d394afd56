"""What a process asks of the machine: memory, files, signals, and that it ends with its launcher:
python -m pytest tests/runtime/test_machine.py -m "slow or not slow" """

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.errors import InputError, TrainingError
from app.runtime.disk import read_json, write_json
from app.runtime.group import Group, StopSignals
from tests.processes import ROOT, finish

# Frees 240 MB and asks for them again; prints how many new pages that took.
ALLOCATE = """
import ctypes, resource, sys
import torch
from app.runtime.devices import give_back_memory, keep_freed_memory

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: in huge pages there would be too few to count

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
for turn in range(4):
    if turn == 3 and "give" in sys.argv:
        give_back_memory(torch.device("cpu"))
    before = pages()
    tensors = [torch.empty(20 << 18).fill_(1.0) for _ in range(12)]
    taken = pages() - before
    del tensors
print(taken)
"""
# oneDNN finds no memory for a kernel, then there is some again; prints the error of each call, or "done".
NO_KERNEL = """
import resource
from pathlib import Path
import torch
from app.training.step import replace_onednn

def convolve(size):
    try:
        torch.nn.functional.conv2d(torch.zeros(2, 16, size, 37), torch.zeros(16, 16, 3, 3))
        return "done"
    except RuntimeError as error:
        problems.append(error)
        return str(error)

problems, said = [], [convolve(9)]
# Holes for the tensors, so that the kernel alone finds no memory
holes = [torch.empty(16_000) for _ in range(100)]
del holes[::2]
used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used - 2**20, resource.RLIM_INFINITY))
said.append(convolve(10))
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
said.append(convolve(11))
if problems:
    replace_onednn(problems[0])
said.append(convolve(12))
print(*said, sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is what is set")
def test_freed_memory_is_kept_until_it_is_to_be_given_back():
    # Of 4 KiB
    pages = 240 * 256
    kept, given = (finish([sys.executable, "-c", ALLOCATE, *words]) for words in ([], ["give"]))
    # Not none: a small object may come to lie where a block was
    assert int(kept.stdout) < pages / 4, kept.stderr
    assert int(given.stdout) > pages * 0.9, given.stderr


@pytest.mark.slow
def test_a_run_goes_on_without_onednn_where_that_had_no_memory_for_a_kernel():
    done = finish([sys.executable, "-c", NO_KERNEL])
    assert done.returncode == 0, done.stderr
    before, without_memory, with_memory, checked = done.stdout.splitlines()
    if without_memory == "done":
        pytest.skip("this torch convolves without oneDNN")
    assert (before, checked) == ("done", "done")
    # The control: memory alone does not help.
    assert without_memory == with_memory == "could not create a primitive"
    assert "torch's own kernels are used from now on" in done.stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "not valid JSON: the key 'c' is twice in an object"),
        (b'{"a": 1', "not valid JSON: Expecting"),
        (b"\xff", "not valid JSON: .*can't decode"),
        (b"[" * 100_000, "not valid JSON: "),
    ],
    ids=["key twice", "cut off", "no UTF-8", "too deep"],
)
def test_files_that_are_no_json(tmp_path, write, content, problem):
    write_json(tmp_path / "good.json", {"好": [1, None]})
    assert read_json(tmp_path / "good.json") == {"好": [1, None]}
    with pytest.raises(InputError, match=rf"a\.json: {problem}"):
        read_json(write("a.json", content))


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    found = "a regular file is needed, not a directory, a pipe or a device"
    for name, problem in (("a.json", found), (".", found), ("no.json", "cannot be read: No such file")):
        with pytest.raises(InputError, match=problem):
            read_json(tmp_path / name)


class TwoRanks(Group):
    """The group of one process, which says that there are two."""

    world_size = 2


@pytest.mark.parametrize(
    ("group", "error", "is_ignored"),
    [(TwoRanks, TrainingError, True), (Group, TrainingError, False), (TwoRanks, KeyError, False)],
)
def test_a_rank_finishes_its_files_after_an_error_of_training(group, error, is_ignored):
    """The launcher sends SIGTERM when the first rank has ended; rank 0 may still write the last state."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(error), StopSignals(group()):
            raise error("the loss is nan")
        assert signal.getsignal(signal.SIGTERM) == (signal.SIG_IGN if is_ignored else before)
    finally:
        signal.signal(signal.SIGTERM, before)


RUN = "import os, sys, time; from app.runtime.processes import end_with_launcher; end_with_launcher(); "
RUN += "print(os.getpid(), file=open(sys.argv[1], 'w')); time.sleep(4); open(sys.argv[2], 'w').close()"
RANKS = {"RANK": "1", "WORLD_SIZE": "2"}
VARIABLES = ("RANK", "WORLD_SIZE", "TORCHELASTIC", "HOROVOD", "CROSS_RANK")
SHELL = ["sh", "-c", '"$@"; true', "sh"]
LAUNCHER = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]


def outlive(cases: list[tuple[list[str], dict[str, str]]], folder: Path) -> list[tuple[bool, str]]:
    """Start runs side by side, each below a parent that is killed, with variables; return whether each came
    to its end, and what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    environment |= {"PYTHONPATH": str(ROOT)}
    places, parents, runs = [folder / str(number) for number in range(len(cases))], [], []
    for (parent, variables), place in zip(cases, places, strict=True):
        command = [*parent, sys.executable, "-c", RUN, f"{place}.begun", f"{place}.done"]
        with Path(f"{place}.log").open("w") as file:
            parents.append(subprocess.Popen(command, env=environment | variables, stdout=file, stderr=file))
    deadline = time.monotonic() + 60
    for begun in (Path(f"{place}.begun") for place in places):
        while not begun.exists() or not begun.read_text():
            assert time.monotonic() < deadline, begun.with_suffix(".log").read_text()
            time.sleep(0.05)
        runs.append(psutil.Process(int(begun.read_text())))
    for parent in parents:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(runs, timeout=60)
    assert not alive
    return [(Path(f"{place}.done").exists(), Path(f"{place}.log").read_text()) for place in places]


@pytest.mark.slow
def test_a_run_without_a_launcher_survives_the_end_of_its_parent(tmp_path):
    # Set by hand, or by Kubernetes
    cases = [(SHELL, {}), (SHELL, RANKS), (LAUNCHER, {}), (LAUNCHER, RANKS)]
    assert outlive(cases, tmp_path) == [(True, "")] * len(cases)


@pytest.mark.slow
def test_a_run_ends_with_its_launcher_and_says_so(tmp_path):
    cases = [
        (LAUNCHER, RANKS | {"CROSS_RANK": "0"}),
        (SHELL, {"HOROVOD_RANK": "1"}),
        (SHELL, RANKS | {"TORCHELASTIC_RUN_ID": "none"}),
    ]
    for came_to_its_end, said in outlive(cases, tmp_path):
        assert not came_to_its_end
        assert said.startswith("error (rank 1): the launcher that started this process (number ")
