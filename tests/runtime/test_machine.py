"""Memory, files, and the end of a launcher."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app.errors import InputError
from app.runtime.disk import read_json, write_json
from tests.processes import ROOT, finish, wait_until

# oneDNN finds no memory for a kernel, then there is some again; prints the error of each call, or "done".
NO_KERNEL = """
import resource
from pathlib import Path
import torch
from app.training.out_of_memory import replace_onednn

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
def test_a_run_goes_on_without_onednn_where_that_had_no_memory_for_a_kernel():
    done = finish([sys.executable, "-c", NO_KERNEL], status=0)
    before, without_memory, with_memory, checked = done.stdout.splitlines()
    if without_memory == "done":
        pytest.skip("this torch convolves without oneDNN")
    assert (before, checked) == ("done", "done")
    # The control: memory alone does not help.
    assert without_memory == with_memory == "could not create a primitive"
    assert "torch's own kernels are used from now on" in done.stderr


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "not valid JSON: the key 'c' is twice in an object"),
        (b'{"a": 1', "not valid JSON: Expecting"),
        (b"\xff", "not valid JSON: .*can't decode"),
        (b"[" * 100_000, "not valid JSON: "),
        ("pipe", "a regular file is needed, not a directory, a pipe or a device"),
        ("nothing", "cannot be read: No such file"),
    ],
    ids=["key twice", "cut off", "no UTF-8", "too deep", "pipe", "nothing"],
)
def test_files_that_are_no_json(tmp_path, content, problem):
    """A pipe is not waited for."""
    write_json(tmp_path / "good.json", {"好": [1, None]})
    assert read_json(tmp_path / "good.json") == {"好": [1, None]}
    path = tmp_path / "a.json"
    if content == "pipe":
        os.mkfifo(path)
    elif content != "nothing":
        path.write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.json.*{problem}"):
        read_json(path)


RUN = "import os, sys, time; from app.runtime.processes import end_with_launcher; end_with_launcher(); "
RUN += "print(os.getpid(), file=open(sys.argv[1], 'w')); time.sleep(4); open(sys.argv[2], 'w').close()"
RANKS = {"RANK": "1", "WORLD_SIZE": "2"}
VARIABLES = ("RANK", "WORLD_SIZE", "TORCHELASTIC", "HOROVOD", "CROSS_RANK")
SHELL = ["sh", "-c", '"$@"; true', "sh"]
LAUNCHER = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]


@pytest.mark.slow
def test_a_run_ends_with_its_launcher_and_says_so_and_survives_another_parent(tmp_path):
    """Side by side, each below a parent that is killed."""
    launched = [(LAUNCHER, RANKS | {"CROSS_RANK": "0"}), (SHELL, {"HOROVOD_RANK": "1"})]
    launched += [(SHELL, RANKS | {"TORCHELASTIC_RUN_ID": "none"})]
    # Set by hand, or by Kubernetes
    alone = [(SHELL, {}), (SHELL, RANKS), (LAUNCHER, {}), (LAUNCHER, RANKS)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    environment |= {"PYTHONPATH": str(ROOT)}
    places = [tmp_path / str(number) for number in range(7)]
    parents = []
    runs = []
    for (parent, variables), place in zip([*launched, *alone], places, strict=True):
        command = [*parent, sys.executable, "-c", RUN, f"{place}.begun", f"{place}.done"]
        with Path(f"{place}.log").open("w") as file:
            parents.append(subprocess.Popen(command, env=environment | variables, stdout=file, stderr=file))
    for place in places:
        begun = Path(f"{place}.begun")
        log = Path(f"{place}.log")
        wait_until(lambda begun=begun: begun.exists() and begun.read_text(), explain=log.read_text)
        runs.append(psutil.Process(int(begun.read_text())))
    for parent in parents:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(runs, timeout=60)
    assert not alive
    came_to_their_end = [Path(f"{place}.done").exists() for place in places]
    assert came_to_their_end == [False] * 3 + [True] * 4
    logs = [Path(f"{place}.log").read_text() for place in places]
    start = "error (rank 1): the launcher that started this process (number "
    assert [text.startswith(start) for text in logs[:3]] == [True] * 3
    assert logs[3:] == [""] * 4
