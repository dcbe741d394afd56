"""What the machine has for a process, and what becomes of its memory."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from app.config.schema import Config, TrainConfig
from app.runtime import machine
from app.runtime.devices import bf16_speedup
from app.strategies import open_strategy
from tests.ranks import ROOT

# Takes 240 MB and frees them, several times; prints by how many MB the process has grown since the start.
ALLOCATE = """
import resource, sys
from pathlib import Path
import torch
from app.runtime.host_memory import give_back_memory, keep_freed_memory

def used():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

keep_freed_memory()
before = used()
for turn in range(4):
    if turn == 3 and "give" in sys.argv:
        give_back_memory(torch.device("cpu"))
    tensors = [torch.empty(20 << 18).fill_(1.0) for _ in range(12)]
    del tensors
print(used() - before)
"""
# oneDNN finds no memory for a kernel, then there is some again; prints the error of each call, or "done".
NO_KERNEL = """
import resource
from pathlib import Path
import torch
from app.config.schema import Config
from app.training.out_of_memory import MicroBatches
from app.strategies.single import Single

def convolve(size):
    try:
        torch.nn.functional.conv2d(torch.zeros(2, 16, size, 37), torch.zeros(16, 16, 3, 3))
        return "done"
    except RuntimeError as error:
        problems.append(error)
        return str(error)

problems, said = [], [convolve(9)]
used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used - 2**20, resource.RLIM_INFINITY))
said.append(convolve(10))
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
said.append(convolve(11))
if problems:
    MicroBatches(Single(Config()), Config().train).check(problems[0], False)
said.append(convolve(12))
print(*said, sep="\\n")
"""


def still_held(huge_pages: str, *what: str) -> float:
    """Return the memory that a process still has after its tensors are freed, in MB."""
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATE, *what],
        cwd=ROOT,
        env=os.environ | {"THP_MEM_ALLOC_ENABLE": huge_pages},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return float(done.stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not Path("/proc/self/statm").exists(), reason="glibc's malloc is what is set"
)
@pytest.mark.parametrize("huge_pages", ["0", "1"])
def test_freed_memory_is_kept_until_it_is_to_be_given_back(huge_pages):
    assert 240 <= still_held(huge_pages) < 300  # the memory of one turn, not of several
    assert still_held(huge_pages, "give") < 60  # torch and Python themselves take a little


def test_a_run_goes_on_without_onednn_where_that_had_no_memory_for_a_kernel():
    done = subprocess.run(
        [sys.executable, "-c", NO_KERNEL], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    before, without_memory, with_memory, checked = done.stdout.splitlines()
    if without_memory == "done":
        pytest.skip("this torch convolves without oneDNN")
    assert (before, checked) == ("done", "done")
    # The control: memory alone does not help.
    assert without_memory == with_memory == "could not create a primitive"
    assert "torch's own kernels are used from now on" in done.stderr


def test_slow_bf16_is_warned_of(monkeypatch, caplog):
    speedup = bf16_speedup()
    assert 0 < speedup < 100
    config = Config(train=TrainConfig(device="cpu", precision="bf16"))
    for limit, warnings in ((0, 0), (float("inf"), 1)):
        monkeypatch.setattr(machine, "SLOW_BF16", limit)
        with open_strategy("single", config):
            assert sum("train.precision fp32 is faster here" in line for line in caplog.messages) == warnings
